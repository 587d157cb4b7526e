# SPDX-License-Identifier: Apache-2.0
"""One VM as the store and the last readings know it. No host is contacted."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.readings import VmReadings
from vgpuctl.model.event import Event, EventFilter
from vgpuctl.model.promise import LastFinding
from vgpuctl.model.queue import QueueEntry
from vgpuctl.model.vm import printed_name
from vgpuctl.sharing.measured import MeasuredShare, join_leases
from vgpuctl.usecases.observed.known_promises import known_now
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.telemetry.fleet_view import read_fleet_view
from vgpuctl.usecases.telemetry.serve_web import PageSources
from vgpuctl.usecases.vm.list_vms import ListedVm, list_vms

_OF_VMS = (
    *("vm-*", "lease-*", "share-*", "gpu-*", "promise-*", "framebuffer-*", "contention-*", "licence-*"),
    *("volume-*", "disk-*", "disks-*", "media-*", "nic-*"),
)
"""The kinds of events of VMs; a network of the same name has others."""
_EVENTS = 50


@dataclass(frozen=True)
class VmView:
    """One VM by name. listed: None for one that is deleted, or waits to be created. queued: its entry in the queue.

    shares: its leases with what was measured of each. readings: of the VM itself. events: the last ones, the newest
    first. promises: the last finding of each row. neighbours: the shares of other VMs on its GPUs.
    attention: what is wrong with its host or GPUs, a sentence each.
    """

    tenant: str
    name: str
    listed: ListedVm | None
    queued: QueueEntry | None
    shares: tuple[MeasuredShare, ...]
    readings: VmReadings | None
    events: tuple[Event, ...]
    promises: tuple[LastFinding, ...] = ()
    neighbours: tuple[MeasuredShare, ...] = ()
    attention: tuple[str, ...] = ()


def read_vm_view(sources: PageSources, tenant: str, name: str) -> VmView | None:
    """One VM; None where no VM has or had this name."""
    services = sources.services
    with services.store.reading() as session:
        vm = session.vm(tenant, name)
        queued = session.queued(tenant, name)
        promises = () if vm is None else known_now(session, vm.host).get(vm.uuid, ())
        on_host = [] if vm is None else session.leases(host=vm.host)
    listed = None
    if vm is not None:
        found = list_vms(services, tenant=tenant, host=vm.host)
        listed = next((one for one in found if one.vm.uuid == vm.uuid), None)
    events = last_events(services, EventFilter((printed_name(tenant, name),), _OF_VMS), _EVENTS)
    if listed is None and queued is None and not events:
        return None
    leases = () if listed is None else listed.leases
    readings = sources.readings()
    host = None if listed is None else readings.get(listed.vm.host)
    of_vm = None if host is None or vm is None else next((one for one in host.vms if one.uuid == vm.uuid), None)
    gpus = {one.share.gpu for one in leases}
    others = [one for one in on_host if one.share.gpu in gpus and one not in leases]
    return VmView(
        tenant,
        name,
        listed,
        queued,
        tuple(join_leases(leases, readings)),
        of_vm,
        tuple(events),
        promises,
        tuple(join_leases(others, readings)),
        () if vm is None else tuple(_attention(sources, vm.host, gpus)),
    )


def _attention(sources: PageSources, host: str, gpus: Collection[str]) -> Iterator[str]:
    if host not in sources.services.hosts():
        yield f"its host {host} is in no inventory"
        return
    [view] = read_fleet_view(sources, [host]).hosts
    if view.state not in ("up", "unknown"):
        yield f"its host {host} is {view.state}: {view.seen}"
    for one in view.gpus:
        if one.gpu.address not in gpus:
            continue
        if one.observation.state in ("missing", "unreadable"):
            yield f"its GPU {one.gpu.address} is {one.observation.state}"
        if one.map.closed is not None and one.map.closed.code.startswith("gpu-"):
            yield f"its GPU {one.gpu.address}: {one.map.closed.reason}"


def last_events(services: Services, wanted: EventFilter, limit: int) -> Sequence[Event]:
    """The last events that fit, the newest first."""
    with services.store.reading() as session:
        return session.events(limit, wanted)[::-1]
