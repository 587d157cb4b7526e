# SPDX-License-Identifier: Apache-2.0
"""VMs that are still to be created and wait in the queue: listed, shown and deleted by their names like other VMs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.model.natural_order import natural_path
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.vm import VmRequest, printed_name
from vgpuctl.store.store import Session
from vgpuctl.usecases.found.find_vms import VmSelection, located
from vgpuctl.usecases.placement.queue import leave_queue
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class QueuedVm:
    """A VM that waits in the queue to be created. state: `queued`. entry: its place in the queue, with its gang."""

    tenant: str
    name: str
    state: str
    request: VmRequest
    entry: QueueEntry
    labels: dict[str, str]

    @property
    def printed_name(self) -> str:
        """Its name in messages: `acme/web-1`."""
        return printed_name(self.tenant, self.name)


def queued_vms(session: Session, tenant: str | None = None) -> list[QueuedVm]:
    """The VMs that the queue is to create, by tenant and name; not those that exist and wait to start again."""
    return created_later(session.queue(), tenant)


def created_later(queue: Sequence[QueueEntry], tenant: str | None = None) -> list[QueuedVm]:
    """The VMs that these entries are to create, by tenant and name."""
    found = [
        QueuedVm(one.tenant, one.name, "queued", one, entry, dict(one.labels))
        for entry in queue
        if not entry.kind.starts_again()
        for one in entry.requests
        if tenant in (None, one.tenant)
    ]
    return sorted(found, key=lambda one: natural_path(one.printed_name))


def find_queued(services: Services, selection: VmSelection) -> tuple[list[QueuedVm], VmSelection]:
    """The queued VMs of a selection, and the selection without the plain names of those.

    A glob that fits queued VMs alone is taken from the selection too.
    """
    selection = located(services, selection)
    names, globs = selection.plain_names(), selection.globs()
    with services.store.reading() as session:
        waiting = queued_vms(session)
        vms = session.vms() if globs else []
    named = {(one.tenant, one.name) for one in waiting} & set(names)
    found = [
        one
        for one in waiting
        if (one.tenant, one.name) in named or any(selection.fits(one.request, glob) for glob in globs)
    ]
    rest = [printed_name(tenant, name) for tenant, name in names if (tenant, name) not in named]
    for glob in () if selection.is_all else globs:
        has_vms = any(selection.fits(vm.request, glob, vm.host) for vm in vms)
        if has_vms or not any(selection.fits(one.request, glob) for one in waiting):
            rest.append("/".join(glob))
    return found, replace(selection, names=tuple(rest))


def leave_each(services: Services, queued: Sequence[QueuedVm]) -> None:
    """Take queued VMs out of the queue, each entry once, with the gangs of which they are."""
    for entry in {one.entry.id: one for one in queued}.values():
        leave_queue(services, entry.tenant, entry.name)
