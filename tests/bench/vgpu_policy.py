# SPDX-License-Identifier: Apache-2.0
"""The shipped vGPU placement behind the interface of the vGPU placement benchmark: `vgpu_policy.py:make`.

It asks `scheduler.Fleet` under the default policy, as `scheduler.place` does for each `create-vm`, and holds
no placement rule of its own. The fleet is kept between requests and told of each VM that comes or goes; a fresh one
answers the same (tests/unit/scheduler/test_fleet.py). A whole card of any model is asked for as `--gpu 'memory>=SIZE'`,
because a card that is set up for vGPUs is given away as the vGPU of all its framebuffer.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import GIB, host_facts, lease
from vgpuctl import catalog
from vgpuctl.agent.wire.facts import Gpu, VgpuType
from vgpuctl.model.gpu_request import GpuRequest, parse_gpu_request
from vgpuctl.model.lease import Lease
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.fleet import Fleet

BOARDS = {
    "A40": "nvidia-a40",
    "L40S": "nvidia-l40s",
    "A100": "nvidia-a100-pcie-80gb",
    "H100": "nvidia-h100-pcie-80gb",
}

Answer = tuple[int, list[tuple[int, int]]]
"""The number of the host, and number and GiB of each of its GPUs that is used."""


class Adapter:
    """A fleet of `place`, with the hosts and GPUs numbered as the benchmark numbers them."""

    def __init__(self, hosts: Sequence[Mapping[str, Any]]) -> None:
        self._numbers = {host["name"]: number for number, host in enumerate(hosts)}
        self._boards = {gpu["board"]: gpu for host in hosts for gpu in host["gpus"]}
        self._fleet = Fleet(_capacity(host) for host in hosts)
        self._held: dict[int, tuple[str, list[Lease]]] = {}

    def place(self, request: Mapping[str, Any]) -> Answer | None:
        """Place one request of the benchmark and count it as taken; None when it fits nowhere."""
        number = request["number"]
        wanted = VmRequest(f"vm-{number}", "bench", (self._gpu_request(request),), vcpus=1, memory_mib=1)
        placement = self._fleet.place(wanted)
        if placement is None:
            return None
        leases = [
            replace(lease(placement.host, one, vm_name=wanted.name, index=index), id=f"{number}/{index}")
            for index, one in enumerate(placement.shares)
        ]
        self._held[number] = (placement.host, leases)
        self._fleet.take(*self._held[number])
        parts = [(_number(one.gpu), (one.framebuffer_mib or 0) // GIB) for one in placement.shares]
        return self._numbers[placement.host], parts

    def release(self, number: int) -> None:
        """Delete the VM of a request that was placed."""
        self._fleet.release(*self._held.pop(number))

    def _gpu_request(self, request: Mapping[str, Any]) -> GpuRequest:
        if request["kind"] == "passthrough":
            smallest = min(board["framebuffer_gib"] for board in self._boards.values())
            return parse_gpu_request(f"{request['count']}*memory>={smallest}GiB")
        if request["kind"] == "memory":
            return parse_gpu_request(f"memory>={request['gib']}GiB")
        return parse_gpu_request(self._boards[request["board"]]["profiles"][request["gib"]])


def make(hosts: Sequence[Mapping[str, Any]], seed: int) -> Adapter:
    """The policy on an empty fleet. seed: not used, equal requests get equal answers."""
    return Adapter(hosts)


def _capacity(host: Mapping[str, Any]) -> HostCapacity:
    gpus = [_gpu(number, described) for number, described in enumerate(host["gpus"])]
    facts = host_facts(gpus, hostname=host["name"], cpus=1 << 12, memory_mib=1 << 40)
    return HostCapacity(host["name"], facts)


def _gpu(number: int, described: Mapping[str, Any]) -> Gpu:
    """An empty card that offers the types of the description, with as many VFs as the smallest of them needs."""
    board = catalog.board(BOARDS[described["board"]])
    functions = max(described["sizes"].values())
    emulated = EmulatedGpu(board, f"0000:{number + 1:02x}:00.0", "vf-profile", functions).facts()
    types = [
        VgpuType(
            type_id=str(gib),
            name=described["profiles"][gib],
            full_name=described["profiles"][gib],
            framebuffer_mib=gib * GIB,
            max_instances=most,
            creatable=most,
        )
        for gib, most in described["sizes"].items()
    ]
    return replace(emulated, memory_mib=described["framebuffer_gib"] * GIB, types=tuple(types))


def _number(address: str) -> int:
    return int(address.split(":")[1], 16) - 1
