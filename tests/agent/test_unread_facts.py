# SPDX-License-Identifier: Apache-2.0
"""A fact of the host that cannot be read loses itself alone, and is named."""

from pathlib import Path

import pytest

from tests.agent import machine
from vgpuctl.agent.dispatch import answer, read_facts
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Request, reply_from_json, reply_to_json
from vgpuctl.agent.wire.facts import HostFacts

# (file, the facts that are of it)
FILES = [
    ("/etc/os-release", {"operating_system", "distribution"}),
    ("/etc/machine-id", {"machine_id"}),
    ("/sys/fs/selinux/enforce", {"selinux"}),
    ("/proc/cmdline", {"kernel_command_line"}),
    ("/proc/sys/kernel/hostname", {"hostname"}),
    ("/proc/sys/kernel/osrelease", {"kernel", "iommufd_driver"}),
    ("/proc/meminfo", {"memory_mib", "memory_available_mib"}),
    ("/proc/net/fib_trie", {"addresses"}),
    ("/sys/devices/system/cpu/online", {"cpus"}),
    ("/etc/vgpuctl/manifest.json", {"boot", "installed"}),
    ("/proc/mounts", {"hugepages"}),
]
PF = "0000:41:00.0"
CLOCKS = ("read_at", "unread")


def host_of(folder: Path) -> Host:
    return Host(str(machine.build(folder, machine.BASE, machine.a40(driver="vfio-pci"))))


def close(host: Host, path: str) -> None:
    """Put a folder where a file is read: whoever reads it gets EISDIR, root too."""
    place = Path(host.path(path))
    place.unlink(missing_ok=True)
    place.mkdir(parents=True)


@pytest.mark.parametrize(("path", "names"), FILES, ids=[path for path, _ in FILES])
def test_an_unreadable_file_loses_its_own_facts_alone(path: str, names: set[str], tmp_path: Path) -> None:
    host = host_of(tmp_path / "root")
    whole = read_facts(host)
    close(host, path)
    reply = answer(host, Request("facts"))
    assert reply.facts is not None and reply_from_json(reply_to_json(reply)) == reply
    found = reply.facts
    assert {one.name for one in found.unread} == names
    assert all(path in one.problem for one in found.unread), found.unread
    for name in set(HostFacts.__dataclass_fields__) - names - set(CLOCKS):
        assert getattr(found, name) == getattr(whole, name), name
    assert found.gpus and found.gpus[0].problems == whole.gpus[0].problems


@pytest.mark.parametrize("path", ["/etc/os-release", "/sys/fs/selinux/enforce", "/proc/cpuinfo", "/proc/stat"])
def test_an_unreadable_file_loses_no_diagnostics_beside_it(path: str, tmp_path: Path) -> None:
    host = host_of(tmp_path / "root")
    close(host, path)
    for call in ("diagnostics", "health", "readings"):
        assert answer(host, Request(call)).problem is None, call


def test_without_the_boot_nothing_is_told(tmp_path: Path) -> None:
    """Everything that is noted of a host is of one of its boots."""
    host = host_of(tmp_path / "root")
    close(host, "/proc/sys/kernel/random/boot_id")
    problem = answer(host, Request("facts")).problem
    assert problem is not None and "boot_id" in problem.message


UUID = "c73f1fa6-489e-4834-9476-d70dabd98c40"


@pytest.mark.parametrize("path", [f"/sys/bus/mdev/devices/{UUID}/nvidia/vgpu_params", "/proc/77/cmdline"])
def test_a_part_of_an_mdev_that_cannot_be_read_is_a_problem_of_its_card_alone(path: str, tmp_path: Path) -> None:
    trees = (
        machine.a40(),
        machine.mdev_types(PF, available={"558": 23}),
        machine.active_mdev(UUID, PF, "nvidia-558", group=40),
        machine.holder(77, "/dev/vfio/40"),
    )
    host = Host(str(machine.build(tmp_path / "root", machine.BASE, *trees)))
    close(host, path)
    facts = read_facts(host)
    assert facts.unread == ()
    [gpu] = facts.gpus
    assert [one.uuid for one in gpu.mdevs] == [UUID]
    assert any(path in one for one in gpu.unread) and set(gpu.unread) <= set(gpu.problems)


def test_what_is_read_last_of_a_card_is_among_its_problems_too(tmp_path: Path) -> None:
    host = host_of(tmp_path / "root")
    close(host, f"/sys/bus/pci/devices/{PF}/reset_method")
    [gpu] = read_facts(host).gpus
    assert any("reset_method" in one for one in gpu.unread) and any("reset_method" in one for one in gpu.problems)
