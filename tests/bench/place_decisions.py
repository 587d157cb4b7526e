# SPDX-License-Identifier: Apache-2.0
"""Decisions per second of place() for vGPUs and whole cards, against the size of the fleet.

`python -m tests.bench.place_decisions [--policy P] [--gpus 1000,10000,50000] [--several N] [--nodes M]`: hosts of four
kinds are filled to 90 % of what they take, then one VM goes and another comes. Timed is the decision with counting the
lease as taken, and apart from it the giving back. N in 100 of the VMs want two to four GPUs. A host has M NUMA nodes.
CPU time of this process, so that a busy machine disturbs less.
"""

import argparse
import random
import time
from dataclasses import replace

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import host, lease
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.memory import NumaNode
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.lease import Lease
from vgpuctl.model.numa import Footprint
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.policy import parse_policy
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fleet import Fleet
from vgpuctl.scheduler.guest_place import footprint_of
from vgpuctl.sharing.kinds import kind_of

GIB = 1024
KINDS = [
    ("nvidia-a40", "vf-profile", 32, 8, 128, 1024),
    ("nvidia-l40s", "vf-profile", 32, 4, 64, 512),
    ("nvidia-a16", "vf-profile", 16, 4, 64, 512),
    ("nvidia-t4", "mdev", 0, 2, 48, 256),
]
SINGLE = ["A40-4Q", "A40-8Q", "A40-12Q", "A40-24Q", "A40-48Q", "L40S-8Q", "L40S-16Q", "L40S-24Q", "A16-4Q", "A16-8Q"]
SINGLE += ["T4-4Q", "T4-8Q", "T4-16Q", "memory>=16GiB,series=Q"]
SEVERAL = ["2*A40-48Q", "4*A40-48Q", "2*L40S-48Q", "2*T4-16Q"]


def hosts_of(gpus: int, nodes: int) -> list[HostCapacity]:
    """Hosts of the four kinds in turn, each with this many NUMA nodes."""
    facts = []
    for key, sharing, functions, cards, cpus, memory_gib in KINDS:
        board = catalog.board(key)
        emulated = [EmulatedGpu(board, f"0000:{0x11 + 7 * card:02x}:00.0", sharing, functions) for card in range(cards)]
        facts.append(_with_nodes(host("any", *emulated, cpus=cpus, memory_mib=memory_gib * GIB).facts, nodes))
    there = 0
    found: list[HostCapacity] = []
    while there < gpus:
        kind = facts[len(found) % len(facts)]
        found.append(HostCapacity(f"host-{len(found):06d}", kind))
        there += len(kind.gpus)
    return found


def _with_nodes(facts: HostFacts, nodes: int) -> HostFacts:
    """CPUs, memory and cards in equal parts on so many nodes."""
    cpus, memory_mib = facts.cpus // nodes, facts.memory_mib // nodes
    there = tuple(NumaNode(node, f"{node * cpus}-{(node + 1) * cpus - 1}", memory_mib) for node in range(nodes))
    cards = tuple(replace(gpu, numa_node=at * nodes // len(facts.gpus)) for at, gpu in enumerate(facts.gpus))
    return replace(facts, numa_nodes=there, gpus=cards)


def measure(policy: str, gpus: int, several: int, decisions: int, nodes: int) -> tuple[int, int, float, float, float]:
    """Hosts, VMs, decisions and give-backs per second of CPU time, seconds to build the fleet."""
    chance = random.Random(1)
    capacities = hosts_of(gpus, nodes)
    began = time.process_time()
    fleet = Fleet(capacities, (), parse_policy(policy))
    built = time.process_time() - began
    held: list[tuple[str, list[Lease], Footprint]] = []
    made = 0

    def wish() -> VmRequest:
        text = chance.choice(SEVERAL if chance.randrange(100) < several else SINGLE)
        return VmRequest("vm", "acme", (parse_gpu_request(text),), memory_mib=chance.choice([4, 8, 16]) * GIB)

    def create() -> tuple[bool, float]:
        nonlocal made
        request = wish()
        began = time.process_time()
        placement = fleet.place(request)
        spent = time.process_time() - began
        if placement is None:
            return False, spent
        made += 1
        leases = []
        for index, one in enumerate(placement.shares):
            one = kind_of(one.sharing).named(one, f"uuid-{made}-{index}")
            leases.append(replace(lease(placement.host, one, index=index), id=f"{made}/{index}"))
        held.append((placement.host, leases, footprint_of(request, placement)))
        began = time.process_time()
        fleet.take(*held[-1])
        return True, spent + time.process_time() - began

    misses = 0
    while misses < 20:
        misses += not create()[0]
    for _ in range(len(held) // 10):
        fleet.release(*held.pop(chance.randrange(len(held))))
    placing = giving = 0.0
    for _ in range(decisions):
        at = chance.randrange(len(held))
        held[at], held[-1] = held[-1], held[at]
        gone = held.pop()
        began = time.process_time()
        fleet.release(*gone)
        giving += time.process_time() - began
        placing += create()[1]
    return len(capacities), len(held), decisions / placing, decisions / giving, built


def main() -> None:
    """Print one line per size of the fleet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="fragmentation")
    parser.add_argument("--gpus", default="1000,10000,50000")
    parser.add_argument("--several", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--decisions", type=int, default=5000)
    arguments = parser.parse_args()
    for gpus in (int(text) for text in arguments.gpus.split(",")):
        hosts, vms, placing, giving, built = measure(
            arguments.policy, gpus, arguments.several, arguments.decisions, arguments.nodes
        )
        print(
            f"{arguments.policy:14} GPUs {gpus:6} hosts {hosts:6} VMs {vms:6}  {placing:7.0f} decisions/s"
            f"  {giving:7.0f} released/s  built in {built:.1f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
