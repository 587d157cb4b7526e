# SPDX-License-Identifier: Apache-2.0
"""exporter: reads the fleet again and again, keeps the history, and has pages of metrics ready for scrapes.

No request opens a connection or waits for the store: what is served was read before, and says how old it is.
"""

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import vgpuctl
from vgpuctl.agent.wire.labelled import collect_rows
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.errors import NotFound, Unexpected, VgpuctlError
from vgpuctl.model.lease import Lease
from vgpuctl.ovn.certificate_ends import certificate_end
from vgpuctl.telemetry import own_metrics as own
from vgpuctl.telemetry.exposition import Page, asks_for_openmetrics, encode, process_families, state_families
from vgpuctl.telemetry.history import History, MeasuredValue
from vgpuctl.telemetry.host_page import host_page, kept_values, telemetry_sources
from vgpuctl.usecases.observed.fleet_reader import FleetReader, HostSnapshot, read_fleet
from vgpuctl.usecases.observed.guest_driver import keep_seen_drivers
from vgpuctl.usecases.observed.network_states import AskedNetworks, ask_networks
from vgpuctl.usecases.observed.states import States, read_states
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.seats.licence_watch import LicenceWatch
from vgpuctl.usecases.telemetry.findings_watch import LOOK_S, MOST_PART, FindingsWatch, page_of
from vgpuctl.usecases.telemetry.measured_resources import kept_seats

_LOGGER = logging.getLogger("vgpuctl.telemetry")
_PRUNE_S = 3600.0
_SHORTEST_STALE_S = 60.0
_JOIN_S = 5.0
NETWORKS_S = 60.0
"""How often OVN's southbound database is asked: its answer grows with the ports of all tenants."""


@dataclass(frozen=True)
class StoreSnapshot:
    """The store as it was last read. at: by its clock; None before the first time. error: of the last attempt."""

    at: float | None = None
    states: States | None = None
    leases: Mapping[str, tuple[Lease, ...]] = field(default_factory=dict)
    page: Page = field(default_factory=Page)
    error: VgpuctlError | None = None


