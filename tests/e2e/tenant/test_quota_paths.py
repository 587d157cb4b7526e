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
    (
        Resource.IOPS,
        "10000000",
        (
            ("create-vm", "more", *VM),
            ("create-vm", "more", *VM, "--disk-iops", "1"),
            ("attach-disk", "web", "data,size=32MiB,iops=500"),
            ONBOARD,
        ),
    ),
    (
        Resource.BANDWIDTH,
        "400000",
        (
            ("create-vm", "more", *VM[:4], "--network", "front", "--bandwidth", "1", *HOST),
            ("attach-nic", "gpu", "front"),
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
    (Resource.VPN_CONNECTIONS, "0", ()),
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


_LIKE_OTHERS = pytest.mark.long("tests/e2e/tenant/test_quota_paths.py::test_no_command_takes_more_than_the_quota")
_BY_PATHS_OF_OTHERS = (Resource.VCPUS, Resource.COMPUTE, Resource.IOPS, Resource.BANDWIDTH)


@pytest.mark.parametrize(
    ("resource", "limit", "paths"),
    [
        pytest.param(*one, id=str(one[0]), marks=_LIKE_OTHERS if one[0] in _BY_PATHS_OF_OTHERS else ())
        for one in PATHS
        if one[2]
    ],
)
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


CEILING_FILE = """
version: 1
tenant: acme
vms:
  - {name: filed, vcpus: 1, memory: 96MiB, disk: {size: 64MiB, iops: 600}, network: none, host: sim-001}
"""
# A ceiling, and commands of which each asks for more.
CEILINGS: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    (
        "each:disk-iops=500",
        (
            ("create-vm", "more", *VM, "--disk-iops", "501"),
            ("create-vm", "more", *VM, "--data-disk", "d,size=32MiB,iops=501"),
            ("create-vm", "more", *VM, "--disk-iops", "501", "--queue"),
            ("attach-disk", "web", "data,size=32MiB,iops=501"),
            ONBOARD,
        ),
    ),
    ("each:disk-mbps=20", (("create-vm", "more", *VM, "--disk-mbps", "21"),)),
    ("each:nic-mbps=100", (("attach-nic", "gpu", "front", "--bandwidth", "101"),)),
    ("each:cpu-limit=50%", (("create-vm", "more", *VM, "--cpu-limit", "51%"),)),
    ("each:cpu-weight=300", (("create-vm", "more", *VM, "--cpu-weight", "301"),)),
)


@pytest.mark.parametrize(("ceiling", "paths"), CEILINGS, ids=[one[0] for one in CEILINGS])
def test_no_command_asks_for_more_than_a_ceiling(
    filled: tuple[Operator, Path], ceiling: str, paths: tuple[tuple[str, ...], ...], tmp_path: Path
) -> None:
    operator, name = filled[0], ceiling.partition("=")[0]
    file = tmp_path / "acme.yml"
    file.write_text(CEILING_FILE)
    operator.does("set-quota", "acme", ceiling)
    try:
        for path in paths:
            command = tuple(str(file) if one == "FILE" else one for one in path)
            refused = operator.is_refused(*command, *(() if path[0] == "onboard" else ACME))
            assert refused["reference"] == "quota-exceeded" and refused["exit_code"] == 9, (command, refused)
            assert name.removeprefix("each:") in refused["message"], (command, refused)
            assert f"set-quota acme {name}=" in refused["hint"], (command, refused)
        assert operator.json("repair") == []
        assert operator.does("list-queue", "-o", "name").out == ""
    finally:
        operator.does("set-quota", "acme", f"{name}=none")


def test_what_is_to_come_above_a_later_ceiling_is_told_what_to_do(filled: tuple[Operator, Path]) -> None:
    operator, _file = filled
    operator.does("set-quota", "acme", "vms=2")
    operator.does("create-vm", "later", *ACME, *VM, "--disk-iops", "600", "--queue")
    operator.does("create-node-pool", "nodes", *ACME, "--role", "k3s", "--max", "1", *VM, "--cpu-limit", "60%")
    operator.does("set-quota", "acme", "vms=none")
    try:
        (waiting,) = operator.json("list-queue")["queue"]
        assert waiting["expected_at"] is not None
        warned = operator.does("set-quota", "acme", "each:disk-iops=500", "each:cpu-limit=50%").err
        raising = "ask for less, or raise it: vgpuctl set-quota acme"
        asked = "asks for more and is refused from now on"
        later = "acme/later, which waits in the queue,"
        first = "disk-iops of the first disk: 600 asked, 500 is the most"
        assert f"warning: {later} {asked}: {first}: {raising} each:disk-iops=600" in warned
        cpu = "cpu-limit of its vCPUs: 60% asked, 50% is the most"
        assert f"warning: each new node of pool acme/nodes {asked}: {cpu}: {raising} each:cpu-limit=60%" in warned
        assert "to bring it below: vgpuctl resize-vm acme/web --disk-iops 500 --cpu-limit 50%; to allow it" in warned
        (waiting,) = operator.json("list-queue")["queue"]
        assert waiting["expected_at"] is None
        operator.does("controller", "--once", "--shutdown-timeout", "0")
        (waiting,) = operator.json("list-queue")["queue"]
        assert waiting["expected_at"] is None
        assert waiting["entry"]["reason"] == (f"above a ceiling of tenant acme: {first}; {raising} each:disk-iops=600")
    finally:
        operator.does("set-quota", "acme", "vms=none", "each:disk-iops=none", "each:cpu-limit=none")
        operator.run("leave-queue", "later", *ACME)
        operator.run("delete-node-pool", "nodes", *ACME, "--yes")


def test_a_vm_gets_its_tenants_limits_and_keeps_what_it_had_before_them(filled: tuple[Operator, Path]) -> None:
    operator, _file = filled
    limits = ("each:disk-iops=500", "default:disk-iops=100", "each:nic-mbps=200", "each:cpu-limit=50%")
    warned = operator.does("set-quota", "acme", *limits).err
    assert "acme/web stays above it: disk-iops of the first disk: no limit now, 500 is the most" in warned
    operator.does("set-quota", "acme", "over-promise=limit")
    operator.does("set-quota", "acme", "over-promise=stop")
    text = operator.does("show-tenant", "acme").out
    assert "default:disk-iops 100" in text and "over-promise stop" in text and "each:cpu-limit 50%" in text
    for tenant in (operator.json("show-tenant", "acme")["tenant"], operator.json("list-tenants")[0]):
        shown = {one["resource"]: (one["used"], one["limit"], one["borrowed"]) for one in tenant["quotas"]}
        assert shown["over-promise"] == (None, "stop", None), "the policy's word, not its place among them"
        assert shown["each:disk-iops"] == (None, 500, None), "nothing of it adds up"
    event = list(operator.json("list-events", "--kind", "quota-set"))[-1]
    assert (event["before"], event["after"]) == ({"over-promise": "limit"}, {"over-promise": "stop"})
    try:
        assert "more than the ceiling" in operator.is_refused("set-quota", "acme", "default:disk-iops=501")["message"]
        explained = operator.json("explain-vm", "more", *ACME, *VM, "--disk-iops", "501")[0]
        assert (explained["fits"], "501 asked, 500 is the most" in explained["quota"]) == (False, True)
        above = operator.json("capacity", *ACME, *VM, "--disk-iops", "501")
        assert (above["now"], above["quota"], above["hosts_take"] > 0) == (0, {"each:disk-iops": 0}, True)
        below = operator.json("capacity", *ACME, *VM, "--disk-iops", "500")
        assert (below["now"], below["quota"]) == (above["hosts_take"], {})
        operator.does("create-vm", "limited", *ACME, *VM)
        request = operator.json("show-vm", "limited", *ACME)["vm"]["request"]
        assert (request["disk"]["iops"], request["cpu_limit"]) == (100, 50)
        xml = operator.does("render-vm", "limited", *ACME, *VM).out
        assert "<quota>50000</quota>" in xml and "<total_iops_sec>100</total_iops_sec>" in xml
        assert operator.json("create-vm", "limited", *ACME, *VM)[0]["changed"] is False
        operator.does("attach-nic", "limited", "front", *ACME)
        operator.does("attach-disk", "limited", "more,size=32MiB", *ACME)
        request = operator.json("show-vm", "limited", *ACME)["vm"]["request"]
        assert [one["iops"] for one in request["data_disks"]] == [100]
        assert 200 in (request["bandwidth_mbps"], *(one["bandwidth_mbps"] for one in request["nics"]))
        assert "broken" not in operator.run("check-vm", "limited", *ACME).out
        operator.does("set-quota", "acme", *(f"{one.partition('=')[0]}=none" for one in limits))
        same = ("limited", *ACME, *VM[:4], "--network", "front", *VM[6:], "--data-disk", "more,size=32MiB")
        assert operator.json("create-vm", *same)[0]["changed"] is False, "though no default gives it its limits now"
        other = operator.is_refused("create-vm", *same, "--cpu-limit", "60%")
        assert other["context"] == ["cpu_limit: 50% there, 60% wanted"], other
        operator.does("set-quota", "acme", "each:disk-iops=50")
        operator.does("detach-nic", "limited", "front", *ACME, "--last")
        operator.does("delete-vm", "limited", *ACME, "--yes", "--timeout", "0", "--keep-disk", "1d")
        refused = operator.is_refused("restore-vm", "limited", *ACME)
        assert "disk-iops of the first disk: 100 asked, 50 is the most" in str(refused["context"])
        assert refused["hint"].endswith("so raise it: vgpuctl set-quota acme each:disk-iops=100"), refused
        operator.does("set-quota", "acme", "each:disk-iops=none")
        operator.does("restore-vm", "limited", *ACME)
    finally:
        operator.does("set-quota", "acme", "over-promise=none", *(f"{one.partition('=')[0]}=none" for one in limits))
        operator.run("delete-vm", "limited", *ACME, "--yes", "--timeout", "0")
