# SPDX-License-Identifier: Apache-2.0
"""A fleet of one host with one GPU, and why that GPU cannot take a request."""

from collections.abc import Sequence
from dataclasses import replace

from tests.unit.fleet_factory import host
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity, Rejection
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.explain import explain


def only_rejection(request: VmRequest, capacity: HostCapacity, leases: Sequence[Lease] = ()) -> Rejection:
    answer = explain(request, [capacity], leases)
    assert isinstance(answer, list), answer
    assert len(answer) == 1
    return answer[0]


def some(gpu: Gpu, **changes: object) -> HostCapacity:
    return host("gpu1", replace(gpu, **changes))  # type: ignore[arg-type]  # the tests name real fields
