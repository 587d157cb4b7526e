# SPDX-License-Identifier: Apache-2.0
"""How a command is wrapped for the remote shell, with and without sudo, and what sudo's refusals mean."""

import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.errors import BecomeFailed
from vgpuctl.model.host_target import HostTarget

# The first line on stderr tells the process group, so that a command that hangs can be ended from a second
# channel: sshd passes no signal to root's commands. LC_ALL=C because sudo's refusals are read below.
_START = 'echo "$0:$$" >&2; LC_ALL=C; export LC_ALL; exec "$@"'
_ANNOUNCE = 'echo "$0" >&2; exec "$@"'

_REFUSALS = re.compile(
    rb"^(?:sudo: (?:.*(?:password is required|terminal is required|must have a tty|no password was provided"
    rb"|incorrect password|account validation|unknown user|unknown uid|unknown group|must be setuid"
    rb"|must be owned by|effective uid|no valid sudoers|error initializing|unable to initialize"
    rb"|PAM|parse error|syntax error|no new privileges).*)"
    rb"|Sorry, (?:user|try again).*|.* is not in the sudoers file.*|.*(?:may not run sudo|not allowed to run sudo).*)$",
    re.MULTILINE,
)
_SUDO_MISSING = re.compile(rb"sudo.*(?:not found|No such file)")
_COMMAND_MISSING = re.compile(rb"^sudo: .*: command not found$", re.MULTILINE)
_COMMAND_UNUSABLE = re.compile(rb"^sudo: unable to execute .*$", re.MULTILINE)


@dataclass(frozen=True)
class RemoteCommand:
    """One command as the remote shell gets it.

    marker: unlike anything a program prints; on stderr it leads the process group's number, sudo's prompt and
    the line that says that sudo let the command start.
    """

    argv: tuple[str, ...]
    line: str
    marker: str
    become_user: str | None
    password: str | None

    @property
    def prompt(self) -> bytes:
        """What sudo asks with when it wants the password."""
        return f"{self.marker}-password:".encode()

    @property
    def announcement(self) -> bytes:
        """What is printed on stderr once sudo has let the command start; only where a password is at hand."""
        return f"{self.marker}-become\n".encode()


def wrap(argv: Sequence[str], target: HostTarget, *, become: bool) -> RemoteCommand:
    """Quote `argv` for the remote shell, under `sudo -n -u USER --` when become.

    With a become password sudo reads it from stdin, and only when it asks: a host that needs none would hand
    the password to the command instead.
    """
    marker = f"vgpuctl-{secrets.token_hex(8)}"
    user = (target.become_user or "root") if become else None
    password = target.become_password if become else None
    inner = list(argv)
    if user is not None and password is not None:
        prompt = f"{marker}-password:"
        announce = ["/bin/sh", "-c", _ANNOUNCE, f"{marker}-become"]
        inner = ["sudo", "-S", "-p", prompt, "-u", user, "--", *announce, *argv]
    elif user is not None:
        inner = ["sudo", "-n", "-u", user, "--", *argv]
    line = shlex.join(["/bin/sh", "-c", _START, marker, *inner])
    return RemoteCommand(tuple(argv), line, marker, user, password)


def process_group(command: RemoteCommand, stderr: bytes) -> int | None:
    """Return the remote process group's number, None while it has not been printed."""
    match = re.search(re.escape(command.marker).encode() + rb":(\d+)\n", stderr)
    return int(match[1]) if match else None


def strip_markers(command: RemoteCommand, stderr: bytes) -> bytes:
    """Return what the command itself (or sudo) printed on stderr."""
    if command.password is not None and command.announcement in stderr:
        return stderr.partition(command.announcement)[2]
    shown = re.sub(re.escape(command.marker).encode() + rb":\d+\n", b"", stderr, count=1)
    return shown.replace(command.prompt, b"")


def true_exit_status(command: RemoteCommand, exit_status: int, stderr: bytes) -> int:
    """Return 127 or 126 where sudo says 1 for a command that is missing or cannot be executed."""
    if command.become_user is not None and exit_status == 1:
        if _COMMAND_MISSING.search(stderr):
            return 127
        if _COMMAND_UNUSABLE.search(stderr):
            return 126
    return exit_status


def become_failure(
    target: HostTarget, command: RemoteCommand, exit_status: int, stdout: bytes, stderr: bytes
) -> BecomeFailed | None:
    """Return the error when sudo refused, None when the command itself ran (and perhaps failed).

    stderr: as received, with the markers.
    """
    if command.become_user is None or exit_status in (0, -1) or stdout:
        return None
    shown = strip_markers(command, stderr)
    if exit_status == 127 and _SUDO_MISSING.search(shown):
        return BecomeFailed(
            f"{target.name}: sudo is not installed on the host",
            context=_lines(shown),
            hint="install sudo, or log in as root and leave ansible_become unset",
        )
    if command.password is not None:
        is_refused = command.announcement not in stderr and not _COMMAND_MISSING.search(shown)
    else:
        is_refused = exit_status == 1 and _REFUSALS.search(shown) is not None
    if not is_refused:
        return None
    return refused_by_sudo(target, command, shown)


def refused_by_sudo(target: HostTarget, command: RemoteCommand, shown: bytes) -> BecomeFailed:
    """Build the error of a refusal; shown: sudo's own words."""
    refusal = _REFUSALS.search(shown)
    lines = _lines(refusal[0] if refusal else shown)
    said = lines[-1] if lines else "it said nothing"
    if command.password is not None:
        hint = "check ansible_become_password and the user's rights in sudoers"
    else:
        hint = "give the user a NOPASSWD rule in /etc/sudoers.d, or set ansible_become_password"
    return BecomeFailed(
        f"{target.name}: sudo did not let {target.user or 'the login user'} become {command.become_user}: {said}",
        context=_lines(shown),
        hint=hint,
    )


def _lines(data: bytes) -> list[str]:
    return [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
