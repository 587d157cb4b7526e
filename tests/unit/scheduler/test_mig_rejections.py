# SPDX-License-Identifier: Apache-2.0
"""A MIG-backed vGPU without an instance: the refusal tells where one fits."""

from dataclasses import replace

import pytest

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import host, vm
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, GpuInstance, MigFacts, MigProfileFacts
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler import explain

A100 = EmulatedGpu(catalog.board("nvidia-a100-pcie-40gb"), "0000:c1:00.0", "vf-profile", vf_count=16).facts()


def some(gpu: Gpu, **changes: object) -> HostCapacity:
    return host("gpu1", replace(gpu, **changes))  # type: ignore[arg-type]  # the tests name real fields


def mig(*instances: GpuInstance) -> HostCapacity:
    """An A100 in MIG mode with these instances, none of which takes what is asked."""
    shapes = {
        "1g.5gb": (1, (0, 1, 2, 3, 4, 5, 6)),
        "2g.10gb": (2, (0, 2, 4)),
        "3g.20gb": (4, (0, 4)),
        "7g.40gb": (8, (0,)),
    }
    profiles = tuple(
        MigProfileFacts(name, number, int(name[0]), starts, size, len(starts))
        for number, (name, (size, starts)) in enumerate(shapes.items())
    )
    return some(A100, mig_mode="enabled", types=(), mig=MigFacts(True, True, instances, profiles))


@pytest.mark.parametrize(
    ("wanted", "capacity", "remedy"),
    [
        ("A100-1-5C", mig(GpuInstance(1, "3g.20gb", 0, 4, in_use=True)), "create a GPU instance 1g.5gb at slot 6"),
        ("A100-3-20C", mig(GpuInstance(1, "1g.5gb", 6, 1, in_use=True)), "create a GPU instance 3g.20gb at slot 0"),
        (
            "A100-3-20C",
            mig(GpuInstance(1, "1g.5gb", 6, 1, in_use=True), GpuInstance(2, "2g.10gb", 2, 2, in_use=False)),
            "delete the idle GPU instances that overlap slot 0, and create a 3g.20gb there",
        ),
        ("A100-7-40C", mig(GpuInstance(1, "1g.5gb", 6, 1, in_use=True)), None),
        ("A100-1-5C", some(A100, types=()), "switch MIG on and create a GPU instance 1g.5gb"),
    ],
)
def test_a_missing_mig_instance_names_where_one_fits(wanted: str, capacity: HostCapacity, remedy: str | None) -> None:
    answer = explain(vm(wanted), [capacity], [])
    assert isinstance(answer, list)
    (rejection,) = answer
    assert rejection.code == "no-mig-instance"
    assert (rejection.remedy or "").startswith(remedy or "")
    assert (rejection.remedy is None) == (remedy is None)
