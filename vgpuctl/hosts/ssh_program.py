# SPDX-License-Identifier: Apache-2.0
"""Asks OpenSSH's client how it would log in to a host: `ssh -G` reads files, Include and Match as ssh does."""

import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from vgpuctl.errors import InventoryError

Answer = Mapping[str, Sequence[str]]
"""The values of each option by its name in lower case, in their order; `identityfile` has several."""

# `Match exec` runs programs of the operator's own.
_LONGEST_WAIT_S = 30.0
_REMEMBERED_S = 30.0
_SHOWN_LINES = 10
_OPTION = re.compile(r"[a-z0-9]+")


class SshProgram:
    """OpenSSH's client on this machine. Thread-safe.

    program: its name or path. A jump host is asked about once for all hosts behind it.
    """

    def __init__(self, program: str = "ssh") -> None:
        self._program = program
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, ...], threading.Lock] = {}
        self._remembered: dict[tuple[str, ...], tuple[float, Answer]] = {}

    def ask(self, arguments: Sequence[str], address: str, *, name: str) -> Answer:
        """Return the options that ssh would use for an address. Raises InventoryError with ssh's own words."""
        argv = [self._program, "-G", "-T", *arguments, "--", address]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST_WAIT_S, check=False
            )
        except FileNotFoundError as exc:
            raise InventoryError(
                f"{name}: OpenSSH's client `{self._program}` was not found on this machine; it reads ssh_config",
                hint="install it (Debian, Ubuntu: openssh-client; Fedora, RHEL, SUSE: openssh-clients)",
            ) from exc
        except subprocess.TimeoutExpired as exc:
            raise InventoryError(
                f"{name}: `{self._shown(arguments, address)}` did not answer within {_LONGEST_WAIT_S:g} s",
                hint="see which `Match exec` or file of ssh_config it waits for",
            ) from exc
        except (OSError, ValueError) as exc:  # ValueError: a NUL in an argument
            reason = exc.strerror if isinstance(exc, OSError) else str(exc)
            raise InventoryError(f"{name}: `{self._program} -G` could not be run: {reason}") from exc
        if done.returncode != 0:
            said = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
            raise InventoryError(
                f"{name}: ssh refuses its configuration: {said[0] if said else f'exit status {done.returncode}'}",
                context=said[1:_SHOWN_LINES],
                hint=f"`{self._shown(arguments, address)}` must print options; correct the file or variable it names",
            )
        return read_answer(done.stdout.decode("utf-8", "surrogateescape"))

    def ask_once(self, arguments: Sequence[str], address: str, *, name: str) -> Answer:
        """As `ask`, with an answer that may be some seconds old; for what many hosts have in common."""
        key = (*arguments, address)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            at, answer = self._remembered.get(key, (0.0, {}))
            if not answer or time.monotonic() - at > _REMEMBERED_S:
                answer = self.ask(arguments, address, name=name)
                self._remembered[key] = (time.monotonic(), answer)
            return answer

    def _shown(self, arguments: Sequence[str], address: str) -> str:
        words = [ascii(word) if not word.isprintable() or " " in word else word for word in (*arguments, address)]
        return " ".join([self._program, "-G", *words])[:300]


def read_answer(text: str) -> Answer:
    """Read the output of `ssh -G`: a name in lower case, a space and the value on each line."""
    answer: dict[str, list[str]] = {}
    for line in text.split("\n"):
        key, _, value = line.partition(" ")
        if _OPTION.fullmatch(key):
            answer.setdefault(key, []).append(value)
    return answer
