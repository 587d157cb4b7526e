# SPDX-License-Identifier: Apache-2.0
"""Choice of the Python that runs the agent on a host, and the error if none can."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.errors import PythonMissing
from vgpuctl.model.distribution import Package, family_of, install
from vgpuctl.model.host_target import AUTO_PYTHON, HostTarget
from vgpuctl.model.preparation import PYTHON_FLOOR

# The distribution's own comes first: its path does not change with other versions.
SYSTEM_PYTHON = "/usr/bin/python3"
# Then the newest, as Ansible's `auto` does (INTERPRETER_PYTHON_FALLBACK of ansible-core 2.20).
_CANDIDATES = (SYSTEM_PYTHON, *(f"python3.{minor}" for minor in range(14, 8, -1)), "python3")
_NAME = re.compile(r"python3?(\.\d+)?")
_FOUND = re.compile(r"python (/[\w./+-]{1,200}) (\d{1,18})\.(\d{1,18})( lacks \S+)?")
_SYSTEM = re.compile(r"system (.*)")
_NEEDED = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
_MODULES = "import zlib, json, hashlib, ctypes"
LAST_LINE = "end"
# Prints `python PATH X.Y` for each that starts, ` lacks modules` after it where it cannot run the agent, then
# `system ID ID_LIKE` of os-release(5).
FIND_PROGRAM = f"""
for name in {" ".join(_CANDIDATES)}; do
  path=$(command -v "$name") || continue
  version=$("$path" -I -S -c "{_NEEDED}" 2>/dev/null </dev/null) || continue
  "$path" -I -S -c "{_MODULES}" 2>/dev/null </dev/null || version="$version lacks modules"
  echo "python $path $version"
done
(. /etc/os-release && echo "system $ID $ID_LIKE") 2>/dev/null
echo {LAST_LINE}
"""
_FLOOR = ".".join(str(part) for part in PYTHON_FLOOR)


@dataclass(frozen=True)
class FoundPython:
    """An interpreter of a host. is_whole: it has the modules that the agent needs."""

    path: str
    version: tuple[int, int]
    is_whole: bool

    def is_good(self) -> bool:
        """True if the agent runs under it."""
        return self.is_whole and self.version >= PYTHON_FLOOR

    def __str__(self) -> str:
        return f"{self.path} is {self.version[0]}.{self.version[1]}" + ("" if self.is_whole else " without its modules")


def choose_python(target: HostTarget, answer: Sequence[str]) -> str:
    """Return the path of the first interpreter that runs the agent, from FIND_PROGRAM's lines.

    Raises PythonMissing that names those found and the host's package.
    """
    matches = [match for line in answer if (match := _FOUND.fullmatch(line))]
    found = [FoundPython(match[1], (int(match[2]), int(match[3])), match[4] is None) for match in matches]
    for one in found:
        if one.is_good():
            return one.path
    system = next((match[1].split() for line in answer if (match := _SYSTEM.fullmatch(line))), [])
    raise PythonMissing(
        f"{target.name}: the host has no Python {_FLOOR} or newer: {'; '.join(map(str, found)) or 'there is none'}",
        context=[f"tried: {', '.join(_CANDIDATES)}"],
        hint=f"on the host: {install([Package.PYTHON], family_of(system))};"
        " or set ansible_python_interpreter to where one is",
    )


def is_python(target: HostTarget, program: str) -> bool:
    """True if `program` is the interpreter that the inventory names, or one of those that are tried without a name."""
    if target.python_interpreter != AUTO_PYTHON:
        return program == target.python_interpreter
    return _NAME.fullmatch(program.rpartition("/")[2]) is not None


def python_failure(target: HostTarget, program: str, exit_status: int, stderr: bytes) -> PythonMissing | None:
    """Return the error when `exit_status` says that the interpreter could not be started, else None.

    127: the shell (or sudo) found no such program. 126: found, but not executable.
    """
    if exit_status not in (126, 127):
        return None
    what = "was not found" if exit_status == 127 else "cannot be executed"
    return PythonMissing(
        f"{target.name}: the Python interpreter {program} {what}",
        context=stderr.decode("utf-8", "replace").splitlines()[-5:],
        hint="install python3 on the host, or set ansible_python_interpreter to where it is, or to `auto`",
    )


def too_old(target: HostTarget, program: str, version: str) -> PythonMissing:
    """Build the error for an interpreter that is older than the floor."""
    return PythonMissing(
        f"{target.name}: {program} is Python {version}, which is older than {_FLOOR}",
        hint=f"install Python {_FLOOR} or newer and set ansible_python_interpreter to it, or to `auto`",
    )
