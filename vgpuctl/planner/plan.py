# SPDX-License-Identifier: Apache-2.0
"""Steps for one share, kind by kind; leaves doing them to the agent and their order among VMs to the use cases."""

from collections.abc import Sequence
from typing import Protocol

from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.steps import SetVirtualFunctions
from vgpuctl.model.layout import GpuLayout
from vgpuctl.model.lease import Share
from vgpuctl.model.occupancy import gpu_at, vf_at
from vgpuctl.model.sharing import Sharing
from vgpuctl.planner import mediated, passthrough, plain_vf, vf_profile
from vgpuctl.planner.first_drivers import with_first_drivers
from vgpuctl.planner.result import Plan
from vgpuctl.sharing.declared import declared_of, refuse_share

__all__ = ["Plan", "check_declared", "check_share", "is_unread", "plan_release", "plan_share", "with_first_drivers"]


class SharePlanner(Protocol):
    """What each sharing kind's file answers."""

    def check(self, wanted: Share, gpu: Gpu, facts: HostFacts) -> str | None:
        """Why the live GPU no longer offers the share, None when it does."""

    def build(self, wanted: Share, gpu: Gpu) -> Plan:
        """Steps that make the device."""

    def release(self, held: Share, gpu: Gpu | None) -> Plan:
        """Steps that release the device; without the GPU's facts, all that could be needed."""


_KINDS: dict[Sharing, SharePlanner] = {
    Sharing.MDEV: mediated,
    Sharing.MDEV_VF: mediated,
    Sharing.VF_PROFILE: vf_profile,
    Sharing.PASSTHROUGH: passthrough,
    Sharing.VF: plain_vf,
}


def check_share(wanted: Share, facts: HostFacts, declared: Sequence[GpuLayout] = ()) -> str | None:
    """Why the host, freshly read, no longer offers this share; None when it does.

    The share comes from a placement over cached facts; nothing of it may exist yet (its own mdev excepted).
    declared: the entries of the host's layout.
    """
    gpu = gpu_at(facts, wanted.gpu)
    if gpu is None:
        return f"the host has no GPU at {wanted.gpu} any more"
    if gpu.problems:
        return f"GPU {gpu.address}: {gpu.problems[0]}"
    refusal = check_declared(wanted, facts, declared)
    if refusal is not None:
        return f"GPU {gpu.address}: {refusal}"
    surprise = _KINDS[wanted.sharing].check(wanted, gpu, facts)
    if surprise is None and wanted.sharing not in gpu.sharing:
        now = ", ".join(gpu.sharing) or "nothing"
        return f"GPU {gpu.address} no longer offers {wanted.sharing}; it now offers {now}"
    return surprise


def check_declared(wanted: Share, facts: HostFacts, declared: Sequence[GpuLayout]) -> str | None:
    """Why the layout says that the GPU does not serve this share; None when it may."""
    gpu = gpu_at(facts, wanted.gpu)
    if gpu is None:
        return None
    return refuse_share(declared_of(gpu, facts.gpus, declared), gpu, wanted.sharing, wanted.profile)


def plan_share(wanted: Share, facts: HostFacts) -> Plan:
    """Steps that build a share which check_share accepts, and their undo.

    A share that a VM kept over a reboot has lost its VF: all VFs of its GPU are then enabled first, and stay so.
    Raises ValueError when the GPU is not in the facts, or when a mediated share has no UUID yet.
    """
    gpu = gpu_at(facts, wanted.gpu)
    if gpu is None:
        raise ValueError(f"the facts have no GPU at {wanted.gpu}; ask check_share first")
    plan = _KINDS[wanted.sharing].build(wanted, gpu)
    if not wanted.sharing.needs_virtual_functions() or gpu.vfs or not gpu.total_vfs:
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
    if facts is None:
        return _KINDS[held.sharing].release(held, None)
    gpu = gpu_at(facts, held.gpu)
    if is_unread(facts, held):
        return _KINDS[held.sharing].release(held, None)
    if gpu is None:
        return Plan(summary=(f"nothing to release: the host has no GPU at {held.gpu}",))
    return _KINDS[held.sharing].release(held, gpu)


def is_unread(facts: HostFacts, held: Share) -> bool:
    """Whether the facts do not show a device since it could not be read."""
    if any(one.address in (held.gpu, held.function) for one in facts.unread_functions):
        return True
    gpu = gpu_at(facts, held.gpu)
    function = vf_at(gpu, held.function) if gpu is not None else None
    if function is not None:
        return function.problem is not None
    return gpu is not None and bool(gpu.unread) and held.sharing.needs_virtual_functions() and not gpu.vfs
