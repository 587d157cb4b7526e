# SPDX-License-Identifier: Apache-2.0
"""The gate: whether a host, GPU or VF may be handed out at all, whatever is free on it.

It merges what the inventory declares (maintenance, quarantine) with the restrictions in the store (cordon, drain,
quarantine, fence). Placing asks it of every host and GPU; paths that do not place (a share that a VM kept, shares of a
reservation) ask it by `refuse_share`.
"""

from collections.abc import Iterable

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.model.host_constraints import GpuConstraints, HostConstraints, HostRules
from vgpuctl.model.lease import Share
from vgpuctl.model.restriction import WHOLE_HOST, Restriction, RestrictionKind, restrictions_on
from vgpuctl.sharing.codes import Code
from vgpuctl.sharing.matching import fits
from vgpuctl.sharing.offer import Refusal

# Facts whose missing value would look like another host: without KVM a guest is emulated, without NUMA nodes pinned
# nowhere. The others have a value of their own for what is not known, or only describe the host.
_PLACING_NEEDS = ("cpus", "memory_mib", "memory_available_mib", "numa_nodes", "iommu_active", "kvm", "hugepages")


def constraints_of(gpu: Gpu, constraints: HostConstraints) -> GpuConstraints:
    """The merged entries that match a GPU; where two give a value, the narrower one counts."""
    labels = constraints.labels
    quarantine, speed = None, None
    for entry in sorted(constraints.gpus, key=lambda one: one.match.rank):
        if fits(entry.match, gpu):
            labels |= entry.labels
            quarantine = entry.quarantine or quarantine
            speed = entry.speed or speed
    return GpuConstraints(labels=labels, quarantine=quarantine, speed=speed)


def refuse_closed_host(rules: HostRules) -> Refusal | None:
    """Say why the host takes no new VM; None when it may."""
    kinds = {one.kind: one for one in rules.restrictions if (one.host, one.device) == (rules.host, WHOLE_HOST)}
    if RestrictionKind.FENCE in kinds:
        return Refusal(
            Code.HOST_FENCED,
            f"it was declared dead: {_told(kinds[RestrictionKind.FENCE])}",
            f"when it works again, run `vgpuctl uncordon-host {rules.host}`",
        )
    for kind, code in ((RestrictionKind.DRAIN, Code.HOST_DRAINED), (RestrictionKind.CORDON, Code.HOST_CORDONED)):
        if kind in kinds:
            reason = f"it is {'drained' if kind is RestrictionKind.DRAIN else 'cordoned'}: {_told(kinds[kind])}"
            return Refusal(code, reason, f"run `vgpuctl uncordon-host {rules.host}`")
    if rules.constraints.maintenance is not None:
        return Refusal(
            Code.HOST_MAINTENANCE,
            f"in maintenance: {rules.constraints.maintenance}",
            "take the maintenance out of the inventory's vgpu_placing",
        )
    if rules.silence is not None:
        return Refusal(Code.HOST_SILENT, rules.silence, "`vgpuctl list-hosts` asks it again")
    return None


def refuse_unread_host(facts: HostFacts) -> Refusal | None:
    """Say which fact that placing relies on could not be read; None when all of them could."""
    why = facts.why_unread(*_PLACING_NEEDS) if facts.unread else None
    if why is None:
        return None
    return Refusal(Code.HOST_UNREAD, why, "see `vgpuctl check-hosts`; the agent must run as root")


def refuse_closed_gpu(gpu: Gpu, rules: HostRules) -> Refusal | None:
    """Say why the GPU takes no new VM; None when it may."""
    if not rules.restrictions and not rules.constraints.gpus:
        return None
    found = restrictions_on(rules.restrictions, rules.host, gpu.address, gpu.uuid)
    for one in found:
        if one.kind is RestrictionKind.QUARANTINE:
            remedy = f'when it is healthy, run `vgpuctl unquarantine-gpu {rules.host} {gpu.address} --reason "…"`'
            return Refusal(Code.GPU_QUARANTINE, f"in quarantine: {_told(one)}", remedy)
    quarantine = constraints_of(gpu, rules.constraints).quarantine
    if quarantine is not None:
        return Refusal(
            Code.GPU_QUARANTINE,
            f"in quarantine: {quarantine}",
            "take the quarantine out of the inventory's vgpu_placing",
        )
    for one in found:
        remedy = f"run `vgpuctl uncordon-host {rules.host} --gpu {gpu.address}`"
        return Refusal(Code.GPU_CORDONED, f"it is cordoned: {_told(one)}", remedy)
    return None


def closed_functions(gpu: Gpu, rules: HostRules) -> dict[str, str]:
    """The VFs of a GPU that are in quarantine by themselves, with the reason."""
    return {
        one.address: f"VF {one.address} is in quarantine: {_told(found[0])}"
        for one in (gpu.vfs if rules.restrictions else ())
        if (found := restrictions_on(rules.restrictions, rules.host, one.address, None))
    }


def refuse_share(share: Share, gpu: Gpu, rules: HostRules, *, is_kept: bool) -> str | None:
    """Say why a share that needs no placing must not be handed out now; None when it may.

    is_kept: a stopped VM kept it. Cordons and maintenance keep new VMs away, and not this one.
    """
    refusals = [refuse_closed_host(rules), refuse_closed_gpu(gpu, rules)]
    for refusal in refusals:
        if refusal is not None and not (is_kept and refusal.code.admits_residents()):
            return refusal.reason
    return closed_functions(gpu, rules).get(share.function)


def without_cordon(rules: Iterable[Restriction]) -> tuple[Restriction, ...]:
    """The restrictions that also count for a VM which has its disk on the host."""
    return tuple(one for one in rules if one.kind is not RestrictionKind.CORDON)


def _told(one: Restriction) -> str:
    return one.reason if one.finding is None else f"{one.reason} ({one.finding})"
