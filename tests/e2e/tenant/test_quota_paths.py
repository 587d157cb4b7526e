# SPDX-License-Identifier: Apache-2.0
"""Each quota against each way to take what it counts; test_vpc_objects has those that need OVN."""

from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, operator
from vgpuctl.quota.resources import Resource

__all__ = ["operator"]

FLEET = (2, "a40")
HOST = ("--host", "sim-001")
PLAIN = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
VM = (*PLAIN, "--disk", "64MiB", "--gpu", "none", *HOST)
WITH_GPU = (*PLAIN, "--gpu", "A40-8Q", *HOST)
FILE = """
version: 1
tenant: acme
networks:
  more: {cidr: 10.7.0.0/24, host: sim-001}
vms:
  - {name: filed, vcpus: 1, memory: 96MiB, disk: 64MiB, network: front, host: sim-001, gpus: [A40-8Q]}
"""
ONBOARD = ("onboard", "FILE")

# Resource, a limit that is what the tenant has by then, and commands of which each takes more.
PATHS: tuple[tuple[Resource, str, tuple[tuple[str, ...], ...]], ...] = (
    (Resource.VMS, "2", (("create-vm", "more", *VM), ONBOARD)),
    (Resource.VCPUS, "2", (("create-vm", "more", *VM), ("resize-vm", "web", "--vcpus", "2"), ONBOARD)),
    (Resource.MEMORY, "192MiB", (("create-vm", "more", *VM), ("resize-vm", "web", "--memory", "128MiB"), ONBOARD)),
    (Resource.CARDS, "0", (("create-vm", "more", *PLAIN, "--gpu", "passthrough", *HOST),)),
    (
        Resource.FRAMEBUFFER,
        "8GiB",
        (("create-vm", "more", *WITH_GPU), ("attach-gpu", "gpu", "A40-8Q"), ("resize-vm", "gpu", "--gpu", "2*A40-8Q")),
    ),
    (
        Resource.COMPUTE,
        "0.2",
        (("create-vm", "more", *WITH_GPU), ("attach-gpu", "gpu", "A40-8Q"), ("resize-vm", "gpu", "--gpu", "2*A40-8Q")),
    ),
    (
        Resource.DISK,
        "64MiB",
        (
            ("create-vm", "more", *VM),
            ("attach-disk", "web", "data,size=32MiB"),
            ("resize-disk", "web", "96MiB"),
            ONBOARD,
        ),
    ),
    (Resource.SNAPSHOTS, "0", (("create-snapshot", "web", "before"),)),
    (
        Resource.NICS,
        "1",
        (("create-vm", "more", *VM[:4], "--network", "front", *HOST), ("attach-nic", "gpu", "front"), ONBOARD),
    ),
    (Resource.NETWORKS, "1", (("create-network", "back", "--cidr", "10.8.0.0/24", *HOST), ONBOARD)),
    (Resource.GPU_HOURS, "0", (("create-vm", "more", *WITH_GPU),)),
    (Resource.MIG_COMPUTE, "0", ()),
    (Resource.PUBLIC_ADDRESSES, "0", ()),
    (Resource.LOAD_BALANCERS, "0", ()),
)


def test_every_resource_has_its_paths() -> None:
    assert [resource for resource, _limit, _paths in PATHS if not isinstance(resource, Resource)] == []
    assert {resource for resource, _limit, _paths in PATHS} == set(Resource)


@pytest.fixture(scope="module")
def filled(operator: Operator, tmp_path_factory: pytest.TempPathFactory) -> tuple[Operator, Path]:
    """A tenant with a network, a VM with an interface and a disk, and one with a vGPU."""
    operator.does("create-network", "front", *ACME, "--cidr", "10.0.0.0/24", *HOST)
    operator.does("create-vm", "web", *ACME, *VM[:4], "--network", "front", *VM[6:])
    operator.does("create-vm", "gpu", *ACME, *WITH_GPU)
    file = tmp_path_factory.mktemp("file") / "acme.yml"
    file.write_text(FILE)
    return operator, file


@pytest.mark.parametrize(("resource", "limit", "paths"), PATHS, ids=[str(one[0]) for one in PATHS])
def test_no_command_takes_more_than_the_quota(
    filled: tuple[Operator, Path], resource: Resource, limit: str, paths: tuple[tuple[str, ...], ...]
) -> None:
    operator, file = filled
    operator.does("set-quota", "acme", f"{resource}={limit}")
    try:
        for path in paths:
            command = tuple(str(file) if one == "FILE" else one for one in path)
            whose = () if path[0] == "onboard" else ACME
            for rehearsed in ((), ("--dry-run",)):
                if rehearsed and path[0] in (
                    "attach-gpu",
                    "attach-nic",
                    "attach-disk",
                    "resize-disk",
                    "create-snapshot",
                ):
                    continue
                refused = operator.is_refused(*command, *whose, *rehearsed)
                assert refused["reference"] == "quota-exceeded", (command, refused)
                assert str(resource) in refused["message"], (command, refused)
                assert f"set-quota acme {resource}=" in refused["hint"], (command, refused)
        assert operator.json("repair") == []
        names = [one["vm"]["request"]["name"] for one in operator.json("list-vms")]
        assert sorted(names) == ["gpu", "web"]
        if resource is Resource.NETWORKS:  # `onboard` makes them before VMs, and what it made stays
            assert operator.does("list-networks", "-o", "name").out.split() == ["acme/front"]
    finally:
        operator.run("delete-network", "more", *ACME, "--yes")
        operator.does("set-quota", "acme", f"{resource}=none")


def test_what_a_tenant_has_already_is_not_asked_for_again(filled: tuple[Operator, Path]) -> None:
    """A VM that comes back has its disks, at the limit too; what does not fit is told before anything is built."""
    operator, _file = filled
    operator.does("create-vm", "back", *ACME, *VM)
    operator.does("set-quota", "acme", "disk=128MiB")
    try:
        operator.does("delete-vm", "back", *ACME, "--yes", "--timeout", "0", "--keep-disk", "1d")
        assert operator.is_refused("create-vm", "more", *ACME, *VM)["reference"] == "quota-exceeded"
        operator.does("restore-vm", "back", *ACME)
        operator.does("delete-vm", "back", *ACME, "--yes", "--timeout", "0")
        refused = operator.is_refused("create-vm", "more", *ACME, *VM, "--count", "2", "--gang")
        assert refused["reference"] == "quota-exceeded" and "128 MiB asked" in refused["context"][0], refused
        assert operator.is_refused("create-vm", "more", *ACME, *PLAIN, "--disk", "256MiB", "--queue")["exit_code"] == 9
        explained = operator.json("explain-vm", "more", *ACME, *PLAIN, "--disk", "96MiB", "--gpu", "none")[0]
        assert (explained["fits"], "disk" in explained["quota"]) == (False, True)
    finally:
        operator.does("set-quota", "acme", "disk=none")
