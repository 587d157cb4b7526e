# SPDX-License-Identifier: Apache-2.0
"""`nvidia-smi` of a simulated host: `-L` and `-mig` for a person, `--gpu-reset` for the agent (reference 5, 6.1).

Its exit status is NVML's code. The whole program, in C, is on kernel hosts.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from vgpuctl_lab.simulated.machine import modes
from vgpuctl_lab.simulated.machine.nvml_values import ERROR_TEXTS
from vgpuctl_lab.simulated.machine.rules import DRIVER
from vgpuctl_lab.simulated.machine.shape import CardShape
from vgpuctl_lab.simulated.machine.state import MachineFolder, State, is_nvidia

T = TypeVar("T")
_INVALID, _NO_DEVICES = 2, 6
_WITH_VALUE = ("-i", "-mig")
_FLAGS = ("-L", "--gpu-reset")


class _Ended(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def run(machine: MachineFolder, arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run it: (exit status, stdout, stderr)."""
    said: list[str] = []
    try:
        options = _parse(arguments)
        with machine.change() as state:
            cards = _cards(machine, state, options.get("-i"))
            _run(state, cards, options, said.append)
    except _Ended as ended:
        said.append(str(ended))
        return ended.status, "".join(f"{line}\n" for line in said), ""
    return 0, "".join(f"{line}\n" for line in said), ""


def _parse(arguments: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word in _WITH_VALUE and words:
            options[word] = words.pop(0)
        elif word in _FLAGS:
            options[word] = ""
        else:
            raise _Ended(_INVALID, f"Invalid combination of input arguments. {word} is not known here.")
    return options


def _cards(machine: MachineFolder, state: State, wanted: str | None) -> list[tuple[int, CardShape]]:
    there = [card for card in machine.shape.cards if is_nvidia(card) and state.drivers.get(card.address) == DRIVER]
    found = []
    for index, card in enumerate(there):
        domain, _, rest = card.address.partition(":")
        if wanted is None or wanted.lower() in (str(index), card.uuid.lower(), card.address, f"0000{domain}:{rest}"):
            found.append((index, card))
    if not found:
        raise _Ended(_NO_DEVICES, "No devices were found")
    for _, card in found:
        if state.fault(card, "fallen"):
            raise _Ended(15, f"Unable to determine the device handle for GPU {_bus_id(card)}: GPU is lost.")
    return found


def _run(state: State, cards: list[tuple[int, CardShape]], options: dict[str, str], say: Callable[[str], None]) -> None:
    for index, card in cards:
        if "-L" in options:
            say(f"GPU {index}: {card.model} (UUID: {card.uuid})")
        elif "-mig" in options:
            _set_mig_mode(state, card, say, enabled=options["-mig"] == "1")
        elif "--gpu-reset" in options:
            _reset(state, card, say)
        else:
            raise _Ended(_INVALID, "Invalid combination of input arguments.")
    if "-L" not in options:
        say("All done.")


def _set_mig_mode(state: State, card: CardShape, say: Callable[[str], None], *, enabled: bool) -> None:
    word = "enable" if enabled else "disable"
    pending = _attempt(
        lambda: modes.set_mig_mode(state, card, enabled=enabled), f"Unable to {word} MIG Mode for GPU {_bus_id(card)}"
    )
    if pending:
        say(f"Warning: MIG mode is in pending {word} state for GPU {_bus_id(card)}:{ERROR_TEXTS[pending]}")
        say(f"Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU {_bus_id(card)}")
        return
    say(f"{word.capitalize()}d MIG Mode for GPU {_bus_id(card)}")


def _reset(state: State, card: CardShape, say: Callable[[str], None]) -> None:
    _attempt(lambda: modes.reset(state, card), f"GPU {_bus_id(card)} could not be reset")
    say(f"GPU {_bus_id(card)} was successfully reset.")


def _attempt(what: Callable[[], T], failure: str) -> T:
    try:
        return what()
    except modes.Refused as refused:
        raise _Ended(refused.code, f"{failure}: {ERROR_TEXTS[refused.code]}") from refused


def _bus_id(card: CardShape) -> str:
    return f"0000{card.address.upper()}"
