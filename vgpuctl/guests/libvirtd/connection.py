# SPDX-License-Identifier: Apache-2.0
"""One connection to a host's libvirt: opening, closing, finding a domain, hearing of changes."""

import contextlib
import errno
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from vgpuctl.errors import GuestError, LibvirtMissing, WayFailed
from vgpuctl.guests.libvirt_errors import answer_of, error_code, libvirt_module, translate, translated
from vgpuctl.guests.libvirtd.event_loop import ensure_event_loop
from vgpuctl.guests.libvirtd.rehearsed import RehearsedObject
from vgpuctl.logs import timed
from vgpuctl.model.libvirt_units import hint_of
from vgpuctl.model.rehearsal import Rehearsal

_KEEP_ALIVE_S = 10
_KEEP_ALIVE_COUNT = 6


class LibvirtConnection:
    """libvirt on one host, as a context manager. `host` names it in messages.

    uuid, where a method takes one: a domain of the name with another UUID counts as not there.
    rehearsal: of a dry run, which makes no change.
    """

    def __init__(
        self,
        uri: str,
        *,
        host: str | None = None,
        check: Callable[[str], None] | None = None,
        rehearsal: Rehearsal | None = None,
    ) -> None:
        self.uri = uri
        self._check = check
        self._rehearsal = rehearsal
        self.host = host or uri
        self._connection: Any = None
        self._watch: int | None = None

    def __enter__(self) -> Self:
        """Open the connection. Raises LibvirtMissing."""
        library = libvirt_module()
        ensure_event_loop()
        try:
            with timed("libvirt-open", host=self.host):
                self._connection = library.open(self.uri)
            # A dead peer ends a call after a minute instead of never; drivers inside this process have no peer.
            with contextlib.suppress(library.libvirtError):
                self._connection.setKeepAlive(_KEEP_ALIVE_S, _KEEP_ALIVE_COUNT)
        except library.libvirtError as refused:
            if refused.get_int1() in (errno.EMFILE, errno.ENFILE):
                raise WayFailed(
                    f"libvirt on {self.host} was not asked: {answer_of(refused)}",
                    hint="raise this machine's limit of open files (`ulimit -n`), or lower --forks",
                ) from refused
            raise LibvirtMissing(
                f"libvirt on {self.host} does not answer: {answer_of(refused)} (libvirt error {error_code(refused)})",
                hint=hint_of(answer_of(refused)),
            ) from refused
        if self._check is not None:
            try:
                with translated(f"read the name of {self.host}"):
                    hostname = self._connection.getHostname()
                self._check(hostname)
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        connection, self._connection = self._connection, None
        try:
            if self._watch is not None:
                connection.unregisterCloseCallback()
                connection.domainEventDeregisterAny(self._watch)
        except libvirt_module().libvirtError:
            pass  # The transport may be gone already, and with it what was registered.
        try:
            connection.close()
        except libvirt_module().libvirtError:
            # The transport may be gone already; nothing is left to close then.
            return

    @property
    def connection(self) -> Any:
        """The virConnect, for this room only."""
        if self._connection is None:
            raise GuestError(f"the connection to libvirt on {self.host} is not open")
        if self._rehearsal is not None:
            return RehearsedObject(self._connection, self.host, self._rehearsal)
        return self._connection

    @property
    def is_alive(self) -> bool:
        """True while the connection works, as far as this side knows. Nothing is asked of the host."""
        return self._connection is not None and self._connection.isAlive() == 1

    def version(self) -> str:
        """Give the version of libvirt on the host, for example `9.0.0`."""
        with translated(f"ask libvirt on {self.host} for its version"):
            number = self.connection.getLibVersion()
        return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"

    def call_on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each event in a domain's life, and when the connection ends.

        It is called in the thread of libvirt's event loop and must return at once. One watcher per connection.
        """
        library = libvirt_module()
        with translated(f"watch the domains on {self.host}"):
            self._watch = self.connection.domainEventRegisterAny(
                None, library.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lambda *_: changed(), None
            )
            self.connection.registerCloseCallback(lambda *_: changed(), None)

    def _find(self, name: str, uuid: str | None = None) -> Any:
        """The domain of the UUID, whatever somebody named it; without a UUID the one of the name. None for none."""
        library = libvirt_module()
        try:
            with timed("libvirt-call", action=f"find domain {name} on {self.host}"):
                if uuid is not None:
                    return self.connection.lookupByUUIDString(uuid)
                return self.connection.lookupByName(name)
        except library.libvirtError as refused:
            if error_code(refused) == library.VIR_ERR_NO_DOMAIN:
                return None
            raise translate(refused, f"find domain {name} on {self.host}") from refused

    def _domain(self, name: str, uuid: str | None = None) -> Any:
        domain = self._find(name, uuid)
        if domain is None:
            raise GuestError(f"{self.host} has no domain {name}", hint="run `vgpuctl repair` to compare store and host")
        return domain
