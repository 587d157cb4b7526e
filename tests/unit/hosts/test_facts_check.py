# SPDX-License-Identifier: Apache-2.0
"""CPU lists of a hostile host, which placement writes out."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host
from vgpuctl.agent.wire.decode import WireError
from vgpuctl.agent.wire.facts import NumaNode
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
