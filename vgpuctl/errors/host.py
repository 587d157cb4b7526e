# SPDX-License-Identifier: Apache-2.0
"""Errors of one host: its connection, its programs, the agent on it, its layout."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgpuctl.errors.base import VgpuctlError

if TYPE_CHECKING:
    from vgpuctl.agent.wire.problem_codes import ProblemCode
    from vgpuctl.agent.wire.steps import Change


class HostError(VgpuctlError):
    """A host did not do what was asked of it. host: its name, where the one who asked noted it."""

    reference = "host"
    exit_code = 4
    host: str | None = None


class HostUnreachable(HostError):
    """No connection to the host's SSH port."""

    reference = "host-unreachable"


class WayFailed(HostUnreachable):
    """The way to the host fails before the host: this machine's network or resolver, a jump host, a ProxyCommand.

    Or both sides share no algorithm.
    """


class HostKeyUnknown(HostError):
    """The host's key is not in known_hosts."""

    reference = "host-key-unknown"


class HostKeyChanged(HostError):
    """The host's key is another than the one in known_hosts.

    shown: kind and fingerprint of the key that the host showed; None for the key of a jump host.
    """

    reference = "host-key-changed"

    def __init__(
        self,
        message: str,
        *,
        context: Sequence[str] = (),
        hint: str | None = None,
        shown: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(message, context=context, hint=hint)
        self.shown = shown


class WrongHost(HostError):
    """Another host of the inventory answers at the host's address."""

    reference = "wrong-host"


class AuthenticationFailed(HostError):
    """The host refused the user or the keys."""

    reference = "authentication-failed"


class BecomeFailed(HostError):
    """sudo refused on the host."""

    reference = "become-failed"


class PythonMissing(HostError):
    """The host has no Python interpreter where the inventory says."""

    reference = "python-missing"


class LibvirtMissing(HostError):
    """The host has no libvirt, or its daemon does not answer."""

    reference = "libvirt-missing"


class CommandTimedOut(HostError):
    """A command on the host did not end within its time."""

    reference = "command-timed-out"


class CommandFailed(HostError):
    """A command on the host ended with an error."""

    reference = "command-failed"


class TooMuchOutput(HostError):
    """A command on the host sent more than vgpuctl reads of it."""

    reference = "too-much-output"


class AgentBroken(HostError):
    """The agent on the host answered something that is not its protocol."""

    reference = "agent-broken"


class AgentProblem(HostError):
    """The agent refused or failed; `code` is its stable problem code, `done` what it had changed until then."""

    reference = "agent-problem"

    def __init__(
        self,
        code: "ProblemCode",
        message: str,
        *,
        context: Sequence[str] = (),
        hint: str | None = None,
        done: "Sequence[Change]" = (),
    ) -> None:
        super().__init__(message, context=context, hint=hint)
        self.code = code
        self.done = list(done)


class LayoutRefused(HostError):
    """The declared layout is not reached: something stands in its way, or VMs would be disturbed."""

    reference = "layout-refused"


class LayoutDiffers(HostError):
    """The steps were taken, and the host read again is not in its declared layout."""

    reference = "layout-differs"


class RestartFailed(HostError):
    """The host is in its layout, and a service or VM that was stopped for it did not start again."""

    reference = "restart-failed"
