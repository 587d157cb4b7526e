# SPDX-License-Identifier: Apache-2.0
"""Jump hosts are logged in to once for all connections that go through them.

A bastion refuses many logins at once (MaxStartups, PerSourcePenalties), and a token would have to be touched for each.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vgpuctl.byte_budget import ByteBudget
from vgpuctl.errors import HostUnreachable, VgpuctlError, WayFailed
from vgpuctl.hosts.bounds import LASTING_PER_SECOND, MOST_IN_SESSION
from vgpuctl.hosts.ssh_config import Endpoint

if TYPE_CHECKING:
    import paramiko

Chain = tuple[Endpoint, ...]


@dataclass
class _Shared:
    """The login at the last jump host of a chain. users: connections that go through it, or wait for it."""

    budget: ByteBudget
    resources: ExitStack = field(default_factory=ExitStack)
    is_decided: threading.Event = field(default_factory=threading.Event)
    transport: "paramiko.Transport | None" = None
    error: BaseException | None = None
    users: int = 0

    @property
    def is_usable(self) -> bool:
        """False when the login failed or its connection was lost."""
        return not self.is_decided.is_set() or (self.transport is not None and self.transport.is_active())


class JumpHosts:
    """The jump hosts in use. Thread-safe; a jump host is left when the last connection through it is closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[Chain, _Shared] = {}

    @contextmanager
    def through(
        self, chain: Chain, log_in: Callable[[Chain, ExitStack, ByteBudget], "paramiko.Transport"], *, name: str
    ) -> Iterator["paramiko.Transport"]:
        """Yield a transport at the end of a chain of jump hosts, logged in now or by another connection before.

        log_in: logs in at the chain's last jump host; what must be closed later goes on the stack. name: the host
        behind, for errors. One attempt serves everybody who waits for it; its error is theirs, too.
        """
        with self._lock:
            shared = self._shared.get(chain)
            is_ours = shared is None or not shared.is_usable
            if shared is None or is_ours:
                shared = self._shared[chain] = _Shared(ByteBudget(f"jump host {chain[-1].name}", 0))
            shared.users += 1
            shared.budget.widen(MOST_IN_SESSION, LASTING_PER_SECOND)
        try:
            if is_ours:
                self._decide(shared, chain, log_in)
            shared.is_decided.wait()
            if shared.error is not None:
                raise _error_for(name, shared.error) from shared.error
            assert shared.transport is not None
            yield shared.transport
        finally:
            self._leave(chain, shared)

    def _decide(
        self, shared: _Shared, chain: Chain, log_in: Callable[[Chain, ExitStack, ByteBudget], "paramiko.Transport"]
    ) -> None:
        try:
            shared.transport = log_in(chain, shared.resources, shared.budget)
        except BaseException as exc:
            shared.error = exc
            if not isinstance(exc, Exception):
                raise
        finally:
            shared.is_decided.set()

    def _leave(self, chain: Chain, shared: _Shared) -> None:
        with self._lock:
            shared.users -= 1
            is_last = shared.users == 0
            if is_last and self._shared.get(chain) is shared:
                del self._shared[chain]
        if is_last:
            shared.resources.close()


def _error_for(name: str, error: BaseException) -> BaseException:
    """Copy an error for one host: several hosts get it, each in its own thread."""
    if isinstance(error, VgpuctlError):
        kind = WayFailed if isinstance(error, HostUnreachable) else type(error)
        return kind(f"{name}: jump host {error.message}", context=error.context, hint=error.hint)
    return error
