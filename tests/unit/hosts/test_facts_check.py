# SPDX-License-Identifier: Apache-2.0
"""Facts of a hostile host: CPU lists, which placement writes out, the topology, which it compares, and metadata."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host
from vgpuctl.agent.wire.decode import WireError
from vgpuctl.agent.wire.facts import FabricFacts, GpuTopology, NvLinks
from vgpuctl.agent.wire.memory import NumaNode
from vgpuctl.agent.wire.migration import LONGEST_METADATA, GpuMigration, VgpuMigration
from vgpuctl.hosts.facts_check import check_facts

HOSTILE = {
    "many CPUs of many ranges": (NumaNode(0, ",".join(["0-65535"] * 2), 1),),
    "many CPUs of many nodes": tuple(NumaNode(number, "0-65535", 1) for number in range(2)),
    "many threads": (NumaNode(0, "0-1", 1, cores=("0-65535", "0,1")),),
    "a range that ends before it begins": (NumaNode(0, "9-3", 1),),
    "a core without a CPU": (NumaNode(0, "0-1", 1, cores=("",)),),
    "no list": (NumaNode(0, "0;1", 1),),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_lists_that_no_host_has_are_refused_with_their_field(what: str) -> None:
    with pytest.raises(WireError) as refused:
        check_facts(replace(a40_host().facts, numa_nodes=HOSTILE[what]))
    assert refused.value.path.startswith("numa_nodes[")


def test_nodes_of_memory_alone_and_cores_with_threads_are_accepted() -> None:
    nodes = (NumaNode(0, "0-3,8-11", 1, cores=("0,8", "1,9")), NumaNode(1, "", 1))
    check_facts(replace(a40_host().facts, numa_nodes=nodes))


BAD_PLACES = {
    "root": GpuTopology(root="pci"),
    "bridges": GpuTopology(bridges=("0000:40:01.0",) * 65),
    "bridges[0]": GpuTopology(bridges=("../../x",)),
    "nvlinks": GpuTopology(nvlinks=(NvLinks(tuple(range(257)), is_active=True),)),
    "nvlinks[0].peer": GpuTopology(nvlinks=(NvLinks((0,), is_active=True, peer="switch"),)),
    "nvlinks[0].peer_kind": GpuTopology(nvlinks=(NvLinks((0,), is_active=True, peer_kind="\x1b[2J"),)),
    "nvlinks[0].numbers": GpuTopology(nvlinks=(NvLinks((1000,), is_active=True),)),
    "fabric.state": GpuTopology(fabric=FabricFacts("completed\n")),
    "fabric.cluster_uuid": GpuTopology(fabric=FabricFacts("completed", "all", 1)),
    "fabric.faults": GpuTopology(fabric=FabricFacts("completed", faults=("bad",) * 33)),
    "fabric.faults[0]": GpuTopology(fabric=FabricFacts("completed", faults=("b" * 90,))),
}


@pytest.mark.parametrize("field", BAD_PLACES)
def test_a_topology_that_no_host_has_is_refused_with_its_field(field: str) -> None:
    facts = a40_host().facts
    with pytest.raises(WireError) as refused:
        check_facts(replace(facts, gpus=(replace(facts.gpus[0], topology=BAD_PLACES[field]),)))
    assert refused.value.path == f"gpus[0].topology.{field}"


def test_the_topology_of_a_board_with_nvswitch_is_accepted() -> None:
    links = (NvLinks(tuple(range(18)), is_active=True, peer="0000:05:00.0", peer_kind="switch", version=4),)
    fabric = FabricFacts("completed", "00000000-0000-0000-0000-000000000000", 0, ("degraded bandwidth",))
    place = GpuTopology("pci0000:40", ("0000:40:01.0", "0000:41:00.0", "0000:42:04.0"), links, fabric, 3)
    facts = a40_host().facts
    check_facts(replace(facts, gpus=(replace(facts.gpus[0], topology=place),)))


BAD_MIGRATION = {
    "metadata": GpuMigration(metadata="A" * (2 * LONGEST_METADATA + 1)),
    "signature": GpuMigration(signature="x" * 5000),
    "host_driver": GpuMigration(host_driver="580.65\x1b[2J"),
    "read_mb_s": GpuMigration(read_mb_s=1 << 40),
    "vgpus": GpuMigration(vgpus=(VgpuMigration(),) * 5000),
    "vgpus[0].metadata": GpuMigration(vgpus=(VgpuMigration(metadata="A\n"),)),
    "vgpus[0].device": GpuMigration(vgpus=(VgpuMigration(device="../../x"),)),
    "vgpus[0].vm_uuid": GpuMigration(vgpus=(VgpuMigration(vm_uuid="all"),)),
    "vgpus[0].guest_driver": GpuMigration(vgpus=(VgpuMigration(guest_driver="newest"),)),
    "vgpus[0].state_bytes": GpuMigration(vgpus=(VgpuMigration(state_bytes=(1 << 61)),)),
}


@pytest.mark.parametrize("field", BAD_MIGRATION)
def test_metadata_that_no_host_has_is_refused_with_its_field(field: str) -> None:
    facts = a40_host().facts
    with pytest.raises(WireError) as refused:
        check_facts(replace(facts, gpus=(replace(facts.gpus[0], migration=BAD_MIGRATION[field]),)))
    assert refused.value.path == f"gpus[0].migration.{field}"


def test_what_nvml_tells_of_moves_is_accepted() -> None:
    vgpus = (
        VgpuMigration("0000:41:00.4", "11111111-2222-4333-8444-555555555555", "AQAA", "580.65.06", 0x1A0001),
        VgpuMigration("11111111-2222-4333-8444-555555555555"),
    )
    facts, told = a40_host().facts, GpuMigration("AQAAAA==", "2235", "580.105.06", (1, 2), vgpus=vgpus)
    check_facts(replace(facts, gpus=(replace(facts.gpus[0], migration=told),)))
