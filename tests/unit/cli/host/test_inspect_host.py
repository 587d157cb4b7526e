# SPDX-License-Identifier: Apache-2.0
"""The text of inspect-host says what the JSON says."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import host_facts, whole_card
from vgpuctl.agent.wire.facts import (
    FabricFacts,
    GpuInstance,
    GpuTopology,
    Holder,
    MigFacts,
    NvLinks,
    SchedulerFacts,
    UnreadPart,
)
from vgpuctl.cli.host.inspect_host import _print_host, print_gpu, print_topology
from vgpuctl.sharing.topology import topology_of


def test_mig_uuid_scheduler_and_memory_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    holder = Holder(pid=71, command="python3", vm_uuid=None)
    instances = (
        GpuInstance(1, "3g.20gb", 0, 4, in_use=True, compute_instances=1, holders=(holder,)),
        GpuInstance(9, "1g.5gb", 6, 1, in_use=False),
    )
    gpu = replace(
        whole_card(),
        uuid="GPU-0f",
        memory_mib=40960,
        mig=MigFacts(current=True, pending=False, instances=instances),
        scheduler=SchedulerFacts("fixed-share", 2000),
    )
    print_gpu(gpu)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "memory 40 GiB, UUID GPU-0f" in lines
    assert "MIG enabled, disabled after a reset or reboot, 2 instances" in lines
    assert "instance 1 3g.20gb at 0, size 4, 1 compute instances, in use, held by python3 (pid 71)" in lines
    assert "instance 9 1g.5gb at 6, size 1, 0 compute instances, free" in lines
    assert "scheduler fixed-share, time slice 2000 µs" in lines


def test_a_fact_that_was_not_read_is_not_shown_as_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    unread = tuple(UnreadPart(name, f"{name} cannot be read: EIO") for name in ("iommu_active", "kvm", "machine_id"))
    _print_host("gpu1", replace(host_facts([]), iommu_active=False, kvm=False, unread=unread))
    lines = capsys.readouterr().out.splitlines()
    assert "IOMMU     iommu_active cannot be read: EIO" in lines and "KVM       kvm cannot be read: EIO" in lines
    assert "not read  machine_id cannot be read: EIO" in lines
    assert not any("not active" in line or "not usable" in line for line in lines)


def test_the_fabric_the_links_and_the_matrix_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    links = (
        NvLinks((0, 1), is_active=True, peer="0000:c5:00.0", peer_kind="switch", version=4),
        NvLinks((2,), is_active=False, version=4),
        NvLinks((3,), is_active=True),
    )
    fabric = FabricFacts("completed", "00000000-0000-0000-0000-000000000000", 7, ("degraded bandwidth",))
    place = GpuTopology("pci0000:40", ("0000:40:01.0",), links, fabric, 1)
    gpus = [replace(whole_card(f"0000:{bus}:00.0"), topology=place) for bus in ("41", "81")]
    print_gpu(gpus[0])
    print_topology(topology_of(gpus))
    lines = capsys.readouterr().out.splitlines()
    for line in (
        "  PCIe          pci0000:40 > 0000:40:01.0",
        "  NVLink        0,1 to switch 0000:c5:00.0, version 4",
        "  NVLink        2 not active, version 4",
        "  NVLink        3 to something of unknown address",
        "  fabric        completed, cluster 00000000-0000-0000-0000-000000000000, clique 7, degraded bandwidth",
        "topology    0       1",
        " 1 81:00.0  fabric  -",
        "  fabric  NVLink through NVSwitch",
    ):
        assert line in lines, line
    print_topology(topology_of(gpus[:1]))
    assert capsys.readouterr().out == ""