class Exporter:
    """One exporter. Threads may ask for pages at any time while it runs.

    interval_s: between two readings of a host, and of the store. history: the file of the kept readings.
    certificates: the files of the server that serves the pages. refusals: what that server refused, by reason.
    store_only: read no host and keep no history.
    """

    def __init__(
        self,
        services: Services,
        *,
        interval_s: float,
        history: Path,
        certificates: Callable[[], Iterable[Path]] = tuple,
        refusals: Callable[[], Mapping[str, int]] = dict,
        store_only: bool = False,
    ) -> None:
        self._services = services
        self._interval_s = interval_s
        self._stale_s = max(4 * interval_s, _SHORTEST_STALE_S)
        self._history_path = history
        self._certificates = certificates
        self._refusals = refusals
        self._store_only = store_only
        self._certificate_ends: Mapping[str, float] = {}
        self._history: History | None = None
        self._history_error: VgpuctlError | None = None
        self._lock = threading.Lock()
        self._pages: dict[str, tuple[HostSnapshot, Page]] = {}
        self._store = StoreSnapshot()
        self._formats: set[bool] = set()
        self._watch, self._licences = FindingsWatch(), LicenceWatch()
        self._findings = Page()
        self._networks: AskedNetworks | None = None
        self._networks_at: float | None = None
        self._read_once: Mapping[str, HostSnapshot] | None = None
        self._stop = threading.Event()
        self._reader = FleetReader(services, interval_s=interval_s, tell=self._keep)

    @contextlib.contextmanager
    def running(self) -> Iterator["Exporter"]:
        """Read hosts and store during the block. Raises StoreUnusable for a history that cannot be opened."""
        with contextlib.ExitStack() as opened:
            self._services.open_store()
            if not self._store_only:
                self._history = opened.enter_context(History(self._history_path))
                opened.enter_context(self._reader.reading())
            self._read_store()
            thread = threading.Thread(target=self._follow_store, name="exporter-store", daemon=True)
            thread.start()
            opened.callback(thread.join, _JOIN_S)
            opened.callback(self._stop.set)
            yield self

    def read_once(self) -> None:
        """Read the store once for the pages, without the history. Hosts are read too, unless store_only."""
        self._services.open_store()
        names = () if self._store_only else self._services.hosts()
        self._read_once = {one.host: one for one in read_fleet(self._services, names)}
        self._read_store()
        for one in self._read_once.values():
            self._keep(one)

    def snapshots(self) -> Mapping[str, HostSnapshot]:
        """Return the last snapshot of every host, by name."""
        return self._reader.snapshots() if self._read_once is None else self._read_once

    def hosts(self) -> Sequence[str]:
        """Return the names of the hosts that it is for. Raises InventoryError."""
        return self._services.hosts() if self._store_only else tuple(self.snapshots())

    @property
    def store(self) -> StoreSnapshot:
        """The store as it was last read."""
        return self._store

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the page of the fleet, the store and the exporter, and its Content-Type. accept: the request's."""
        self._formats.add(asks_for_openmetrics(accept))
        snapshots = list(self.snapshots().values())
        measures = [self._measures(one) for one in snapshots]
        return encode([*measures, self._findings, self._about(snapshots), self._store.page, self._itself()], accept)

    def store_metrics(self, accept: str) -> tuple[bytes, str]:
        """Return the page of the store and the exporter, without what hosts measured."""
        return encode([self._store.page, self._itself()], accept)

    def tenant_metrics(self, tenants: Iterable[str], accept: str) -> tuple[bytes, str]:
        """Return the series of the fleet and the store that have the label of one of these tenants."""
        pages = [*(self._measures(one) for one in self.snapshots().values()), self._findings, self._store.page]
        return encode([page.of_tenant(tenant) for tenant in sorted(tenants) for page in pages], accept)

    def host_metrics(self, host: str, accept: str) -> tuple[bytes, str]:
        """Return the page of what one host measured. Raises NotFound for a host that is not read."""
        snapshot = self.snapshots().get(host)
        if snapshot is None:
            raise NotFound(f"{host!a} is no host of this exporter", hint="/sd/hosts lists them")
        is_there = snapshot.error is None and self._is_fresh(snapshot)
        success = Page([own.PROBE_SUCCESS.of([((), float(is_there))])])
        return encode([self._measures(snapshot), self._about([snapshot]), success], accept)

    def _measures(self, snapshot: HostSnapshot) -> Page:
        """The page of a host's measures; of a reading that is too old, none: its series end."""
        with self._lock:
            kept = self._pages.get(snapshot.host)
        return kept[1] if kept is not None and self._is_fresh(snapshot) else Page()

    def _age(self, at: float | None) -> float | None:
        return None if at is None else max(0.0, self._services.store.now() - at)

    def _is_fresh(self, snapshot: HostSnapshot) -> bool:
        age = self._age(snapshot.at)
        return age is not None and age <= self._stale_s

    def _about(self, snapshots: Sequence[HostSnapshot]) -> Page:
        """How the readings themselves went."""
        asked = [one for one in snapshots if one.at is not None or one.error is not None]
        read = [one for one in snapshots if one.at is not None and one.readings is not None]
        parts = [row for one in asked for row in collect_rows(one.host, one.readings if one.error is None else None)]
        families = [
            own.COLLECT_SUCCESS.of(parts),
            own.COLLECT_DURATION.of(((one.host,), one.took_s) for one in read),
            own.SNAPSHOT_AGE.of(((one.host,), self._age(one.at) or 0.0) for one in read),
            own.CLOCK_SKEW.of(((one.host,), one.skew_s) for one in read),
        ]
        return Page(families)

    def _itself(self) -> Page:
        store = self._store
        age = self._age(store.at)
        return Page(
            [
                own.EXPORTER_INFO.of([((vgpuctl.__version__,), 1.0)]),
                own.STORE_UP.of([((), float(store.error is None))]),
                *([] if age is None else [own.STORE_AGE.of([((), age)])]),
                own.HISTORY_UP.of([((), float(self._history_error is None))]),
                own.CERTIFICATE_EXPIRY.of(((file,), end) for file, end in self._certificate_ends.items()),
                own.REFUSED_REQUESTS.of(((reason,), number) for reason, number in self._refusals().items()),
                *process_families(),
            ]
        )

    def _keep(self, snapshot: HostSnapshot) -> None:
        """Make the page of a new reading and add it to the history; in the thread of its host."""
        if snapshot.error is not None or snapshot.readings is None or snapshot.at is None:
            return
        leases = self._store.leases.get(snapshot.host, ())
        page = host_page(snapshot.host, snapshot.readings, leases)
        self._prepare(page)
        with self._lock:
            self._pages[snapshot.host] = (snapshot, page)
        self._add_to_history(snapshot.at, kept_values(snapshot.host, snapshot.readings, leases))

    def _prepare(self, page: Page) -> None:
        """Encode a page in the formats that were asked for so far, so that the next scrape need not."""
        for is_openmetrics in tuple(self._formats):
            page.blocks(is_openmetrics=is_openmetrics)

    def _add_to_history(self, at: float, values: Sequence[MeasuredValue]) -> None:
        if self._history is None or not values:
            return
        try:
            self._history.add(at, values)
        except VgpuctlError as error:
            if self._history_error is None:
                self._services.say(f"warning: {error.message}")
            self._history_error = error
        else:
            self._history_error = None

    def _follow_store(self) -> None:
        pruned, look_at = time.monotonic(), -math.inf
        while not self._stop.wait(self._interval_s):
            if self._store_only:
                self._services.follow_inventory()
            self._read_store()
            if (began := time.monotonic()) >= look_at:
                self._look()
                look_at = began + max(LOOK_S, (time.monotonic() - began) / MOST_PART)
            if time.monotonic() - pruned > _PRUNE_S and self._history is not None:
                pruned = time.monotonic()
                with contextlib.suppress(VgpuctlError):
                    self._history.prune(self._services.store.now())

    def _look(self) -> None:
        """Look at licences, and at the history for findings. Where that fails, the findings' series end."""
        if self._history is None:
            return
        leases = [lease for of_host in self._store.leases.values() for lease in of_host]
        try:
            store = self._services.open_store()
            readings = self._readings()
            self._licences.look(store, readings, leases)
            keep_seen_drivers(self._services, readings)
            hosts = frozenset(self._services.inventory.select(None))
            self._findings = page_of(self._watch.look(store, self._history, store.now(), leases, hosts))
        except VgpuctlError as error:
            self._findings = Page()
            _LOGGER.warning("findings", extra={"fields": {"error": error.message}})
        except Exception:
            self._findings = Page()
            _LOGGER.error("unexpected error", exc_info=True)

    def _read_certificates(self) -> None:
        authority = self._services.authority
        files = [*self._certificates(), *(() if authority is None else authority.certificates())]
        ends = {str(file): certificate_end(file) for file in files}
        self._certificate_ends = {file: end for file, end in ends.items() if end is not None}

    def _ask_networks(self) -> AskedNetworks | None:
        """What OVN's southbound database says of ports and members, at most a minute ago."""
        if self._networks_at is None or time.monotonic() - self._networks_at > NETWORKS_S:
            self._networks, self._networks_at = ask_networks(self._services), time.monotonic()
        return self._networks

    def _readings(self) -> dict[str, HostReadings]:
        """The readings of every host whose last one is not too old."""
        return {
            name: one.readings
            for name, one in self.snapshots().items()
            if one.readings is not None and one.error is None and self._is_fresh(one)
        }

    def _read_store(self) -> None:
        """Read every state. A store that cannot be read keeps what was read before, with its age."""
        snapshots = self.snapshots()
        with self._lock:
            for host in set(self._pages) - set(snapshots):
                del self._pages[host]
        readings = self._readings()
        try:
            self._read_certificates()
            networks = self._ask_networks()
            store = self._services.open_store()
            with store.reading() as session:
                states = read_states(
                    session,
                    self.hosts(),
                    readings=readings,
                    snapshots=snapshots,
                    inventory=self._services.inventory,
                    networks=networks,
                    is_read_only=store.read_only_reason is not None,
                )
        except VgpuctlError as failure:
            error = failure
        except Exception as failure:
            _LOGGER.error("unexpected error", exc_info=True)
            error = Unexpected.of(failure, where="store: ")
        else:
            self._take(states, readings)
            return
        if self._store.error is None:
            self._services.say(f"warning: the store cannot be read: {error.message}")
        self._store = replace(self._store, error=error)

    def _take(self, states: States, readings: Mapping[str, HostReadings]) -> None:
        """Make the page of states that were read, and the pages of hosts whose leases have changed."""
        leases: dict[str, tuple[Lease, ...]] = {}
        for lease in states.leases:
            leases[lease.host] = (*leases.get(lease.host, ()), lease)
        before = self._store.leases
        page = Page([*state_families(states.items()), telemetry_sources(states.vms, states.leases, readings)])
        self._prepare(page)
        self._store = StoreSnapshot(states.at, states, leases, page)
        self._add_to_history(states.at, kept_seats(states))
        self._renew({host for host in {*leases, *before} if leases.get(host) != before.get(host)})

    def _renew(self, hosts: Iterable[str]) -> None:
        """Make the pages of hosts again whose leases have changed."""
        for host in hosts:
            with self._lock:
                kept = self._pages.get(host)
            if kept is None or kept[0].readings is None:
                continue
            page = host_page(host, kept[0].readings, self._store.leases.get(host, ()))
            self._prepare(page)
            with self._lock:
                if self._pages.get(host) is kept:
                    self._pages[host] = (kept[0], page)
