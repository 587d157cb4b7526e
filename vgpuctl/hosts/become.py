# SPDX-License-Identifier: Apache-2.0
"""How a command is wrapped for the remote shell, with and without sudo, and what sudo's refusals mean."""

import re
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.errors import BecomeFailed, CommandFailed, HostError
from vgpuctl.hosts.shell_line import shell_line
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.secret import Secret

# Printed on stderr at the start of a command, so that one that hangs can be ended from a second channel: sshd passes
# no signal to root's commands. The kernel tells the process group: `$$` is another number where a shell before forked.
_TELL_GROUP = 'read -r _ _ _ _ group _ 2>/dev/null </proc/$$/stat; echo "{}:$group" >&2; '
# In English, because refusals are quoted with a hint.
_START = _TELL_GROUP + "LC_ALL=C; export LC_ALL; exec "
# Under sudo the command may have a process group of its own (use_pty, sudo before 1.9.14).
_ANNOUNCE = _TELL_GROUP.format("$0") + 'exec "$@"'

_SUDO_MISSING = re.compile(rb"sudo.*(?:not found|No such file)")
_WANTS_PASSWORD = "give the user a NOPASSWD rule in /etc/sudoers.d, or set ansible_become_password"
_WANTS_RULE = "give the user a rule in /etc/sudoers.d (visudo -f): `USER ALL=(ALL) NOPASSWD: ALL`"
# Texts of sudo 1.8 to 1.9.17 and of sudo-rs 0.2: they choose the line to quote and the hint, never the verdict.
_HINTS = tuple(
    (re.compile(pattern, re.MULTILINE), hint)
    for pattern, hint in (
        (
            r"^sudo(?:-rs)?: .*must have a tty.*$",
            "sudoers has `requiretty`: add `Defaults:USER !requiretty` in /etc/sudoers.d (visudo -f)",
        ),
        (
            r"^sudo(?:-rs)?: .*(?:no new privileges|must be setuid|effective uid|must be owned by).*$",
            "sudo cannot become root there: see whether /usr/bin/sudo is owned by root with mode 4755, on a file"
            " system without nosuid, and whether sshd's unit sets NoNewPrivileges",
        ),
        (r"^sudo(?:-rs)?: .*(?:unknown (?:user|uid|group)|user '.*' not found).*$", "check ansible_become_user"),
        (
            r"^(?:.* is not in the sudoers file.*|Sorry, user .*|.*(?:may not run sudo|not allowed to run sudo).*"
            r"|sudo(?:-rs)?: I'm sorry .*)$",
            _WANTS_RULE,
        ),
        (
            r"^(?:sudo(?:-rs)?: .*(?:password is required|terminal is required|interactive authentication is required"
            r"|no password was provided|incorrect password|incorrect authentication|[Aa]uthentication failed"
            r"|[Mm]aximum \d+ incorrect).*|Sorry, try again.*)$",
            _WANTS_PASSWORD,
        ),
        (
            r"^sudo(?:-rs)?: .*(?:no valid sudoers|(?:parse|syntax) error|error initializing|unable to initialize).*$",
            "correct the host's /etc/sudoers and /etc/sudoers.d: `visudo -c` names the line",
        ),
        (
            r"^sudo(?:-rs)?: .*(?:account validation|PAM|expired).*$",
            "see the account of the login user on the host: `chage -l USER`, and the PAM service sudo",
        ),
    )
)
_SHOWN_LINES = 20
_SHOWN_PROGRAM = 200


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
    password: Secret[str] | None

    @property
    def prompt(self) -> bytes:
        """Text of sudo's question for the password; sudo-rs puts it in brackets, before a question of its own."""
        return f"{self.marker}-password:".encode()

    def has_started(self, stderr: bytes) -> bool:
        """True if the command runs or ran: without sudo once the login shell has reached it."""
        return self._start_line().search(stderr) is not None

    def has_reached_shell(self, stderr: bytes) -> bool:
        """True if the login shell has run our line."""
        return _marker_line(self.marker).search(stderr) is not None

    def process_groups(self, stderr: bytes) -> list[int]:
        """Return the remote process groups' numbers: the login shell's, then the one under sudo; none before."""
        found = _groups(self.marker, stderr) + _groups(f"{self.marker}-become", stderr)
        return list(dict.fromkeys(found))

    def strip_markers(self, stderr: bytes) -> bytes:
        """Return the command's own stderr; before it has started, that of the login shell and sudo."""
        if self.has_started(stderr):
            return self._start_line().split(stderr, maxsplit=1)[-1]
        question = rb"(?:\[sudo: )?" + re.escape(self.prompt) + rb"(?:\] [^:\n]*: ?)?"
        return re.sub(question, b"\n", _marker_line(self.marker).sub(b"", stderr, count=1))

    def _start_line(self) -> "re.Pattern[bytes]":
        return _marker_line(self.marker if self.become_user is None else f"{self.marker}-become")


