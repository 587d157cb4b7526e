# SPDX-License-Identifier: Apache-2.0
"""The predicted throughput of a VM on each GPU that takes one of its shares: O(number of GPUs)."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.policy import parse_policy
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.host_rules import refuse_host
from vgpuctl.scheduler.performance.measurement import UNLABELLED, Neighbour
from vgpuctl.scheduler.performance.model import Impact
from vgpuctl.scheduler.request_class import share_requests_of
from vgpuctl.scheduler.scorer import FleetView, Scorer, impact_of
from vgpuctl.sharing.offer import Refusal
from vgpuctl.sharing.offers import ask


@dataclass(frozen=True)
class GpuPrediction:
    """One GPU that takes a share. neighbours: workload class and profile of what is there.

    impact: what the VM would get, and cost its neighbours. reason: why nothing can be predicted, where impact is None.
    """

    host: str
    gpu: str
    profile: str
    neighbours: tuple[Neighbour, ...]
    impact: Impact | None
    reason: str | None = None


def predict_candidates(
    request: VmRequest, capacities: Sequence[HostCapacity], leases: Sequence[Lease], view: FleetView
) -> list[GpuPrediction]:
    """Predict for the first of each kind of share that the request asks for; what loses least comes first.

    view: with the model and the workload classes.
    """
    if view.model is None:
        return []
    fleet, scorer = Fleet(capacities, leases, view=view), Scorer(parse_policy("predicted"), model=view.model)
    workload = request.workload or UNLABELLED
    found = []
    for name, host in sorted(fleet.hosts.items()):
        if request.host not in (None, name) or refuse_host(request, host.capacity, host.cells) is not None:
            continue
        for state in host.states:
            for share_request in dict.fromkeys(share_requests_of(request)):
                answer = ask(share_request, state)
                if isinstance(answer, Refusal):
                    continue
                share = scorer.in_order(answer, {state.gpu.address: state}, by_size=True)[0].share
                impact = impact_of(view.model, workload, share, state)
                found.append(
                    GpuPrediction(
                        name,
                        state.gpu.address,
                        share.profile,
                        state.neighbours,
                        impact if isinstance(impact, Impact) else None,
                        None if isinstance(impact, Impact) else impact.reason,
                    )
                )
    return sorted(found, key=lambda one: (one.impact is None, 0.0 if one.impact is None else one.impact.lost))
