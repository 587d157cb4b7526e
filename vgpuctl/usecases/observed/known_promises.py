# SPDX-License-Identifier: Apache-2.0
"""What is known now of a promise: its last look, unless its host is silent or its GPU at fault since."""

from collections.abc import Iterable, Mapping

from vgpuctl.model.lease import Lease
from vgpuctl.model.promise import GpuFault, LastFinding, Moment, PromiseRow
from vgpuctl.model.restriction import Restriction
from vgpuctl.model.times import format_time
from vgpuctl.promises.compare import compare
from vgpuctl.promises.witnessed import Promised, Witnessed
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.observations import observed_hosts
from vgpuctl.usecases.observed.promise_record import recorded_on


def known_now(session: Session, host: str) -> Mapping[str, tuple[LastFinding, ...]]:
    """What is known now of the promises on one host, by UUID of the VM: see `LastFinding.as_of`."""
    now, faults = session.now(), gpu_faults(session.leases(host=host), session.restrictions())
    observed = observed_hosts(session).get(host)
    silence = None if observed is None else silence_of(observed.agent.unknown_since)
    known = {
        uuid: tuple(one.as_of(now, silence=silence, fault=faults.get(uuid)) for one in found)
        for uuid, found in recorded_on(session, host).items()
    }
    for vm in session.vms(host=host):
        told = [one for one in compare(Promised(vm), Witnessed(), Moment.LOOK) if one.row is PromiseRow.GPU_STATE]
        if told:  # the store's row tells it, before anybody looks
            others = [one for one in known.get(vm.uuid, ()) if one.finding.row is not PromiseRow.GPU_STATE]
            known[vm.uuid] = (*(LastFinding(one, now, now, was_broken=True) for one in told), *others)
    return known


def silence_of(since: float | None) -> str | None:
    """Why nobody can look at a host that has not answered since then."""
    return None if since is None else f"its host gives no answer since {format_time(since)} UTC"


def gpu_faults(leases: Iterable[Lease], restrictions: Iterable[Restriction]) -> dict[str, GpuFault]:
    """The last fault of a GPU or VF of each VM, by UUID: what was found of it has put it into quarantine."""
    found = {(one.host, one.device): one for one in restrictions if one.finding is not None}
    faults: dict[str, GpuFault] = {}
    for lease in leases:
        for device in (lease.share.gpu, lease.share.function):
            one = None if device is None else found.get((lease.host, device))
            if one is not None and (lease.vm_uuid not in faults or faults[lease.vm_uuid].since < one.set_at):
                text = f"GPU {one.device} is in quarantine since {format_time(one.set_at)} UTC: {one.reason}"
                faults[lease.vm_uuid] = GpuFault(one.set_at, f"{text} ({one.finding})")
    return faults
