# SPDX-License-Identifier: Apache-2.0
"""One host for the length of a command: its connection, with the agent and libvirt over it, opened on first use."""

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
    from vgpuctl.hosts.agent_client import AgentClient
    from vgpuctl.hosts.connection import Connection
    from vgpuctl.model.rehearsal import Rehearsal


class HostSession:
    """One host for the length of a command: one SSH connection that carries the agent and libvirt."""

    def __init__(
        self,
        name: str,
        connection: "Connection",
        open_agent: Callable[["Connection"], "AgentClient"],
        open_hypervisor: Callable[[str, str], "Hypervisor"],
        *,
        rehearsal: "Rehearsal | None" = None,
    ) -> None:
        self._rehearsal = rehearsal
        self.name = name
        self.connection = connection
        self._open_agent = open_agent
        self._open_hypervisor = open_hypervisor
        self._agent: AgentClient | None = None
        self._hypervisor: Hypervisor | None = None
        self._opened = contextlib.ExitStack()
        self._opened_libvirt = contextlib.ExitStack()
        self._killed: set[str] = set()
        self._lock = threading.Lock()

    @property
    def agent(self) -> "AgentClient":
        """The agent on this host, started on first use."""
        with self._lock:
            if self._agent is None:
                self._agent = self._open_agent(self.connection)
                self._opened.callback(self._agent.close)
            return self._agent

    @property
    def hypervisor(self) -> "Hypervisor":
        """libvirt on this host, through the same connection, opened on first use and after libvirtd was restarted."""
        return self.require_libvirt()

    def require_libvirt(self) -> "Hypervisor":
        """Open libvirt unless it is open. Raises HostError, GuestError."""
        with self._lock:
            if self._hypervisor is not None and not self._hypervisor.is_alive:
                self._forget_hypervisor()
            if self._hypervisor is None:
                with contextlib.ExitStack() as opening:
                    uri = opening.enter_context(self.connection.libvirt_uri())
                    self._hypervisor = opening.enter_context(self._open_hypervisor(uri, self.name))
                    self._opened_libvirt.enter_context(opening.pop_all())
            return self._hypervisor

    @property
    def killed(self) -> "set[str]":
        """UUIDs of the domains that were killed over this connection, or before libvirt was opened again."""
        return self._killed if self._hypervisor is None else self._killed | self._hypervisor.killed

    def beside(self) -> "HostSession":
        """Another agent and another way to libvirt over the same SSH connection, which never wait for these."""
        return HostSession(
            self.name, self.connection, self._open_agent, self._open_hypervisor, rehearsal=self._rehearsal
        )

    def before(self, change: str) -> None:
        """Called before what only a changed host can answer. change: in words. Raises RehearsalEnds in a dry run."""
        if self._rehearsal is not None:
            self._rehearsal.end(self.name, change)

    def let_go(self) -> None:
        """End agent and libvirt, and leave the connection open. A session that is used again is opened again."""
        self.let_go_of_libvirt()
        with self._lock:
            opened, self._opened = self._opened, contextlib.ExitStack()
            self._agent = None
        opened.close()

    def let_go_of_libvirt(self) -> None:
        """End libvirt alone. It is opened again when it is used again."""
        with self._lock:
            opened, self._opened_libvirt = self._opened_libvirt, contextlib.ExitStack()
            self._forget_hypervisor()
        opened.close()

    def _forget_hypervisor(self) -> None:
        self._killed = self.killed
        self._hypervisor = None

    def close(self) -> None:
        """End agent, libvirt and the connection."""
        with contextlib.ExitStack() as closing:
            closing.callback(self.connection.close)
            closing.callback(self._opened.close)
            closing.callback(self._opened_libvirt.close)
