# SPDX-License-Identifier: Apache-2.0
"""The differences that a failed run left, between two readings."""

from dataclasses import replace

from tests.unit.planner.layout.simulated_host import SimulatedGpu, SimulatedHost
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.usecases.layout.left_behind import SeenHost, VmShares, left_behind


def test_two_equal_readings_leave_nothing() -> None:
    assert left_behind(SeenHost(_read("nvidia-a40")), SeenHost(_read("nvidia-a40"))) == ()


def test_everything_that_a_layout_sets_is_named_with_both_values() -> None:
    gpu = SimulatedGpu("nvidia-a100-pcie-40gb")
    host = SimulatedHost(gpu)
    before = host.facts()
    gpu.mig = gpu.mig_pending = True
    gpu.vf_count = 16
    assert gpu.card is not None
    gpu.card.create("3g.20gb", 4)
    gpu.instance_modes = {4: True}
    gpu.vf_types = {gpu.functions[0]: "475"}
    gpu.scheduler = replace(gpu.scheduler, policy="equal-share", time_slice_us=4000)
    host.hugepages = 16
    host.services["dcgm.service"] = False
    found = {str(one).partition(": ")[2] for one in left_behind(SeenHost(before), SeenHost(host.facts()))}
    assert {
        "vfs is 16, was 0",
        "mig is True, was False",
        "pending-mig is True, was False",
        "instances is 3g.20gb at 4, was none",
        "mixed-sizes of 3g.20gb at 4 is True, was none",
        "hugepages of 2048 KiB is 16, was 0",
        "dcgm.service is not active, was active",
        "time-slice is 4000 us, was none",
    } <= found
    assert any(one.startswith(f"vgpu {gpu.functions[0]} is ") for one in found)
    assert left_behind(SeenHost(host.facts()), SeenHost(host.facts())) == ()


def test_a_card_that_is_gone_is_named() -> None:
    before = _read("nvidia-a40")
    assert [str(one) for one in left_behind(SeenHost(before), SeenHost(replace(before, gpus=())))] == [
        "0000:41:00.0: gpu is missing, was present"
    ]


def test_a_vm_that_is_elsewhere_by_now_is_one_line_in_words() -> None:
    gpu = SimulatedGpu("nvidia-a40")
    host = SimulatedHost(gpu)
    gpu.vf_count = 32
    here, there = gpu.functions[:2]
    gpu.vf_types = {here: "557"}
    before = host.facts()
    gpu.vf_types = {there: "557"}
    was, now = (
        SeenHost(facts, (VmShares("VM web of acme", f"running with A40-8Q on {function}", frozenset({function})),))
        for facts, function in ((before, here), (host.facts(), there))
    )
    assert len(left_behind(SeenHost(before), SeenHost(host.facts()))) == 2, "without the VMs a line per device"
    (line,) = left_behind(was, now)
    assert str(line) == f"host: VM web of acme is running with A40-8Q on {there}, was running with A40-8Q on {here}"
    assert left_behind(was, was) == ()


def _read(board: str) -> HostFacts:
    return SimulatedHost(SimulatedGpu(board)).facts()
