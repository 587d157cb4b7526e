# SPDX-License-Identifier: Apache-2.0
"""Licences of running guests, by the host's NVML: an event when one is lost, and when the guest has one again."""

from collections.abc import Iterable, Mapping, Sequence

from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.model.event import EventFilter
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.faults import FaultId, remedy_of
from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import printed_name
from vgpuctl.sharing.measured import join_leases
from vgpuctl.store.store import Session, Store

LICENSED, LOST = "licensed", "unlicensed"


class LicenceWatch:
    """The licences from look to look. A restart, or a second process, writes no event a second time."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._noted: dict[str, str] = {}

    def look(self, store: Store, readings: Mapping[str, HostReadings], leases: Sequence[Lease]) -> None:
        """Look once, and write the events. A store that may only be read keeps none. Raises StoreError."""
        changed = self._changes(readings, leases)
        if changed and store.read_only_reason is None:
            with store.transaction() as session:
                for lease, state in changed:
                    _tell(session, lease, state)
        self.keep()

    def note(self, session: Session, readings: Mapping[str, HostReadings], leases: Sequence[Lease]) -> None:
        """Look once, and write the events in a transaction; call `keep` after it, or the next look writes them."""
        for lease, state in self._changes(readings, leases):
            _tell(session, lease, state)

    def keep(self) -> None:
        """Remember the last look."""
        self._known = self._noted

    def _changes(self, readings: Mapping[str, HostReadings], leases: Sequence[Lease]) -> list[tuple[Lease, str]]:
        """Each lease whose licence changed, with its NVML state.

        A guest whose driver has not loaded, and one that was not licensed yet, has no licence to lose. Leases that were
        not measured stay as they were.
        """
        changed = []
        live = {lease.id for lease in leases}
        self._noted = {key: value for key, value in self._known.items() if key in live}
        for lease, state in _states(readings, leases):
            now = LICENSED if state == LICENSED else LOST
            before = self._noted.get(lease.id)
            self._noted[lease.id] = now
            if before != now and LICENSED in (before, now):
                changed.append((lease, state))
        return changed


def _states(readings: Mapping[str, HostReadings], leases: Sequence[Lease]) -> Iterable[tuple[Lease, str]]:
    for share in join_leases(leases, readings):
        state = share.measured.label("license_state")
        if state is not None and state.startswith((LICENSED, LOST)):
            yield share.lease, state


def _tell(session: Session, lease: Lease, state: str) -> None:
    """Write the event, unless the last one about this lease says the same; nothing is written of the first licence."""
    subject = printed_name(lease.tenant, lease.vm_name)
    told = session.events(1, EventFilter(subjects=(subject,), kinds=(EventKind.LICENCE_OBSERVED.value,)))
    last = told[-1].after.get("licence") if told and told[-1].evidence.get("lease") == lease.id else None
    now = LICENSED if state == LICENSED else LOST
    if last == now or (last is None and now == LICENSED):
        return
    is_lost = now == LOST
    session.add_event(
        EventKind.LICENCE_OBSERVED,
        subject,
        f"the guest has no licence: {state}" if is_lost else "the guest has its licence again",
        tenant=lease.tenant,
        host=lease.host,
        before={"licence": LICENSED if is_lost else LOST},
        after={"licence": now},
        evidence={
            "lease": lease.id,
            "share": lease.share.vfio_device,
            "state": state,
            **({"remedy": remedy_of(FaultId.VGPU_UNLICENSED)} if is_lost else {}),
        },
    )
