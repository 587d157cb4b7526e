# SPDX-License-Identifier: Apache-2.0
"""Watch of the claimed hosts: a thread per host asks it, one thread records all answers in the store.

A host is asked for its domains every LOOK_S and at each of libvirt's events, and read as a whole every READ_S. A host
that hangs keeps its own thread waiting and no other; after ANSWER_S without an answer it is recorded as unreachable.
The recorded state decides which VMs start again (bring_back.py), in the same thread of the host.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.health import HostHealth
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.errors import (
    AgentBroken,
    AgentProblem,
    CommandTimedOut,
    GuestError,
    HostError,
    InventoryError,
    LibvirtMissing,
    PythonMissing,
    StoreNotTheSame,
    Unexpected,
    VgpuctlError,
)
from vgpuctl.guests.facts.domain_facts import NamedState
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthPolicy
from vgpuctl.model.vm import Vm
from vgpuctl.usecases.declared.layout_comparison import compare_facts
from vgpuctl.usecases.domain.promises import Findings, look_at_promises
from vgpuctl.usecases.operate.bring_back import OFF, bring_back
from vgpuctl.usecases.operate.division import BEAT_S, Division
from vgpuctl.usecases.operate.network_watch import NOTHING_COUNTED, NetworkCounts, NetworkWatch
from vgpuctl.usecases.operate.sighting import Sighting, note_sighting
from vgpuctl.usecases.running.services import HostSession, Services
from vgpuctl.usecases.seats.licence_watch import LicenceWatch
from vgpuctl.usecases.share.partitions import find_unsettled, settle

LOOK_S = 10.0
READ_S = 20.0
ANSWER_S = 15.0
RECORD_S = 0.5
_LOGGER = logging.getLogger("vgpuctl.watch")
Answer = TypeVar("Answer")
_SPREAD_S = 0.05
_PAUSE_S = LOOK_S / 2
"""The pause between two looks at a host that needs long to answer."""
_JOIN_S = 5.0


@contextlib.contextmanager
def watching(services: Services, stop: threading.Event) -> Iterator[None]:
    """Watch this controller's part of the hosts during the block, which ends soon after `stop` is set.

    Raises InventoryError without a host to watch. Another store in the place of this one, or one that a newer
    vgpuctl has upgraded, sets `stop`, and StoreNotTheSame is raised at the end of the block.
    """
    services.hosts()
    services.open_store()
    watch = _Watch(services, stop)
    thread = threading.Thread(target=watch.run, name="host-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_JOIN_S)
    if watch.refusal is not None:
        raise watch.refusal


class _Watch:
    """All watched hosts of this controller, and the thread that writes the store for them."""

    def __init__(self, services: Services, stop: threading.Event) -> None:
        self._services = services
        self._stop = stop
        self._division = Division(time.monotonic)
        self._sightings: queue.SimpleQueue[Sighting] = queue.SimpleQueue()
        self._hosts: dict[str, _HostWatch] = {}
        self._licences: dict[str, LicenceWatch] = {}
        self._beat_at = -BEAT_S
        self.refusal: StoreNotTheSame | None = None
        """The reason why this vgpuctl may not go on."""

    def run(self) -> None:
        """Record what the hosts answer until `stop` is set, then give the hosts to other controllers.

        While the store cannot be written, the last sighting of each host waits.
        """
        late: list[Sighting] = []
        said = None
        while not self._stop.is_set():
            late += self._taken()
            try:
                if self._record(late):
                    said = None
                late = []
            except StoreNotTheSame as error:
                self.refusal = error
                self._stop.set()
            except VgpuctlError as error:
                late = list({one.host: one for one in late}.values())
                if error.message != said:
                    said = error.message
                    self._services.say(f"the hosts are recorded later: {said}")
            except Exception:
                late = []
                _LOGGER.error("unexpected error", exc_info=True)
            self._stop.wait(RECORD_S)
        for host in self._hosts.values():
            host.end()
        if self.refusal is not None:
            return  # the others take the hosts when this one has been silent for long enough
        with contextlib.suppress(VgpuctlError), self._services.store.transaction() as session:
            self._division.end(session)

    def _taken(self) -> list[Sighting]:
        """The sightings since the last time, and one of each host whose answer is overdue."""
        taken = [host.silence() for host in self._hosts.values() if host.is_silent()]
        with contextlib.suppress(queue.Empty):
            while True:
                taken.append(self._sightings.get_nowait())
        return taken

    def _record(self, sightings: Sequence[Sighting]) -> bool:
        """Beat and record in one transaction; what hosts answered that others have claimed by now is left out.

        Returns whether there was anything to write.
        """
        is_beat = time.monotonic() - self._beat_at >= BEAT_S
        if not is_beat and not sightings:
            return False
        if is_beat:
            self._services.store.require_same()
            self._services.follow_inventory()
        claimed: Collection[str] = self._hosts
        with self._services.store.transaction() as session:
            if is_beat:
                claimed = self._division.beat(session, self._services.hosts())
            for one in sightings:
                if one.host in claimed:
                    note_sighting(session, one, self._licences.setdefault(one.host, LicenceWatch()))
        if is_beat:
            self._beat_at = time.monotonic()
            self._serve(claimed)
        for one in sightings:
            if one.readings is not None and one.host in self._licences:
                self._licences[one.host].keep()
            one.recorded.set()
        return True

    def _serve(self, claimed: Collection[str]) -> None:
        """Watch exactly the claimed hosts."""
        for name in set(self._hosts) - set(claimed):
            self._hosts.pop(name).end()
            self._licences.pop(name, None)
        for number, name in enumerate(sorted(set(claimed) - set(self._hosts))):
            self._hosts[name] = _HostWatch(
                self._services, name, self._sightings, self._stop, delay_s=number * _SPREAD_S
            )


class _HostWatch:
    """One host, with a thread and a session of its own beside the one that commands use on the same connection."""

    def __init__(
        self,
        services: Services,
        name: str,
        sightings: "queue.SimpleQueue[Sighting]",
        stop: threading.Event,
        *,
        delay_s: float,
    ) -> None:
        self._services = services
        self._name = name
        self._sightings = sightings
        self._stop = stop
        self._delay_s = delay_s
        self._session: HostSession | None = None
        self._watched: Hypervisor | None = None
        self._wake = threading.Event()
        self._is_ended = False
        self._asked_at: float | None = None
        self._is_told = False
        self._took_s = 0.0
        self._read_at: float | None = None
        self._measured: HostReadings | None = None
        self._networks = NetworkWatch(services, self._tell)
        self._boot_id: str | None = None
        self._brought_back: str | None = None
        self._told: dict[str, str] = {}
        self._thread = threading.Thread(target=self._run, name=f"watch-{name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Ask no more. A thread that waits for a host that hangs ends with the wait."""
        self._is_ended = True
        self._wake.set()

    def is_silent(self) -> bool:
        """True once for each question that has been without an answer for too long.

        A host that needed long for its last reading may need twice as long for this one.
        """
        asked_at = self._asked_at
        return asked_at is not None and not self._is_told and time.monotonic() - asked_at > self._limit_s

    def silence(self) -> Sighting:
        """The sighting of no answer."""
        self._is_told = True
        error = CommandTimedOut(f"{self._name}: no answer for {self._limit_s:.0f} s")
        way = self._services.way_to(self._name)
        return Sighting(self._name, time.monotonic() - self._limit_s, way, errors=(error,))

    @property
    def _limit_s(self) -> float:
        return max(ANSWER_S, 2 * self._took_s)

    def _run(self) -> None:
        self._wake.wait(self._delay_s)
        while not self._is_ended:
            self._wake.clear()
            began = self._asked_at = time.monotonic()
            self._is_told = False
            seen = self._look()
            if seen.facts is not None:
                self._took_s = time.monotonic() - began
            elif any(_is_of_whole_host(error) for error in seen.errors):
                self._took_s = 0.0
            self._asked_at = None
            for error in seen.errors:
                if isinstance(error, InventoryError):
                    self._tell("it is not watched", error)
            self._sightings.put(seen)
            if seen.recorded.wait(LOOK_S) and self._may_have_lost(seen):
                _attempt(self._bring_back, self._name, [])
            self._wake.wait(max(LOOK_S - (time.monotonic() - began), _PAUSE_S))
        self._let_go()

    def _may_have_lost(self, seen: Sighting) -> bool:
        """True if VMs may have to start: one is off, or this boot of the host was not brought back yet."""
        if seen.facts is not None:
            self._boot_id = seen.facts.boot_id
        return seen.domains is not None and (
            self._boot_id != self._brought_back or any(one.state in OFF for one in seen.domains.values())
        )

    def _bring_back(self) -> None:
        self._brought_back = bring_back(self._services, self._name, self._stop)

    def _look(self) -> Sighting:
        errors: list[VgpuctlError] = []
        inventory, asked_at = self._services.inventory, time.monotonic()
        facts, domains, layout, health, policy, readings = None, None, None, None, None, None
        networks = NOTHING_COUNTED
        promises: Sequence[tuple[Vm, Findings]] = ()
        self._measured = None
        # Due at this look rather than at the next.
        if self._read_at is None or asked_at - self._read_at > READ_S - LOOK_S / 2:
            facts, health = self._answer(self._read, errors, was_open=self._session is not None) or (None, None)
        if facts is not None:
            layout = self._compared(facts)
            policy = self._health_policy()
            readings = self._licence_readings()
        if not any(_is_of_whole_host(error) for error in errors):
            domains = self._answer(self._domains, errors, was_open=self._watched is not None)
        if facts is not None and domains is not None:
            promises = _attempt(lambda: self._promises(facts, domains), self._name, []) or ()
            networks = _attempt(lambda: self._count(facts, domains), self._name, []) or NOTHING_COUNTED
            self._settle_partitions(facts, domains)
        if self._services.inventory is not inventory:
            errors.clear()  # The host may have another address by now, and its connection was closed.
        way = self._services.way_to(self._name)
        return Sighting(
            *(self._name, asked_at, way, facts, domains, tuple(errors), layout, health, policy, readings),
            promises,
            networks,
        )

    def _compared(self, facts: HostFacts) -> tuple[str, ...] | None:
        """The differences to the declared layout, None where they could not be looked for.

        None are left of a layout that is no longer declared.
        """
        try:
            layout = self._services.inventory.layout(self._name)
            return () if layout is None else compare_facts(self._services, self._name, layout, facts).differences
        except InventoryError as error:
            self._tell("its layout is not compared", error)
            return None

    def _health_policy(self) -> HealthPolicy:
        try:
            return self._services.inventory.health_policy(self._name)
        except InventoryError as error:
            self._tell("the default policy for the health of its GPUs counts", error)
            return DEFAULT_HEALTH_POLICY

    def _licence_readings(self) -> HostReadings | None:
        """The readings of the host's vGPUs, which have their licences; None on a site that counts no licences."""
        try:
            with self._services.store.reading() as session:
                is_counted = bool(session.licence_pools())
            return self._measure() if is_counted else None
        except VgpuctlError as error:
            self._tell("the licences of its guests are not watched", error)
            return None

    def _promises(self, facts: HostFacts, domains: Mapping[str, NamedState]) -> Sequence[tuple[Vm, Findings]]:
        """The findings of each VM's promises."""
        return look_at_promises(self._services, self._open(), facts, domains, self._measure)

    def _count(self, facts: HostFacts, domains: Mapping[str, NamedState]) -> NetworkCounts:
        """What is due of tenants' networks."""
        return self._networks.look(self._open(), facts, domains, self._measure)

    def _measure(self) -> HostReadings:
        """The readings of this look, which are read at the first question."""
        if self._measured is None:
            self._measured = self._open().agent.readings()
        return self._measured

    def _settle_partitions(self, facts: HostFacts, domains: Mapping[str, NamedState]) -> None:
        """Have the partitions active that running VMs need. A restarted Fabric Manager waits 60 s to be told them."""
        running = [uuid for uuid, one in domains.items() if one.state.is_active()]
        try:
            for one in find_unsettled(self._services, self._name, facts, running):
                settle(self._services, self._open(), one)
        except VgpuctlError as error:
            self._tell("the partitions of its NVSwitch fabric could not be set", error)

    def _tell(self, what: str, error: VgpuctlError) -> None:
        """Report a mistake, once until it is another."""
        if self._told.get(what) != error.message:
            self._told[what] = error.message
            self._services.say(f"{self._name}: {what}: {error.message}")

    def _answer(self, work: Callable[[], Answer], errors: list[VgpuctlError], *, was_open: bool) -> Answer | None:
        """Ask the host. A connection that was open and has ended is opened again once before that counts."""
        for is_last in (not was_open, True):
            problems: list[VgpuctlError] = []
            answer = _attempt(work, self._name, problems)
            if not problems:
                return answer
            self._let_go(problems[0])
            if is_last or self._is_ended:
                break
        errors.extend(problems)
        return None

    def _read(self) -> tuple[HostFacts, HostHealth]:
        agent = self._open().agent
        asked_at = time.monotonic()
        answers = agent.facts_and_health()
        self._read_at = asked_at
        return answers

    def _domains(self) -> Mapping[str, NamedState]:
        hypervisor = self._open().hypervisor
        if hypervisor is not self._watched:
            hypervisor.call_on_change(self._wake.set)
            self._watched = hypervisor
        return hypervisor.states()

    def _open(self) -> HostSession:
        if self._session is None:
            self._read_at = None
            self._session = self._services.host(self._name).beside()
        return self._session

    def _let_go(self, error: VgpuctlError | None = None) -> None:
        """End the session. After an error: no more than what failed, or the connection, which commands share."""
        self._watched = None
        if self._session is not None:
            if isinstance(error, LibvirtMissing | GuestError):
                self._session.let_go_of_libvirt()
                return
            session, self._session = self._session, None
            session.let_go()
        if error is not None and _is_of_whole_host(error):
            self._services.forget_host(self._name)


def _is_of_whole_host(error: VgpuctlError) -> bool:
    """True if the error says that neither the agent nor libvirt can be asked."""
    return isinstance(error, HostError) and not isinstance(
        error, (AgentBroken, AgentProblem, LibvirtMissing, PythonMissing)
    )


def _attempt(work: Callable[[], Answer], host: str, errors: list[VgpuctlError]) -> Answer | None:
    """The answer, or None with the error in `errors`. A thread must not end by an error that nobody foresaw."""
    try:
        return work()
    except VgpuctlError as error:
        errors.append(error)
    except Exception as error:
        _LOGGER.error("unexpected error", extra={"fields": {"host": host}}, exc_info=True)
        errors.append(Unexpected.of(error, where=f"{host}: "))
    return None
