# SPDX-License-Identifier: Apache-2.0
"""A MIG-backed vGPU without an instance: the refusal tells where one fits."""

from dataclasses import replace

import pytest

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import host, lease, vm
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, GpuInstance, MigFacts, MigProfileFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.scheduler.explain import explain

A100 = EmulatedGpu(catalog.board("nvidia-a100-pcie-40gb"), "0000:c1:00.0", "vf-profile", vf_count=16).facts()


def some(gpu: Gpu, **changes: object) -> HostCapacity:
    return host("gpu1", replace(gpu, **changes))  # type: ignore[arg-type]  # the tests name real fields


def mig(*instances: GpuInstance) -> HostCapacity:
    """An A100 in MIG mode with these instances, none of which takes what is asked."""
    table = catalog.mig_table(catalog.board("nvidia-a100-pcie-40gb"))
    assert table is not None
    profiles = tuple(
        MigProfileFacts(
            one.name,
            one.id or 0,
            one.compute_slices,
            one.placement_starts or (),
            one.placement_size or 0,
            one.max_count,
        )
        for one in table.profiles
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
            "delete GPU instance 2 (2g.10gb at slot 2, idle), then create a 3g.20gb at slot 0",
        ),
        (
            "A100-4-20C",
            mig(
                GpuInstance(1, "1g.5gb", 6, 1, in_use=False),
                GpuInstance(2, "1g.5gb", 0, 1, in_use=False),
                GpuInstance(3, "made-up", 3, 1, in_use=False),
            ),
            "delete GPU instance 2 (1g.5gb at slot 0, idle) and GPU instance 3 (made-up at slot 3, idle), then create"
            " a 4g.20gb at slot 0",
        ),
        ("A100-1-5CME", mig(GpuInstance(1, "1g.5gb", 6, 1, in_use=True)), "create a GPU instance 1g.5gb+me at slot 4"),
        ("A100-1-5CME", mig(GpuInstance(1, "1g.5gb+me", 6, 1, in_use=True)), None),
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


@pytest.mark.parametrize(
    ("slots", "promised", "remedy"),
    [
        ((0, 6), 1, "delete GPU instance 0 (1g.5gb at slot 0, idle), then create a 4g.20gb at slot 0"),
        ((0, 1), 1, None),
        ((0, 1), 0, "delete GPU instance 0 (1g.5gb at slot 0, idle) and GPU instance 1 (1g.5gb at slot 1, idle), then"),
    ],
)
def test_an_idle_instance_that_a_vgpu_was_promised_is_not_to_be_deleted(
    slots: tuple[int, ...], promised: int, remedy: str | None
) -> None:
    instances = [GpuInstance(number, "1g.5gb", slot, 1, in_use=False) for number, slot in enumerate(slots)]
    held = Share(A100.address, Sharing.VF_PROFILE, "A100-1-5C", A100.vfs[0].address, framebuffer_mib=5 * 1024)
    leases = [lease("gpu1", held)] * promised
    answer = explain(vm("A100-4-20C"), [mig(*instances)], leases)
    assert isinstance(answer, list)
    (rejection,) = answer
    assert (rejection.remedy or "").startswith(remedy or "")
    assert (rejection.remedy is None) == (remedy is None)
