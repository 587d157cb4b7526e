# SPDX-License-Identifier: Apache-2.0
"""Services of a use case: inventory, store and one session per host, each opened on first use.

The concrete classes are named in vgpuctl.wiring; here stands only how they are shared and closed.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from vgpuctl.errors import HostUnreachable, InventoryError, UsageError, VgpuctlError
from vgpuctl.model.times import format_duration
from vgpuctl.usecases.running.host_session import HostSession

if TYPE_CHECKING:
    from vgpuctl.agent.wire.facts import HostFacts
    from vgpuctl.hosts.fleet import FleetProgress, HostResult
    from vgpuctl.inventory.load import Inventory
    from vgpuctl.model.node_pool import NodePool
    from vgpuctl.model.rehearsal import Rehearsal
    from vgpuctl.model.way import Way
    from vgpuctl.ovn.authority import Authority
    from vgpuctl.ovn.northbound import Northbound
    from vgpuctl.ovn.southbound import Southbound
    from vgpuctl.ovn.tracing import PacketTracer
    from vgpuctl.store.restore import StorePlace
    from vgpuctl.store.store import Store
    from vgpuctl.usecases.running.cluster_link import ClusterLink
    from vgpuctl.usecases.running.history import PastSource

__all__ = ["HostSession", "Openers", "Services"]

Value = TypeVar("Value")


@dataclass(frozen=True)
class Openers:
    """How each thing that a use case needs is opened on its first use. vgpuctl.wiring names the concrete classes.

    inventory_mark: differs when the files of the inventory do. past: where past readings are. performance: the file of
    the fitted model of throughput. rehearsal: services for a dry run on the same settings, which say nothing.
    """

    inventory: Callable[[], "Inventory"]
    store: Callable[[], "Store"]
    store_place: Callable[[], "StorePlace"]
    session: Callable[["Inventory", str], HostSession]
    northbound: Callable[[], "Northbound"] | None = None
    tracer: "Callable[[], PacketTracer | None]" = lambda: None
    southbound: Callable[[], "Southbound"] | None = None
    authority: Callable[[], "Authority | None"] = lambda: None
    move_authority: "Callable[[], Authority] | None" = None
    inventory_mark: Callable[[], object] = lambda: None
    past: Callable[[], "PastSource | None"] = lambda: None
    performance: Callable[[], Path] = lambda: Path("performance")
    cluster: "Callable[[NodePool], ClusterLink | None]" = lambda _pool: None
    rehearsal: "Callable[[], Services] | None" = None


class Services:
    """Everything a use case may need. `say` tells the user of progress, `watch` shows that of a run over hosts.

    reachable_networks: internal networks that guests of NAT networks may reach. internal_domain: of VMs' names in
    networks that OVN carries; None: they have none. rehearsal: of a dry run. The store forgets every change at the end,
    OVN and hosts are only read, and clusters are not contacted.
    """

    def __init__(
        self,
        opens: Openers,
        *,
        say: Callable[[str], None],
        limit: str | None = None,
        forks: int | None = None,
        watch: "Callable[[FleetProgress], None] | None" = None,
        reachable_networks: tuple[str, ...] = (),
        internal_domain: str | None = None,
        rehearsal: "Rehearsal | None" = None,
    ) -> None:
        self._opens = opens
        self._limit = limit
        self.forks = forks
        self.say = say
        self._watch = watch
        self.doing: dict[str, str] = {}
        """The step at work on a host, in words, by its name."""
        self.read_at: dict[str, float] = {}
        """When this process last read the facts of a host, by `time.monotonic`."""
        self.reachable_networks = reachable_networks
        self.internal_domain = internal_domain
        self.past = opens.past
        self.performance = opens.performance
        self.has_warned_of_store = False
        """True while the user knows that readings are not kept (vgpuctl.usecases.observed.readings)."""
        self._read_mark: object = None
        self._seen_mark: object = None
        self._inventory: Inventory | None = None
        self._store: Store | None = None
        self._northbound: Northbound | None = None
        self._authority: Authority | None = None
        self._move_authority: Authority | None = None
        self._sessions: dict[str, HostSession] = {}
        self._ways: dict[str, Way | None] = {}
        self._closed_at: dict[str, float] = {}
        self._is_ending = False
        self._silent: dict[str, tuple[HostUnreachable, float]] | None = None
        self.rehearsal = rehearsal
        self._clusters: dict[object, ClusterLink | None] = {}
        self._lock = threading.Lock()
        self._store_lock = threading.Lock()
        self._northbound_lock = threading.Lock()

    @property
    def goes_on(self) -> bool:
        """True in a dry run that goes on as if hosts had been changed: use cases leave these changes out."""
        return self.rehearsal is not None and self.rehearsal.goes_on

    def require_libvirt(self, host: str) -> None:
        """Raise HostError or GuestError unless a host and its libvirt answer.

        A dry run asks this in place of each change of a domain or network that it leaves out.
        """
        self.host(host).require_libvirt()

    def leave_out(self, host: str, text: str, change: "Callable[[HostFacts], HostFacts] | None" = None) -> None:
        """In a dry run that goes on: note a change of a host's libvirt instead of making it.

        change: gives the host's facts as they are after it. Raises HostError or GuestError where no libvirt answers.
        """
        assert self.rehearsal is not None
        self.require_libvirt(host)
        self.rehearsal.would(host, text)
        if change is not None:
            self.rehearsal.leave_out(host, change)

    def say_done(self, subject: str, done: str) -> None:
        """Say what was done, such as `deleted`; a dry run that goes on past it says that it would be."""
        self.say(f"{subject}: {'would be ' if self.goes_on else ''}{done}")

    @contextlib.contextmanager
    def rehearsed(self) -> "Iterator[Services]":
        """Services for a dry run that goes on, of which nothing is kept at the end of the block."""
        if self.rehearsal is not None:
            with self.store.forgetting(), self.rehearsal.forgetting():
                yield self
            return
        assert self._opens.rehearsal is not None
        with self._opens.rehearsal() as services:
            yield services

    @property
    def inventory(self) -> "Inventory":
        """The inventory, read on first use; the user is told what is odd about its hosts and groups."""
        return self._require_inventory()

    def _require_inventory(self) -> "Inventory":
        if self._inventory is None:
            self._read_mark = self._opens.inventory_mark()
            self._inventory = self._opens.inventory()
            self._warn_of_inventory()
        return self._inventory

    def _warn_of_inventory(self) -> None:
        for warning in self._inventory.structure_warnings if self._inventory is not None else ():
            self.say(f"warning: {warning}")

    def follow_inventory(self) -> None:
        """Read the inventory again when its files have changed since, and no more since the call before.

        One that cannot be read for all its hosts is reported and not used. Connections are closed to hosts that have
        another address or login now.
        """
        mark = self._opens.inventory_mark()
        is_steady, self._seen_mark = mark == self._seen_mark, mark
        if not is_steady or self._inventory is None or mark == self._read_mark:
            return
        self._read_mark = mark
        try:
            inventory = self._opens.inventory()
            inventory.require_readable(self._select(inventory))
        except InventoryError as error:
            self.say(f"the changed inventory is not used: {error.message}")
            return
        self._inventory = inventory
        self.say("the inventory was read again: it has changed")
        self._warn_of_inventory()
        known = set(inventory.hosts())
        for name, session in list(self._sessions.items()):
            if name not in known or inventory.target(name) != session.connection.target:
                self.forget_host(name)

    @property
    def store(self) -> "Store":
        """The store, opened on first use."""
        return self.open_store()

    def open_store(self) -> "Store":
        """Open the store unless it is open. Call it before a fan-out, whose threads share the open store."""
        with self._store_lock:
            if self._store is None:
                self._store = self._opens.store()
                if self.rehearsal is not None:
                    self._store.rehearse(of_reader=self.rehearsal.of_reader)
            return self._store

    def open_for_threads(self) -> None:
        """Open what threads of a fan-out share: the store and the inventory. Raises the errors of both."""
        self.open_store()
        self._require_inventory()

    @property
    def store_place(self) -> "StorePlace":
        """Where the store is, or will be."""
        return self._opens.store_place()

    @property
    def has_northbound(self) -> bool:
        """True if OVN's northbound database was named."""
        return self._opens.northbound is not None

    @property
    def northbound(self) -> "Northbound":
        """OVN's northbound database, opened on first use. Raises UsageError when none was named."""
        return self.require_northbound()

    def require_northbound(self) -> "Northbound":
        """Connect to OVN's northbound database unless it is connected. Raises UsageError when none was named."""
        with self._northbound_lock:
            if self._northbound is None:
                if self._opens.northbound is None:
                    raise UsageError(
                        "this needs OVN, and its northbound database was not named",
                        hint="set VGPUCTL_OVN_NORTHBOUND, for example to unix:/run/ovn/ovnnb_db.sock",
                    )
                self._northbound = self._opens.northbound().__enter__()
            return self._northbound

    @property
    def tracer(self) -> "PacketTracer | None":
        """Traces packets through OVN; None where its southbound database was not named. Raises UsageError."""
        return self._opens.tracer()

    @property
    def has_southbound(self) -> bool:
        """True if OVN's southbound database was named."""
        return self._opens.southbound is not None

    @property
    def southbound(self) -> "Southbound":
        """OVN's southbound database, which is only read. Raises UsageError when none was named."""
        if self._opens.southbound is None:
            raise UsageError(
                "OVN's southbound database was not named",
                hint="set VGPUCTL_OVN_SOUTHBOUND, for example to unix:/run/ovn/ovnsb_db.sock",
            )
        return self._opens.southbound()

    @property
    def authority(self) -> "Authority | None":
        """Our own authority for OVN's certificates; None where the operator has another."""
        with self._lock:
            if self._authority is None:
                self._authority = self._opens.authority()
            return self._authority

    @property
    def move_authority(self) -> "Authority | None":
        """Our own authority for moves over TLS, made where there is none; None for services that may issue nothing."""
        with self._lock:
            if self._move_authority is None and self._opens.move_authority is not None:
                self._move_authority = self._opens.move_authority()
                self._move_authority.create()
            return self._move_authority

    def hosts(self) -> Sequence[str]:
        """Names of the hosts this command may use: the inventory's, narrowed by --limit.

        Raises InventoryError when there is none.
        """
        return self._select(self.inventory)

    def _select(self, inventory: "Inventory") -> Sequence[str]:
        names = inventory.select(self._limit)
        if not names:
            limited = f" that fits --limit {self._limit!r}" if self._limit else ""
            raise InventoryError(f"the inventory has no host{limited}", hint="see `vgpuctl show-inventory`")
        return names

    def host(self, name: str) -> HostSession:
        """The session of one host of the inventory (whatever --limit says).

        Raises InventoryError when the inventory does not know the host; HostUnreachable, within `asking_once`, when it
        was silent.
        """
        with self._lock:
            if self._silent is not None and name in self._silent:
                error, at = self._silent[name]
                tried = f"it was tried {format_duration(time.monotonic() - at)} ago, and is not asked again for each VM"
                raise type(error)(error.message, context=[*error.context, tried], hint=error.hint) from error
            if name not in self._sessions:
                self._sessions[name] = self._opens.session(self.inventory, name)
            return self._sessions[name]

    @contextlib.contextmanager
    def asking_once(self) -> "Iterator[None]":
        """Within this block, a host noted by `note_silent` is not waited for again. For the VMs of one command."""
        before, self._silent = self._silent, {} if self._silent is None else self._silent
        try:
            yield
        finally:
            self._silent = before

    def note_silent(self, name: str, error: VgpuctlError) -> None:
        """Note within `asking_once` that a host gave no answer; an error of another kind or host says nothing."""
        if self._silent is not None and isinstance(error, HostUnreachable) and error.message.startswith(f"{name}: "):
            self._silent.setdefault(name, (error, time.monotonic()))

    def on_hosts(self, names: Sequence[str], work: Callable[[str], Value]) -> "list[HostResult[Value]]":
        """Call `work(name)` for every host, at most `forks` at a time, and show the progress; see `run_on_hosts`.

        Hosts that are waited for are shown with what they are `doing`.
        """
        from vgpuctl.hosts.fleet import FleetProgress, run_on_hosts

        def show(progress: FleetProgress) -> None:
            at_work = (f"{one} ({self.doing[one]})" if one in self.doing else one for one in progress.at_work)
            if self._watch is not None:
                self._watch(replace(progress, at_work=tuple(at_work)))

        self.doing.clear()
        return run_on_hosts(names, work, forks=self.forks, watch=show)

    def in_turn(self, items: Sequence[Value], noun: str) -> "Iterator[Value]":
        """Yield the items, and show how many of them are done. noun: what they are, such as `VM`."""
        from vgpuctl.hosts.fleet import FleetProgress

        began = time.monotonic()

        def show(done: int, *, is_over: bool) -> None:
            if self._watch is not None:
                self._watch(FleetProgress(len(items), done, 0, (), time.monotonic() - began, is_over, noun))

        try:
            for done, item in enumerate(items):
                show(done, is_over=False)
                yield item
        finally:
            show(len(items), is_over=True)

    def cluster_link(self, pool: "NodePool") -> "ClusterLink | None":
        """The way to the cluster of a pool; None where nobody gave one: no kubeconfig, no slurm.conf.

        Raises StoreUnusable without the key of the pool's secrets, ClusterError and UsageError for an unusable way.
        A rehearsal has no way to any cluster.
        """
        if self.rehearsal is not None:
            return None
        key = (pool.tenant, pool.cluster, pool.role.is_kubernetes, pool.join.kubeconfig)
        with self._lock:
            if key in self._clusters:
                return self._clusters[key]
        with self.store.reading() as session:
            pool = session.with_pool_secrets(pool)
        link = self._opens.cluster(pool)
        with self._lock:
            return self._clusters.setdefault(key, link)

    def check_cluster(self, pool: "NodePool") -> None:
        """Refuse what a pool says of the way to its cluster; the cluster is not asked. pool: with its secrets.

        Raises UsageError.
        """
        link = self._opens.cluster(pool)
        if link is not None:
            link.close()

    def is_connected(self, name: str) -> bool:
        """True if the SSH connection of a host was opened by this command and still works."""
        session = self._sessions.get(name)
        return session is not None and session.connection.is_open

    def way_to(self, name: str) -> "Way | None":
        """The way by which this command asked a host last; None where its settings lead nowhere, or nobody asked."""
        session = self._sessions.get(name)
        return self._ways.get(name) if session is None else session.connection.way

    def forget_host(self, name: str) -> None:
        """Close a session that failed or is done, so that the next use connects again."""
        with self._lock:
            session = self._sessions.pop(name, None)
            if session is not None:
                self._ways[name] = session.connection.way
                self._closed_at[name] = time.monotonic()
        if session is not None:
            session.close()

    def has_closed(self, name: str, since: float | None) -> bool:
        """True if this command has closed its connection to a host: what fails there may fail by that alone.

        since: when the host was asked, by `time.monotonic`; None for a moment ago.
        """
        closed_at = self._closed_at.get(name)
        return self._is_ending or (since is not None and closed_at is not None and closed_at >= since)

    def close(self) -> None:
        """Close every session and the store; one that fails does not keep the others open."""
        self._is_ending = True  # threads that an interrupt has left at work meet closed connections
        with contextlib.ExitStack() as closing:
            for opened in (self._store, self._northbound):
                if opened is not None:
                    closing.callback(opened.close)
            for link in self._clusters.values():
                if link is not None:
                    closing.callback(link.close)
            for name in list(self._sessions):
                closing.callback(self.forget_host, name)

    def __enter__(self) -> "Services":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
