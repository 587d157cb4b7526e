# SPDX-License-Identifier: Apache-2.0
"""`nvidia-smi` of a simulated host: -L, -mig, --gpu-reset, mig -lgip -lgi -cgi -dgi, vgpu -shm (reference 3.3, 5, 6.1).

Its exit status is NVML's code.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from vgpuctl_lab.simulated.machine import modes
from vgpuctl_lab.simulated.machine.mig_rules import compute_parts
from vgpuctl_lab.simulated.machine.nvml_values import ERROR_TEXTS
from vgpuctl_lab.simulated.machine.rules import DRIVER
from vgpuctl_lab.simulated.machine.shape import Card, Mig, MigProfile
from vgpuctl_lab.simulated.machine.state import GpuInstance, MachineFolder, State, is_nvidia

T = TypeVar("T")
_NOT_FOUND, _INVALID, _NO_DEVICES = 6, 2, 6
_WITH_VALUE = ("-i", "-mig", "-cgi", "-gi", "-shm")
_FLAGS = ("-L", "-r", "--gpu-reset", "mig", "vgpu", "-lgip", "-lgi", "-dgi", "-C")


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


def _cards(machine: MachineFolder, state: State, wanted: str | None) -> list[tuple[int, Card]]:
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


def _run(state: State, cards: list[tuple[int, Card]], options: dict[str, str], say: Callable[[str], None]) -> None:
    for index, card in cards:
        if "-L" in options:
            say(f"GPU {index}: {card.model} (UUID: {card.uuid})")
        elif "-mig" in options:
            _set_mig_mode(state, card, say, enabled=options["-mig"] == "1")
        elif "-r" in options or "--gpu-reset" in options:
            _reset(state, card, say)
        elif "mig" in options:
            _mig(state, index, card, options, say)
        elif "-shm" in options:
            _set_mixed_sizes(state, card, options, say)
        else:
            raise _Ended(_INVALID, "Invalid combination of input arguments.")
    if "-mig" in options or "-r" in options or "--gpu-reset" in options:
        say("All done.")


def _set_mig_mode(state: State, card: Card, say: Callable[[str], None], *, enabled: bool) -> None:
    word = "enable" if enabled else "disable"
    pending = _attempt(
        lambda: modes.set_mig_mode(state, card, enabled=enabled), f"Unable to {word} MIG Mode for GPU {_bus_id(card)}"
    )
    if pending:
        say(f"Warning: MIG mode is in pending {word} state for GPU {_bus_id(card)}:{ERROR_TEXTS[pending]}")
        say(f"Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU {_bus_id(card)}")
        return
    say(f"{word.capitalize()}d MIG Mode for GPU {_bus_id(card)}")


def _reset(state: State, card: Card, say: Callable[[str], None]) -> None:
    _attempt(lambda: modes.reset(state, card), f"GPU {_bus_id(card)} could not be reset")
    say(f"GPU {_bus_id(card)} was successfully reset.")


def _set_mixed_sizes(state: State, card: Card, options: dict[str, str], say: Callable[[str], None]) -> None:
    enabled = options["-shm"] == "1"
    instance = _instance(state, card, options["-gi"]) if "-gi" in options else None
    _attempt(
        lambda: modes.set_mixed_sizes(state, card, instance, enabled=enabled),
        f"Unable to set vGPU heterogeneous mode for GPU {_bus_id(card)}",
    )
    say(f"{'Enabled' if enabled else 'Disabled'} vGPU heterogeneous mode for GPU {_bus_id(card)}")


def _mig(state: State, index: int, card: Card, options: dict[str, str], say: Callable[[str], None]) -> None:
    if card.mig is None or not state.mig_mode(card)[0]:
        raise _Ended(_NOT_FOUND, "No MIG-enabled devices found.")
    if "-cgi" in options:
        for word in options["-cgi"].split(","):
            _create(state, index, card, card.mig, word, say, with_compute="-C" in options)
    elif "-dgi" in options:
        chosen = [_instance(state, card, options["-gi"])] if "-gi" in options else state.instances_of(card)
        for one in chosen:
            _destroy(state, index, card, one, say)
    elif "-lgip" in options:
        _list_profiles(state, index, card, card.mig, say)
    elif "-lgi" in options:
        _list_instances(state, index, card, card.mig, say)
    else:
        raise _Ended(_INVALID, "Invalid combination of input arguments.")


def _create(
    state: State, index: int, card: Card, mig: Mig, word: str, say: Callable[[str], None], *, with_compute: bool
) -> None:
    name, _, start = word.partition(":")
    profile = next((each for each in mig.profiles if name in (str(each.profile_id), each.name)), None)
    if profile is None:
        raise _Ended(_INVALID, f"Unable to parse profile {name}")
    one: GpuInstance = _attempt(
        lambda: modes.create_instance(state, card, profile.profile_id, int(start) if start else None),
        f"Unable to create a GPU instance on GPU {index:2} using profile {profile.profile_id}",
    )
    using = f"on GPU {index:2}"
    say(
        f"Successfully created GPU instance ID {one.id:2} {using} using profile MIG {profile.name}"
        f" (ID {profile.profile_id:2})"
    )
    if with_compute:
        whole = next(part for part in compute_parts(profile.slices) if part.slices == profile.slices)
        compute = modes.create_compute(state, card, one, whole.id, None)
        say(
            f"Successfully created compute instance ID {compute.id:2} {using} GPU instance ID {one.id:2}"
            f" using profile MIG {profile.name} (ID {whole.id:2})"
        )


def _destroy(state: State, index: int, card: Card, one: GpuInstance, say: Callable[[str], None]) -> None:
    _attempt(
        lambda: modes.destroy_instance(state, card, one),
        f"Unable to destroy GPU instance ID {one.id:2} from GPU {index:2}",
    )
    say(f"Successfully destroyed GPU instance ID {one.id:2} from GPU {index:2}")


def _list_profiles(state: State, index: int, card: Card, mig: Mig, say: Callable[[str], None]) -> None:
    say("GPU instance profiles:")
    space = modes.gpu_space(state, card, mig)
    for profile in mig.profiles:
        free = space.remaining(modes.part_of(profile))
        say(
            f"|{index:4}  MIG {profile.name:<16}{profile.profile_id:3} {free:5}/{profile.max_count:<5}"
            f"{profile.memory_mib / 1024:8.2f}       No {profile.engines[0]:6}"
        )


def _list_instances(state: State, index: int, card: Card, mig: Mig, say: Callable[[str], None]) -> None:
    found = state.instances_of(card)
    if not found:
        raise _Ended(0, "No MIG devices found")
    say("GPU instances:")
    for one in found:
        profile: MigProfile | None = mig.profile(one.profile_id)
        name = profile.name if profile else "?"
        say(f"|{index:4}  MIG {name:<16}{one.profile_id:3} {one.id:8} {one.start:10}:{one.size:<6}|")


def _instance(state: State, card: Card, number: str) -> GpuInstance:
    for one in state.instances_of(card):
        if str(one.id) == number:
            return one
    raise _Ended(_NOT_FOUND, f"GPU instance {number} was not found: Not Found")


def _attempt(what: Callable[[], T], failure: str) -> T:
    try:
        return what()
    except modes.Refused as refused:
        raise _Ended(refused.code, f"{failure}: {ERROR_TEXTS[refused.code]}") from refused


def _bus_id(card: Card) -> str:
    return f"0000{card.address.upper()}"
