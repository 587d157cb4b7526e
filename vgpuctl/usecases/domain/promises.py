# SPDX-License-Identifier: Apache-2.0
"""The three moments in which the promises to a VM's owner are looked at: at its start, by the controller, by check-vm.

vgpuctl/promises compares; witnesses.py asks; promise_record.py keeps what was found.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.errors import GuestError, VgpuctlError
from vgpuctl.guests.facts.domain_facts import DomainState, NamedState
from vgpuctl.model.lease import Lease, LeaseState
from vgpuctl.model.promise import Moment, PromiseFinding, PromiseRow, PromiseVerdict
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.promises.compare import compare, may_wait, with_waiting
from vgpuctl.promises.witnessed import NotLookedAt, NotRunning, Promised, Witnessed
from vgpuctl.store.store import Session
from vgpuctl.usecases.domain import witnesses
from vgpuctl.usecases.observed.capacities import declared_on
from vgpuctl.usecases.observed.observations import note_held
from vgpuctl.usecases.observed.promise_record import known_kept, note_findings, recorded
from vgpuctl.usecases.running.operations import may_run
from vgpuctl.usecases.running.services import HostSession, Services

START_TIMEOUT_S = 20.0
"""Time in which QEMU opens its devices, and ovn-controller carries its ports."""
_PAUSE_S = 0.2
Findings = tuple[PromiseFinding, ...]


def prove_start(
    services: Services, host: HostSession, vm: Vm, leases: Sequence[Lease], *, moment: Moment = Moment.CREATION
) -> Findings:
    """Look at every row of a VM that was just started, until all that can be looked at are kept.

    moment: LOOK for one that has moved while it ran, which NVML knows by then.
    Raises GuestError that names those that are broken after START_TIMEOUT_S.
    """
    running = [replace(lease, state=LeaseState.RUNNING) for lease in leases]
    with services.store.reading() as session:
        promised = _with_declared(services, witnesses.promised_to(session, vm, running))
    deadline = time.monotonic() + START_TIMEOUT_S
    networks = witnesses.ask_networks(host) if promised.interfaces else frozenset[str]()
    while True:
        seen = Witnessed(
            kernel=host.agent.facts() if running else NotLookedAt("it holds no GPU share"),
            nvml=witnesses.ask_nvml(host.agent.readings, promised) if running and moment is Moment.LOOK else (),
            domain=witnesses.ask_domain(host, vm),
            active_networks=networks,
            ports=witnesses.ask_ports(services, promised),
        )
        findings = compare(promised, seen, moment)
        broken = [one for one in findings if one.is_broken]
        if not broken:
            return findings
        if time.monotonic() > deadline:
            raise GuestError(
                f"{vm.printed_name} runs on {vm.host}, but does not have what it was promised",
                context=[f"{one}, by {one.witness}: promised {one.promised}, seen {one.seen}" for one in broken],
                hint=broken[0].remedy,
            )
        time.sleep(_PAUSE_S)


def look_at_promises(
    services: Services,
    host: HostSession,
    facts: HostFacts,
    domains: Mapping[str, NamedState],
    read: Callable[[], HostReadings],
) -> list[tuple[Vm, Findings]]:
    """Look at every row of the VMs that run on a host, but for those that a command works on.

    facts, domains: the host's answers of this look. read: reads NVML, if a VM has a vGPU.
    """
    with services.store.reading() as session:
        busy = {one.subject for one in session.open_operations() if may_run(one)}
        every = [
            (
                _with_declared(services, witnesses.promised_to(session, vm, session.leases(vm_uuid=vm.uuid))),
                known_kept(recorded(session, vm)),
            )
            for vm in session.vms(host=host.name)
            if vm.state is VmState.RUNNING and vm.uuid not in busy and _runs(domains.get(vm.uuid))
        ]
        watched = witnesses.ask_watch(session, host.name)
    networks = witnesses.ask_networks(host) if any(one.interfaces for one, _known in every) else frozenset[str]()
    readings = _once(read)
    found = []
    for promised, known in every:
        seen = Witnessed(
            kernel=facts,
            nvml=witnesses.ask_nvml(readings, promised) if promised.leases else (),
            domain=witnesses.ask_domain(host, promised.vm),
            active_networks=networks,
            ports=witnesses.ask_ports(services, promised),
            watched=watched,
        )
        findings = compare(promised, seen, Moment.LOOK)
        found.append((promised.vm, _with_waiting(host, promised, seen, findings, known)))
    return found


def check_promises(services: Services, vm: Vm, leases: Sequence[Lease], seen: Witnessed) -> Findings:
    """Look at every row. seen: the answers of kernel, NVML and guest; the other witnesses are asked here."""
    with services.store.reading() as session:
        promised = _with_declared(services, witnesses.promised_to(session, vm, leases))
        promised = witnesses.with_places(session, promised)
        known = known_kept(recorded(session, vm))
        seen = replace(seen, watched=witnesses.ask_watch(session, vm.host))
    seen = replace(
        seen,
        ports=witnesses.ask_ports(services, promised),
        carrier=witnesses.ask_carrier(services, promised),
        places=witnesses.ask_places(services, promised),
    )
    try:
        host = services.host(vm.host)
    except VgpuctlError as error:
        silent = NotLookedAt(error.message)
        seen = replace(seen, domain=silent, active_networks=silent, sizes=silent)
        return compare(promised, seen, Moment.CHECK)
    seen = replace(
        seen,
        domain=witnesses.ask_domain(host, vm),
        active_networks=witnesses.ask_networks(host),
        sizes=witnesses.ask_sizes(host, promised),
    )
    return _with_waiting(host, promised, seen, compare(promised, seen, Moment.CHECK), known)


def _with_declared(services: Services, promised: Promised) -> Promised:
    """The same, with the host's layout where compute time was asked for. Raises InventoryError."""
    if not any(one.wants_compute for one in promised.vm.request.gpus):
        return promised
    return replace(promised, declared=declared_on(services, promised.vm.host))


def note_started(session: Session, vm: Vm, findings: Findings) -> None:
    """Record the findings of a VM that was just started or moved, and that it holds its shares, if they say so.

    In the caller's transaction, in which its leases are running.
    """
    note_findings(session, [(vm, findings)], Moment.CREATION)
    held = [one.verdict is PromiseVerdict.KEPT for one in findings if one.row is PromiseRow.GPU_HELD]
    if held and all(held):
        note_held(session, vm)


def _with_waiting(
    host: HostSession,
    promised: Promised,
    seen: Witnessed,
    findings: Findings,
    known: frozenset[tuple[PromiseRow, str, str]],
) -> Findings:
    """Of what is broken in the running domain, ask whether its definition has it for the next start."""
    if isinstance(seen.domain, NotRunning) or not may_wait(findings):
        return findings
    definition = witnesses.ask_definition(host, promised.vm)
    if isinstance(definition, NotLookedAt):
        return findings
    return with_waiting(findings, promised, definition, known)


def _runs(state: NamedState | None) -> bool:
    return state is not None and state.state is DomainState.RUNNING


def _once(read: Callable[[], HostReadings]) -> Callable[[], HostReadings]:
    """The same answer at every call, asked for at the first."""
    answers: list[HostReadings] = []

    def ask() -> HostReadings:
        if not answers:
            answers.append(read())
        return answers[0]

    return ask