def wrap(argv: Sequence[str], target: HostTarget, *, become: bool) -> RemoteCommand:
    """Quote `argv` for the remote shell, under `sudo -n -u USER --` when become.

    With a become password sudo reads it from stdin, and only when it asks: a host that needs none would hand
    the password to the command instead. Under sudo a shell announces the command: no announcement means that sudo
    refused, in whatever words.
    """
    marker = f"vgpuctl-{secrets.token_hex(8)}"
    user = (target.become_user or "root") if become else None
    password = target.become_password if become else None
    inner = list(argv)
    if user is not None:
        how = ["-n"] if password is None else ["-S", "-p", f"{marker}-password:"]
        inner = ["sudo", *how, "-u", user, "--", "/bin/sh", "-c", _ANNOUNCE, f"{marker}-become", *argv]
    line = shell_line(_START.format(marker) + shlex.join(inner))
    return RemoteCommand(tuple(argv), line, marker, user, password)


def shown_program(argv: Sequence[str]) -> str:
    """The program for messages, without its arguments."""
    return f"{argv[0][:_SHOWN_PROGRAM]} …" if len(argv) > 1 else argv[0][:_SHOWN_PROGRAM]


def start_failure(
    target: HostTarget, command: RemoteCommand, exit_status: int, stdout: bytes, stderr: bytes
) -> HostError | None:
    """Return the error when the login shell or sudo did not start the command, None when it ran (and perhaps failed).

    stderr: as received, with the markers.
    """
    if exit_status == -1 or command.has_started(stderr):
        return None
    if not command.has_reached_shell(stderr):
        lines = _lines(stdout + b"\n" + stderr)
        return CommandFailed(
            f"{target.name}: the shell of {target.user or 'the login user'} did not run the command (exit status"
            f" {exit_status}): {lines[-1] if lines else 'it said nothing'}",
            context=lines[-_SHOWN_LINES:],
            hint="see the user's shell (`getent passwd USER` on the host: nologin, a menu or a restricted shell cannot)"
            " and ForceCommand in sshd_config; `ssh USER@HOST id` shows the same",
        )
    if command.become_user is None:
        return None
    shown = command.strip_markers(stderr)
    if exit_status == 127 and _SUDO_MISSING.search(shown):
        return BecomeFailed(
            f"{target.name}: sudo is not installed on the host",
            context=_lines(shown),
            hint="install sudo, or log in as root and leave ansible_become unset",
        )
    return refused_by_sudo(target, command, shown)


def refused_by_sudo(target: HostTarget, command: RemoteCommand, shown: bytes) -> BecomeFailed:
    """Build the error of a refusal; shown: sudo's own words."""
    lines = _lines(shown)
    text = "\n".join(lines)
    matches = ((pattern.search(text), hint) for pattern, hint in _HINTS)
    refusal, hint = next(((found, hint) for found, hint in matches if found), (None, _WANTS_PASSWORD))
    said = refusal[0] if refusal else next((line for line in reversed(lines) if line.startswith("sudo")), None)
    said = said or (lines[-1] if lines else "it said nothing")
    if command.password is not None and hint == _WANTS_PASSWORD:
        hint = "check ansible_become_password and the user's rights in sudoers"
    return BecomeFailed(
        f"{target.name}: sudo did not let {target.user or 'the login user'} become {command.become_user}: {said}",
        context=lines[-_SHOWN_LINES:],
        hint=hint,
    )


def _marker_line(marker: str) -> "re.Pattern[bytes]":
    return re.compile(re.escape(marker).encode() + rb":(\d{0,9})\n")


def _groups(marker: str, stderr: bytes) -> list[int]:
    found = _marker_line(marker).search(stderr)
    return [int(found[1])] if found and found[1] else []


def _lines(data: bytes) -> list[str]:
    return [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
