# SPDX-License-Identifier: Apache-2.0
"""Another vGPU scheduler for a GPU whose VMs lose promised time under best effort."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.model.lease import LeaseState
from vgpuctl.scheduler.advice.advice import Advice, AdviceKind, Confidence, Gain, advice_id
from vgpuctl.scheduler.advice.measured import MeasuredFleet
from vgpuctl.scheduler.advice.profiles import gpu_of
from vgpuctl.scheduler.advice.replay import (
    EQUAL_SHARE,
    FIXED_SHARE,
    Outcome,
    VgpuDemand,
    as_measured,
    demand_of,
    under_scheduler,
)
from vgpuctl.scheduler.scorer import BEST_EFFORT
from vgpuctl.sharing.declared import declared_of

FEWEST_MINUTES = 60
LEAST_MISSING = 0.02
"""Part of the promised and wanted time that must be missing."""


def advise(fleet: MeasuredFleet) -> Iterator[Advice]:
    """One advice for each GPU under best effort where equal or fixed share delivers more of what was promised."""
    for place, vgpus in fleet.by_gpu.items():
        host, _address = place
        if place in fleet.unread:
            continue
        gpu, capacity = gpu_of(fleet, vgpus[0]), fleet.capacity(host)
        if gpu is None or capacity is None or gpu.scheduler is None or gpu.scheduler.policy != BEST_EFFORT:
            continue
        # One that was idle all the time shows no promise, and has its share under another scheduler all the same.
        known = [one for one in vgpus if one.use]
        if sum(one.promised is not None for one in known) < 2:
            continue
        demands = {one.lease.id: demand_of(one) for one in known}
        now = as_measured(known, demands)
        if now.minutes < FEWEST_MINUTES or now.wanted - now.delivered < LEAST_MISSING * now.wanted:
            continue
        # The driver refuses fixed share with mixed sizes (docs/layout.md).
        policies = (EQUAL_SHARE,) if gpu.heterogeneous else (EQUAL_SHARE, FIXED_SHARE)
        replayed = {policy: under_scheduler(known, demands, policy) for policy in policies}
        policy = max(replayed, key=lambda one: (replayed[one].delivered + replayed[one].used / 1e3, one == EQUAL_SHARE))
        if replayed[policy].missing_hours > 0.5 * now.missing_hours:
            continue
        yield _advice(fleet, host, gpu, _Replayed(policy, now, replayed[policy], demands))


@dataclass(frozen=True)
class _Replayed:
    policy: str
    now: Outcome
    then: Outcome
    demands: Mapping[str, VgpuDemand]


def _advice(fleet: MeasuredFleet, host: str, gpu: Gpu, replayed: _Replayed) -> Advice:
    now, then, policy = replayed.now, replayed.then, replayed.policy
    running = [one for one in fleet.leases if one.state is LeaseState.RUNNING]
    vms = sorted({f"{one.tenant}/{one.vm_name}" for one in running if (one.host, one.share.gpu) == (host, gpu.address)})
    hours = now.minutes / 60
    is_bound = any(one.is_bound for one in replayed.demands.values())
    gained = now.missing_hours - then.missing_hours
    cost = (now.used - then.used) / 60
    bound = ", at most" if is_bound else ""
    return Advice(
        id=advice_id(AdviceKind.SCHEDULER, host, gpu.address, policy),
        kind=AdviceKind.SCHEDULER,
        host=host,
        gpu=gpu.address,
        tenant=None,
        vm=None,
        text=(
            f"the VMs of {host} {gpu.address} got {now.delivered / now.wanted:.0%} of the time that they were promised"
            f" and wanted, in {hours:.1f} measured hours"
        ),
        before={f"{_entry(fleet, host, gpu)} scheduler": f"{{policy: {BEST_EFFORT}}}"},
        after={f"{_entry(fleet, host, gpu)} scheduler": f"{{policy: {policy}}}"},
        commands=(
            *(f"vgpuctl stop-vm {one}" for one in vms),
            f"vgpuctl apply-hosts --limit {host}  # after the change of `vgpu:` in the inventory",
            *(f"vgpuctl start-vm {one}" for one in vms),
        ),
        gain=Gain(
            f"{then.delivered / now.wanted:.0%} of the promised time instead of {now.delivered / now.wanted:.0%}:"
            f" {gained:.2f} GPU-hours more{bound}; in all the VMs use {cost:.2f} GPU-hours less, for"
            " idle time is no longer lent",
            gained,
            "GPU-hours of promised time",
            at_most=is_bound,
        ),
        proof=f"{now.minutes} kept minutes were replayed, each vGPU bounded by its share under {policy}",
        confidence=Confidence.of(hours, is_bound=is_bound),
        measured_hours=hours,
    )


def _entry(fleet: MeasuredFleet, host: str, gpu: Gpu) -> str:
    """The entry of the host's layout that declares the GPU, or that has to be written."""
    capacity = fleet.capacity(host)
    assert capacity is not None
    declared = declared_of(gpu, capacity.facts, capacity.declared).entry
    match = f"address {gpu.address} (a new entry)" if declared is None else str(declared.match)
    return f"{host} vgpu: {match},"
