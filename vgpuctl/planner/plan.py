# SPDX-License-Identifier: Apache-2.0
"""Steps for one share, kind by kind; leaves doing them to the agent and their order among VMs to the use cases."""

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.steps import SetVirtualFunctions
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.host_constraints import NO_RULES, HostRules
from vgpuctl.model.lease import Share
from vgpuctl.model.vgpu_params import VgpuParams
from vgpuctl.model.vgpu_terms import VgpuTerms
from vgpuctl.sharing.bound_by_libvirt import drivers_of
from vgpuctl.sharing.compute import refuse_compute
from vgpuctl.sharing.declared import declared_of
from vgpuctl.sharing.gate import refuse_share
from vgpuctl.sharing.kinds import kind_of, live_gpu
from vgpuctl.sharing.occupancy import gpu_at
from vgpuctl.sharing.params import params_on
from vgpuctl.sharing.plan import Plan
from vgpuctl.sharing.share_on_host import is_unread, misplaced
from vgpuctl.sharing.type_names import numbered_now


def check_share(wanted: Share, facts: HostFacts, rules: HostRules = NO_RULES) -> str | None:
    """Why the host, freshly read, no longer offers this share; None when it does.

    The share comes from a placement over cached facts; nothing of it may exist yet (its own mdev excepted).
    rules: what people and findings say of the host.
    """
    gpu = gpu_at(facts, wanted.gpu)
    if gpu is None:
        return f"the host has no GPU at {wanted.gpu} any more"
    if gpu.problems:
        return f"GPU {gpu.address}: {gpu.problems[0]}"
    refusal = check_rules(wanted, facts, rules)
    if refusal is not None:
        return f"GPU {gpu.address}: {refusal}"
    surprise = kind_of(wanted.sharing).check(wanted, live_gpu(gpu, facts))
    if surprise is None and wanted.sharing not in gpu.sharing:
        now = ", ".join(gpu.sharing) or "nothing"
        return f"GPU {gpu.address} no longer offers {wanted.sharing}; it now offers {now}"
    return surprise


def check_rules(wanted: Share, facts: HostFacts, rules: HostRules, *, is_kept: bool = False) -> str | None:
    """Say why a share must not be handed out although it is free: the host, GPU or VF is closed, or the layout has it
    for something else. None when it may.

    is_kept: a stopped VM kept it; `sharing.gate.refuse_share` says what that changes.
    """
    gpu = gpu_at(facts, wanted.gpu)
    if gpu is None:
        return None
    refusal = refuse_share(wanted, gpu, rules, is_kept=is_kept)
    if refusal is not None:
        return refusal
    return kind_of(wanted.sharing).refuse_declared(declared_of(gpu, facts, rules.declared), gpu, wanted.profile)


def check_kept(held: Share, facts: HostFacts, rules: HostRules = NO_RULES) -> str | None:
    """Say why a stopped VM cannot start with a share that it kept: the rules have changed, or others use it by now."""
    refusal = check_rules(held, facts, rules, is_kept=True)
    gpu = gpu_at(facts, held.gpu)
    if refusal is not None or gpu is None:
        return refusal
    return misplaced(held, facts) or kind_of(held.sharing).check_kept(held, live_gpu(gpu, facts))


def refuse_terms(held: Share, facts: HostFacts, rules: HostRules, terms: VgpuTerms) -> str | None:
    """Say why a share cannot have the VM's terms beside this host's driver and layout, None when it can."""
    gpu = gpu_at(facts, held.gpu)
    if gpu is None:
        return None
    declared = declared_of(gpu, facts, rules.declared)
    refusal = kind_of(held.sharing).refuse_terms(held, gpu, facts, declared, terms)
    return None if refusal is None else refusal.reason


def check_compute(held: Share, request: GpuRequest | None, facts: HostFacts, rules: HostRules) -> str | None:
    """Say why a share has not the compute time that is asked for on the host as it is now, None when it has."""
    gpu = None if request is None else gpu_at(facts, held.gpu)
    if gpu is None or request is None:
        return None
    declared = declared_of(gpu, facts, rules.declared)
    refusal = refuse_compute(request, held, gpu, declared, rules.host)
    return None if refusal is None else f"{refusal.reason}; {refusal.remedy}" if refusal.remedy else refusal.reason


def params_of(held: Share, facts: HostFacts, rules: HostRules, own: VgpuParams) -> VgpuParams:
    """The parameters of a VM's share: of the layout of its GPU, and the VM's own in place of equal names."""
    gpu = gpu_at(facts, held.gpu)
    return own if gpu is None else params_on(declared_of(gpu, facts, rules.declared), own)


def as_numbered_now(share: Share, facts: HostFacts) -> Share:
    """The share with the id that the host's driver gives its type now: it was placed by facts that may be older."""
    gpu = gpu_at(facts, share.gpu)
    return share if gpu is None else numbered_now(share, gpu)


def with_first_drivers(share: Share, facts: HostFacts) -> Share:
    """The share with the drivers that its functions have now, before anything is bound to vfio-pci."""
    gpu = gpu_at(facts, share.gpu)
    return share if gpu is None else kind_of(share.sharing).with_first_drivers(share, gpu)


def plan_share(wanted: Share, facts: HostFacts, params: VgpuParams | None = None) -> Plan:
    """Steps that build a share which check_share accepts, and their undo. params: None to leave those that it has.

    A share that a VM kept over a reboot has lost its VF: all VFs of its GPU are then enabled first, and stay so.
    Raises ValueError when the GPU is not in the facts, or when a mediated share has no UUID yet.
    """
    gpu = gpu_at(facts, wanted.gpu)
    if gpu is None:
        raise ValueError(f"the facts have no GPU at {wanted.gpu}; ask check_share first")
    kind = kind_of(wanted.sharing)
    plan = kind.with_params(wanted, gpu, params)
    if not kind.is_on_vf or gpu.vfs or not gpu.total_vfs:
        return plan
    return Plan(
        steps=(SetVirtualFunctions(gpu.address, gpu.total_vfs), *plan.steps),
        undo=plan.undo,
        summary=(f"enable the {gpu.total_vfs} VFs of GPU {gpu.address}, which a reboot took", *plan.summary),
    )


def plan_release(held: Share, facts: HostFacts | None) -> Plan:
    """Steps that release a share's device; none for what is released already, so that it can be called again.

    facts: the host as read after its VM was stopped. None when it could not be read: the plan then holds every step
    that could be needed, each of which the agent leaves out when it is so already. The same for a device that could
    not be read: nobody knows that it is free.
    """
    kind = kind_of(held.sharing)
    if facts is None or is_unread(facts, held):
        return kind.release(held, None)
    gpu = gpu_at(facts, held.gpu)
    if gpu is None:
        return Plan(summary=(f"nothing to release: the host has no GPU at {held.gpu}",))
    return kind.release(held, gpu)


def find_unreturned(held: Share, facts: HostFacts) -> str | None:
    """Say which functions of a released share are not on their first drivers; None when all are. facts: read since."""
    gpu = gpu_at(facts, held.gpu)
    drivers = drivers_of(gpu) if gpu is not None else {}
    away = [
        f"{function} is on {drivers[function] or 'no driver'}, not on {first}"
        for function, first in held.first_drivers
        if function in drivers and drivers[function] != first
    ]
    return ", ".join(away) or None
