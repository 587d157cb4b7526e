# SPDX-License-Identifier: Apache-2.0
"""Tells a missing, broken or too old Python interpreter from a command that failed."""

from vgpuctl.errors import PythonMissing
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.preparation import PYTHON_FLOOR

# Runs on every Python since 2.6, so that an old one can be named.
VERSION_PROGRAM = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"

_HINT = "install python3 on the host, or set ansible_python_interpreter to where it is"


def python_failure(target: HostTarget, exit_status: int, stderr: bytes) -> PythonMissing | None:
    """Return the error when `exit_status` says that the interpreter could not be started, else None.

    127: the shell (or sudo) found no such program. 126: found, but not executable.
    """
    if exit_status not in (126, 127):
        return None
    what = "was not found" if exit_status == 127 else "cannot be executed"
    return PythonMissing(
        f"{target.name}: the Python interpreter {target.python_interpreter} {what}",
        context=stderr.decode("utf-8", "replace").splitlines()[-5:],
        hint=_HINT,
    )


def python_version(target: HostTarget, exit_status: int, stdout: bytes, stderr: bytes) -> tuple[int, int]:
    """Read what VERSION_PROGRAM printed. Raises PythonMissing for none, a broken or a too old one."""
    failure = python_failure(target, exit_status, stderr)
    if failure is not None:
        raise failure
    major, _, minor = stdout.decode("ascii", "replace").strip().partition(".")
    if exit_status != 0 or not (major.isdigit() and minor.isdigit()):
        raise PythonMissing(
            f"{target.name}: {target.python_interpreter} does not work as a Python interpreter "
            f"(exit status {exit_status})",
            context=stderr.decode("utf-8", "replace").splitlines()[-5:],
            hint=_HINT,
        )
    version = (int(major), int(minor))
    if version < PYTHON_FLOOR:
        floor = ".".join(str(part) for part in PYTHON_FLOOR)
        raise PythonMissing(
            f"{target.name}: {target.python_interpreter} is Python {major}.{minor}, which is older than {floor}",
            hint=f"install Python {floor} or newer and set ansible_python_interpreter to it",
        )
    return version
