# SPDX-License-Identifier: Apache-2.0
"""label-vm: set and remove labels of VMs, also of those that wait in the queue. Only the store is changed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.errors import NotFound, StateError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.labels import LabelChange, Labels, check_labels
from vgpuctl.model.vm import Vm, VmRequest, printed_name
from vgpuctl.store.store import Session
from vgpuctl.usecases.placement.queued_vms import QueuedVm
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class LabelledVm:
    """A VM with its labels after the change. changed: False if it had them before."""

    tenant: str
    name: str
    changed: bool
    labels: dict[str, str]

    @property
    def printed_name(self) -> str:
        """Its name in messages: `acme/web-1`."""
        return printed_name(self.tenant, self.name)


def label_vms(
    services: Services, vms: Sequence[Vm], queued: Sequence[QueuedVm], change: LabelChange, *, overwrites: bool
) -> list[LabelledVm]:
    """Change the labels of all these VMs, or of none of them.

    Raises StateError for a label that has another value, unless overwrites; UsageError for too many labels; NotFound
    for a VM that was just deleted; ConcurrentChange for a queued VM that a controller starts now.
    """
    with services.store.transaction() as session:
        return [
            *(_label_vm(session, vm, change, overwrites=overwrites) for vm in vms),
            *(_label_queued(session, one, change, overwrites=overwrites) for one in queued),
        ]


def declare_labels(services: Services, vm: Vm, labels: Labels) -> bool:
    """Give a VM the labels of a tenant's file, and no others. Returns True if it had other ones."""
    with services.store.transaction() as session:
        return _set(session, vm, labels)


def describe_labels(labels: Labels) -> str:
    """Labels as a line of text."""
    return ", ".join(map("=".join, labels)) or "none"


def _label_vm(session: Session, vm: Vm, change: LabelChange, *, overwrites: bool) -> LabelledVm:
    now = session.vm(vm.request.tenant, vm.request.name)
    if now is None:
        raise NotFound(f"VM {vm.printed_name} was just deleted", hint="see `vgpuctl list-vms`")
    labels = _changed(now.request, change, overwrites=overwrites)
    return LabelledVm(now.request.tenant, now.request.name, _set(session, now, labels), dict(labels))


def _set(session: Session, vm: Vm, labels: Labels) -> bool:
    before = vm.request.labels
    if before == labels:
        return False
    session.set_vm_labels(vm.uuid, labels)
    session.add_vm_event(EventKind.VM_LABELLED, vm, before=_values(before), after=_values(labels))
    return True


def _label_queued(session: Session, queued: QueuedVm, change: LabelChange, *, overwrites: bool) -> LabelledVm:
    entry = session.queued(queued.tenant, queued.name)
    if entry is None:
        raise NotFound(f"VM {queued.printed_name} has just left the queue", hint="see `vgpuctl list-vms`")
    request = next(one for one in entry.requests if one.name == queued.name)
    labels = _changed(request, change, overwrites=overwrites)
    if request.labels != labels:
        others = [replace(one, labels=labels) if one.name == request.name else one for one in entry.requests]
        session.set_queued_requests(entry, others)
        session.add_event(
            EventKind.VM_LABELLED,
            queued.printed_name,
            tenant=queued.tenant,
            before=_values(request.labels),
            after=_values(labels),
        )
    return LabelledVm(queued.tenant, queued.name, request.labels != labels, dict(labels))


def _changed(request: VmRequest, change: LabelChange, *, overwrites: bool) -> Labels:
    name = printed_name(request.tenant, request.name)
    replaced = change.replaced(request.labels)
    if replaced and not overwrites:
        raise StateError(
            f"VM {name} has the label {', '.join(replaced)} already", hint="--overwrite replaces its value"
        )
    labels = change.of(request.labels)
    check_labels(labels, what=f"VM {name}")
    return labels


def _values(labels: Labels) -> dict[str, list[str]]:
    return {"labels": list(map("=".join, labels))}
