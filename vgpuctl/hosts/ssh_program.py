# SPDX-License-Identifier: Apache-2.0
"""Asks OpenSSH's client how it would log in to a host: `ssh -G` reads files, Include and Match as ssh does.

Its answer for one host serves for others where none of the files that it has read makes a difference between hosts:
to start it takes 5 ms of processor time, a tenth of what a host costs.
"""

import ipaddress
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from vgpuctl.errors import InventoryError
from vgpuctl.hosts.ssh_files import judge_files
from vgpuctl.model.secret import ProgramLine
from vgpuctl.specs.bounded_reader import Malformed, read_bounded
from vgpuctl.trusted_files import NAMED
from vgpuctl.trusted_programs import judge_program

Answer = Mapping[str, Sequence[str]]
"""The values of each option by its name in lower case, in their order; `identityfile` has several."""

# `Match exec` runs programs of the operator's own.
_LONGEST_WAIT_S = 30.0
_REMEMBERED_S = 30.0
_SHOWN_LINES = 10
_OPTION = re.compile(r"[a-z0-9]+")


_FILE_READ = re.compile(r"debug1: Reading configuration data (.+)")
# An argument of -o, as ssh_config.py writes them: its value may be a command, or a password in the wrong place.
_GIVEN = re.compile(r"([a-z]+)=")
_REMARKS = ("debug1: ", "OpenSSH_")  # of ssh -v
# Lines of ssh_config that make a difference between hosts: a section for some of them, and a token such as %h.
_LINE = re.compile(rb"""[\s"']*([A-Za-z]+)[\s"'=]*(.*?)[\s"']*""", re.DOTALL)
_SECTIONS = {b"host": re.compile(rb"\*"), b"match": re.compile(rb"(?:final\s+)?all", re.IGNORECASE)}
# ssh leaves such names as they are: it writes others in lower case, and addresses in their usual form.
_NAME = re.compile(r"(?:[a-z0-9_-]+\.)*[a-z][a-z0-9_-]*")
_USER = re.compile(r"[A-Za-z0-9._-]+")


class SshProgram:
    """OpenSSH's client on this machine. Thread-safe.

    program: its name or path. A jump host is asked about once for all hosts behind it.
    """

    def __init__(self, program: str = "ssh") -> None:
        self._program = program
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, ...], threading.Lock] = {}
        self._remembered: dict[tuple[str, ...], tuple[float, Answer]] = {}
        """When each was asked, with the answer; an empty one where it is of no use for other hosts."""

    def ask(
        self, arguments: Sequence[str], address: str, *, name: str, user: str | None = None, port: int | None = None
    ) -> Answer:
        """Return the options that ssh would use for an address. Raises InventoryError with ssh's own words.

        user, port: where they are given, they count more than those of arguments and files. The answer may be some
        seconds old.
        """
        given = {"hostname": address, "user": user, "port": port}
        own = {option: [str(value)] for option, value in given.items() if value is not None}
        words = [
            *(["-l", user] if user is not None else ()),
            *(["-p", str(port)] if port is not None else ()),
            *arguments,
        ]
        if _is_left_as_it_is(address, user):
            key = ("", *own, *arguments)
            with self._lock_of(key):
                at, common = self._remembered.get(key, (0.0, None))
                if common is None or time.monotonic() - at > _REMEMBERED_S:
                    answer, files = self._run(words, address, name=name)
                    is_common = own.items() <= answer.items() and _is_same_for_all(arguments, answer, files)
                    self._remembered[key] = (time.monotonic(), answer if is_common else {})
                    return answer
            if common:
                return {**common, **own}
        return self._run(words, address, name=name)[0]

    def _run(self, arguments: Sequence[str], address: str, *, name: str) -> tuple[Answer, Sequence[str]]:
        """The answer, and the files that ssh has read for it. Raises FileNotTrusted before ssh is started."""
        judge_program(self._program)
        judge_files(arguments[arguments.index("-F") + 1] if "-F" in arguments else None)
        argv = [self._program, "-v", "-G", "-T", *arguments, "--", address]
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
        lines = done.stderr.decode("utf-8", "replace").splitlines()
        if done.returncode != 0:
            said = [line for line in lines if line.strip() and not line.startswith(_REMARKS)]
            given = ProgramLine(shlex.join(word for word in arguments if _GIVEN.match(word)))
            said = given.clean("\n".join(said), known=(name, address)).splitlines()
            raise InventoryError(
                f"{name}: ssh refuses its configuration: {said[0] if said else f'exit status {done.returncode}'}",
                context=said[1:_SHOWN_LINES],
                hint=f"`{self._shown(arguments, address)}` must print options; correct the file or variable it names",
            )
        files = [found[1] for found in map(_FILE_READ.fullmatch, lines) if found]
        return read_answer(done.stdout.decode("utf-8", "surrogateescape")), files

    def ask_once(self, arguments: Sequence[str], address: str, *, name: str) -> Answer:
        """As `ask`, with an answer that may be some seconds old; for what many hosts have in common."""
        key = (address, *arguments)
        with self._lock_of(key):
            at, answer = self._remembered.get(key, (0.0, {}))
            if not answer or time.monotonic() - at > _REMEMBERED_S:
                answer = self._run(arguments, address, name=name)[0]
                self._remembered[key] = (time.monotonic(), answer)
            return answer

    def _lock_of(self, key: tuple[str, ...]) -> threading.Lock:
        with self._lock:
            return self._locks.setdefault(key, threading.Lock())

    def _shown(self, arguments: Sequence[str], address: str) -> str:
        """The call without the values of options: a ProxyCommand may hold a password."""
        words = [_option_name(word) for word in (*arguments, address)]
        words = [ascii(word) if not word.isprintable() or " " in word else word for word in words]
        return " ".join([self._program, "-G", *words])[:300]


def _option_name(word: str) -> str:
    found = _GIVEN.match(word)
    return word if found is None else f"{found[1]}=…"


def read_answer(text: str) -> Answer:
    """Read the output of `ssh -G`: a name in lower case, a space and the value on each line."""
    answer: dict[str, list[str]] = {}
    for line in text.split("\n"):
        key, _, value = line.partition(" ")
        if _OPTION.fullmatch(key):
            answer.setdefault(key, []).append(value)
    return answer


def _is_left_as_it_is(address: str, user: str | None) -> bool:
    """True if ssh prints this address and user as they are given."""
    if user is not None and not _USER.fullmatch(user):
        return False
    try:
        return str(ipaddress.ip_address(address)) == address
    except ValueError:
        return _NAME.fullmatch(address) is not None


def _is_same_for_all(arguments: Sequence[str], answer: Answer, files: Sequence[str]) -> bool:
    """True if nothing in arguments and files makes a difference between hosts; false where that is not known."""
    if answer.get("canonicalizehostname", ["no"]) not in (["no"], ["false"]) or answer.get("proxyjump"):
        return False
    if any("%" in one for one in arguments):
        return False
    # ssh -v names each file that it reads, those of Include too.
    if not files:
        return list(arguments[:2]) == ["-F", "none"]
    try:
        return not any(
            _makes_a_difference(line) for file in files for line in read_bounded(Path(file), NAMED).split(b"\n")
        )
    except Malformed:
        return False


def _makes_a_difference(line: bytes) -> bool:
    if line.lstrip().startswith(b"#"):
        return False
    found = _LINE.fullmatch(line)
    section = None if found is None else _SECTIONS.get(found[1].lower())
    return b"%" in line or (found is not None and section is not None and section.fullmatch(found[2]) is None)
