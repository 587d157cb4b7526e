# SPDX-License-Identifier: Apache-2.0
"""Mixed-size mode for a GPU whose equal sizes keep waiting VMs out."""

from collections.abc import Iterator, Sequence

from vgpuctl.model.lease import Lease
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.advice.advice import Advice, AdviceKind, Confidence, Gain, advice_id
from vgpuctl.scheduler.advice.measured import HOUR_S, MeasuredFleet
from vgpuctl.scheduler.advice.room import layout_of, starts, starts_now
from vgpuctl.scheduler.mixed_change import with_mixed_sizes

MOST_REQUESTS = 20
"""Waiting VMs that are looked at, the oldest first."""


def advise(fleet: MeasuredFleet) -> Iterator[Advice]:
    """One advice for each GPU that would start VMs which wait now, and that start nowhere as it is."""
    before = layout_of(fleet)
    already = set(starts_now(fleet))
    told: set[tuple[str, str]] = set()
    for request, waited_s in list(zip(fleet.waiting, fleet.waited_s, strict=True))[:MOST_REQUESTS]:
        if f"{request.tenant}/{request.name}" in already:
            continue
        for capacity, leases, address, _names in with_mixed_sizes(request, fleet.replayed.fleet, fleet.leases):
            after = before.with_host(capacity, leases)
            started = [one for one in starts(after, fleet.waiting) if one not in already]
            if f"{request.tenant}/{request.name}" in started and (capacity.name, address) not in told:
                told.add((capacity.name, address))
                here = [one for one in fleet.leases if (one.host, one.share.gpu) == (capacity.name, address)]
                yield _advice(capacity.name, address, here, started, request, waited_s)
            if started:
                break


def _advice(
    host: str, address: str, there: Sequence[Lease], started: list[str], request: VmRequest, waited_s: float
) -> Advice:
    stopped = sorted({f"{one.tenant}/{one.vm_name}" for one in there})
    wants = ", ".join(gpu.text for gpu in request.gpus)
    return Advice(
        id=advice_id(AdviceKind.SIZE_MODE, host, address),
        kind=AdviceKind.SIZE_MODE,
        host=host,
        gpu=address,
        tenant=None,
        vm=None,
        text=(
            f"{request.tenant}/{request.name} has waited {waited_s / HOUR_S:.1f} hours for {wants},"
            f" which only the equal sizes of {host} {address} keep out"
        ),
        before={f"{host} vgpu: address {address}, size_mode": "equal-size"},
        after={f"{host} vgpu: address {address}, size_mode": "mixed-size"},
        commands=(
            *(f"vgpuctl stop-vm {one} --hold release" for one in stopped),
            f"vgpuctl apply-hosts --limit {host}  # after the change of `vgpu:` in the inventory",
            *(f"vgpuctl start-vm {one}" for one in stopped),
        ),
        gain=Gain(f"{', '.join(started)} can start", float(len(started)), "waiting VMs that start"),
        proof="the queue was placed again with the GPU in mixed-size mode and its vGPUs at the driver's places",
        confidence=Confidence.of(waited_s / HOUR_S),
        measured_hours=waited_s / HOUR_S,
    )
