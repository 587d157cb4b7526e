# SPDX-License-Identifier: Apache-2.0
"""A host as it is becomes shares and a layout that asks nothing of it."""

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.fleet_factory import emulated_a40, host_facts, lease, whole_card
from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from vgpuctl.agent.wire.cdi import CdiFacts
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.inventory.layout_text import layout_variable
from vgpuctl.model.layout import (
    GpuLayout,
    GpuMatch,
    HostLayout,
    MigVgpuLayout,
    OwnLayout,
    PassthroughLayout,
    VgpuLayout,
    WantedInstance,
)
from vgpuctl.model.lease import Share
from vgpuctl.planner.adoption import idle_vgpus, layout_as_found, shares_of_devices
from vgpuctl.planner.layout.plan import plan_host

ALL = GpuMatch()


def test_devices_of_a_domain_become_shares_and_other_devices_do_not_count() -> None:
    gpu = emulated_a40(sharing="mdev-vf")
    gpu.create("A40-8Q", gpu.functions[2], "00000000-0000-4000-8000-000000000007")
    card = whole_card()
    facts = host_facts([gpu.facts(), card])
    found = shares_of_devices(
        ["0000:01:00.0", "00000000-0000-4000-8000-000000000007", card.address, card.companions[0].address], facts
    )
    assert not isinstance(found, str)
    vgpu, whole = found
    assert (vgpu.sharing, vgpu.profile, vgpu.function, vgpu.framebuffer_mib) == (
        Sharing.MDEV_VF,
        "A40-8Q",
        gpu.functions[2],
        8192,
    )
    assert (whole.sharing, whole.companions) == (Sharing.PASSTHROUGH, (card.companions[0].address,))
    assert dict(whole.first_drivers) == {card.address: "nvidia", card.companions[0].address: "snd_hda_intel"}


def test_devices_that_are_not_set_up_are_a_reason() -> None:
    gpu = emulated_a40()
    facts = host_facts([gpu.facts()])
    assert shares_of_devices(["00000000-0000-4000-8000-000000000009"], facts) == (
        "its mdev 00000000-0000-4000-8000-000000000009 does not exist"
    )
    assert shares_of_devices([gpu.functions[0]], facts) == f"its VF {gpu.functions[0]} has no vGPU type"


def test_only_vgpus_that_nobody_claims_are_idle() -> None:
    gpu = emulated_a40()
    for function in gpu.functions[:2]:
        gpu.create("A40-8Q", function)
    facts = host_facts([gpu.facts()])
    assert [one.function for one in idle_vgpus(facts, {gpu.functions[0]})] == [gpu.functions[1]]
    found = layout_as_found(facts, (), {gpu.functions[1]})
    assert [entry.layout for entry in found.entries] == [VgpuLayout(shares=(("A40-8Q", 2),))]


def test_mig_with_vgpus_is_described_with_its_places() -> None:
    host = SimulatedHost(SimulatedGpu("nvidia-h100-pcie-80gb"))
    host.services["dcgm.service"] = False
    wanted = MigVgpuLayout((WantedInstance("2g.20gb", 0), WantedInstance("3g.40gb", 4)))
    layout = HostLayout(gpus=(GpuLayout(ALL, wanted),))
    for _ in range(3):
        for planned in plan_host(layout, host.facts(), made=host.shares()).steps:
            host.take(planned.step)
    found = layout_as_found(host.facts(), (), ())
    assert [entry.layout for entry in found.entries] == [wanted] and found.left == ()


OTHER = "0000:81:00.0"


@pytest.mark.parametrize("instances", [(), (WantedInstance("2g.10gb", 4, (2,)), WantedInstance("3g.20gb", 0, (3,)))])
@pytest.mark.parametrize("older", [{}, {"is_current": False}, {"others": ("/run/cdi/nvidia.yaml",)}])
def test_gpus_that_containers_have_stay_the_host_s_own(
    instances: tuple[WantedInstance, ...], older: dict[str, Any]
) -> None:
    host = SimulatedHost(SimulatedGpu("nvidia-a100-pcie-40gb"), SimulatedGpu("nvidia-a40", OTHER))
    host.services["dcgm.service"] = False
    layout = HostLayout(gpus=(GpuLayout(GpuMatch(address="0000:41:00.0"), OwnLayout(instances)),))
    layout = replace(layout, gpus=(*layout.gpus, GpuLayout(GpuMatch(address=OTHER), VgpuLayout())))
    for _ in range(3):
        for planned in plan_host(layout, host.facts()).steps:
            host.take(planned.step)
    facts = host.facts()
    assert facts.cdi == CdiFacts(("0000:41:00.0",))
    found = layout_as_found(replace(facts, cdi=replace(facts.cdi, **older)), (), ())
    assert found.left == ()
    assert [entry.layout.kind for entry in found.entries] == ["host", "vgpu"]
    assert plan_host(HostLayout(gpus=found.entries), facts).is_in_layout
    (own, _) = layout_variable(HostLayout(gpus=found.entries))["gpus"]
    assert own["kind"] == "host" and ("geometry" in own) is bool(instances)


def test_a_gpu_that_containers_and_a_vm_have_is_left_with_the_reason() -> None:
    card = whole_card()
    facts = replace(host_facts([card]), cdi=CdiFacts((card.address,)))
    share = Share(card.address, Sharing.PASSTHROUGH, "passthrough", card.address)
    found = layout_as_found(facts, [lease("gpu1", share)], ())
    assert found.entries == () and "cannot be the host's own yet: VM" in found.left[0][1]


def test_a_gpu_that_no_layout_describes_or_that_is_foreign_is_left() -> None:
    half = emulated_a40()
    facts = host_facts([replace(half.facts(), total_vfs=64)])
    found = layout_as_found(facts, (), ())
    assert found.entries == () and found.left[0][1].startswith("no layout of kind vgpu describes it")
    card = whole_card()
    card = replace(card, driver="vfio-pci", companions=(replace(card.companions[0], driver="vfio-pci"),))
    assert layout_as_found(host_facts([card]), (), (), {card.address}).entries == ()
    (entry,) = layout_as_found(host_facts([card]), (), ()).entries
    assert entry.layout == PassthroughLayout("vfio-pci")
