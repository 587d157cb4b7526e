# SPDX-License-Identifier: Apache-2.0
"""Disks and interfaces of a real Linux guest come and go while it runs; it says itself what it sees.

Everything is real: sshd, libvirtd, QEMU (TCG), its PCI hot-plug, the kernel and its drivers, and taps on a bridge.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import libvirt
import pytest

from tests.e2e.guest_console import wait_for_words
from tests.e2e.kills import kill_after
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.plugging_guest import ARGUMENTS, READY, initramfs
from tests.e2e.real_host import real_host
from tests.e2e.small_vms import ACME
from tests.lab_fixtures import lab_kernel
from vgpuctl.guests.facts.disk_facts import domain_disks
from vgpuctl.guests.facts.nic_facts import macs_of
from vgpuctl_lab.kernel import Kernel

__all__ = ["lab_kernel"]

SECTORS = 2048
"""Sectors of a MiB."""


@pytest.fixture(scope="module")
def operator(lab_kernel: Kernel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator of this machine, where the VM `web` runs with one disk, two interfaces and three spare ports."""
    home = tmp_path_factory.mktemp("live")
    (home / "initrd").write_bytes(initramfs(lab_kernel))
    with real_host(home) as operator:
        operator.does("create-tenant", "acme")
        for kind, path in (("kernel", lab_kernel.image), ("initrd", home / "initrd")):
            operator.does(
                "register-image", kind, "--path", str(path), "--kind", kind, "--format", "raw", "--host", "gpu1"
            )
        for number, name in enumerate(("front", "back")):
            cidr = f"10.7{number}.0.0/24"
            operator.does("create-network", name, *ACME, "--cidr", cidr, "--host", "gpu1", "--isolated")
        boot = ("--kernel", "kernel", "--initrd", "initrd", "--kernel-args", ARGUMENTS)
        size = ("--vcpus", "1", "--memory", "192MiB", "--disk", "16MiB", "--spare-ports", "3")
        operator.does("create-vm", "web", *ACME, *size, "--network", "front", "--nic", "back", *boot)
        _says(operator, READY)
        yield operator


@pytest.fixture(autouse=True)
def nothing_is_to_be_repaired(operator: Operator) -> Iterator[None]:
    yield
    assert operator.json("repair") == []


def _says(operator: Operator, *words: str) -> None:
    for one in words:
        wait_for_words(operator, "web", f"guest: {one}", timeout_s=240)


def _devices(operator: Operator) -> tuple[list[str | None], list[str]]:
    """The serial numbers of the disks and the MAC addresses of the interfaces: the domain runs as it is defined."""
    found = []
    with libvirt_of(operator.inventory, "gpu1") as there:
        domain = there.connection.lookupByName("acme.web")
        for flags in (0, libvirt.VIR_DOMAIN_XML_INACTIVE):
            xml = domain.XMLDesc(flags)
            found.append(([one.serial for one in domain_disks(xml)], sorted(macs_of(xml))))
    assert found[0] == found[1]
    return found[0]


@contextmanager
def _standing_still(operator: Operator) -> Iterator[None]:
    """The guest's vCPUs do not run until the block ends."""
    with libvirt_of(operator.inventory, "gpu1") as there:
        domain = there.connection.lookupByName("acme.web")
        domain.suspend()
        try:
            yield
        finally:
            domain.resume()


def test_a_guest_sees_a_disk_come_grow_and_go(operator: Operator) -> None:
    attached = operator.json("attach-disk", "web", "data,size=8MiB,bus=virtio", *ACME)
    assert (attached["changed"], attached["outcome"]) == (True, "done")
    _says(operator, f"has disk data {8 * SECTORS}")
    operator.does("resize-disk", "web", "12MiB", "--disk", "data", *ACME)
    _says(operator, f"has disk data {12 * SECTORS}")
    assert _devices(operator)[0] == [None, "data"]
    detached = operator.json("detach-disk", "web", "data", *ACME)
    assert (detached["changed"], detached["outcome"]) == (True, "done")
    _says(operator, f"lost disk data {12 * SECTORS}")
    assert _devices(operator)[0] == [None]
    assert operator.json("detach-disk", "web", "data", *ACME)["changed"] is False
    operator.does("delete-disk", "data", *ACME, "--yes")


def test_a_guest_sees_an_interface_go_and_come_back_with_its_address(operator: Operator) -> None:
    """Its tap is on the network's bridge: the guest asks for an address there, and gets the one that is promised."""
    detached = operator.json("detach-nic", "web", "back", *ACME)
    assert (detached["changed"], detached["outcome"]) == (True, "done")
    _says(operator, f"lost interface {detached['mac_address']}")
    assert operator.json("show-network", "back", *ACME)["ports"] == []
    assert len(_devices(operator)[1]) == 1

    attached = operator.json("attach-nic", "web", "back", *ACME)
    assert (attached["changed"], attached["outcome"]) == (True, "done")
    mac = attached["mac_address"]
    _says(operator, f"has interface {mac}", f"address {attached['address']}")
    assert mac in _devices(operator)[1]


@pytest.mark.long(
    "tests/e2e/disk/test_attach_disk.py::test_a_killed_attach_is_finished_by_the_next_one",
    "tests/e2e/disk/test_snapshots.py::test_a_killed_snapshot_is_taken_by_the_next_run",
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
)
def test_what_is_killed_is_finished_by_repair_or_the_same_command(operator: Operator) -> None:
    def cut(after: str, *command: str) -> list[str]:
        """Kill a command after a side effect. Returns what `repair` says of it."""
        kill_after(operator, after, *command, *ACME)
        return [one["outcome"] for one in operator.json("repair")]

    attach = ("attach-disk", "web", "cut,size=8MiB,bus=scsi")
    assert cut("attach", *attach) == []
    _says(operator, f"has disk cut {8 * SECTORS}")
    assert operator.json(*attach, *ACME)["outcome"] == "done"
    resize = ("resize-disk", "web", "12MiB", "--disk", "cut")
    assert cut("resize", *resize) == []
    _says(operator, f"has disk cut {12 * SECTORS}")
    operator.does(*resize, *ACME)
    assert [one["size_bytes"] for one in operator.json("list-disks", *ACME)] == [12 * 2**20]
    assert cut("snapshot", "create-snapshot", "web", "cut") == []
    assert operator.json("create-snapshot", "web", "cut", *ACME)["changed"] is False
    assert cut("merge", "delete-snapshot", "web", "cut", "--yes") == []
    operator.does("delete-snapshot", "web", "cut", *ACME, "--yes")
    assert operator.json("list-snapshots", "web", *ACME) == []
    assert cut("detach", "detach-disk", "web", "cut") == ["freed"]
    operator.does("delete-disk", "cut", *ACME, "--yes")

    assert cut("detach", "detach-nic", "web", "back") == ["address freed"]
    assert operator.json("show-network", "back", *ACME)["ports"] == []
    assert cut("attach", "attach-nic", "web", "back") == []
    again = operator.json("attach-nic", "web", "back", *ACME)
    assert (again["changed"], again["outcome"]) == (False, "done")


@pytest.mark.long(
    "tests/e2e/disk/test_attach_disk.py::test_the_running_domain_has_a_detached_disk_until_it_stops",
    "tests/e2e/vm/test_attach_nic.py::test_an_interface_comes_at_the_next_start_and_goes_with_the_guest",
    "tests/integration/libvirt/test_live_disks.py::test_a_guest_that_keeps_its_disk_leaves_the_detach_pending",
)
def test_what_a_slow_guest_releases_later_is_freed_by_repair(operator: Operator) -> None:
    operator.does("attach-disk", "web", "slow,size=8MiB,bus=virtio", *ACME)
    _says(operator, f"has disk slow {8 * SECTORS}")
    with _standing_still(operator):
        disk = operator.json("detach-disk", "web", "slow", *ACME, "--timeout", "0")
        interface = operator.json("detach-nic", "web", "back", *ACME, "--timeout", "0")
        operator.does("create-snapshot", "web", "meanwhile", *ACME)
    assert (disk["outcome"], interface["outcome"]) == ("pending", "pending")
    _says(operator, f"lost disk slow {8 * SECTORS}", f"lost interface {interface['mac_address']}")
    assert sorted(one["outcome"] for one in operator.json("repair")) == ["address freed", "freed"]
    assert [len(one) for one in _devices(operator)] == [1, 1]
    operator.does("delete-disk", "slow", *ACME, "--yes")
    assert operator.json("delete-snapshot", "web", "meanwhile", *ACME, "--yes")["deleted"] == ["meanwhile"]


def test_its_disks_interfaces_and_cpus_are_limited_while_it_runs(operator: Operator) -> None:
    def disk() -> tuple[int, int]:
        with libvirt_of(operator.inventory, "gpu1") as there:
            told = there.connection.lookupByName("acme.web").blockIoTune("vda", libvirt.VIR_DOMAIN_AFFECT_LIVE)
        return told["total_iops_sec"], told["total_bytes_sec"]

    operator.does("resize-vm", "web", *ACME, "--disk-iops", "500", "--disk-mbps", "20")
    assert disk() == (500, 20_000_000)
    assert operator.run("check-vm", "web", *ACME).code == 0
    # libvirt limits interfaces by tc and CPUs by cgroups, which a machine may not give it.
    front = operator.json("show-vm", "web", *ACME)["interfaces"][0]["mac_address"]
    limited = operator.run("resize-vm", "web", *ACME, "--disk-iops", "600", "--bandwidth", "front=100")
    if limited.code:
        assert "Child process (tc " in limited.err and "rolled back completely" in limited.err, limited.err
        assert disk() == (500, 20_000_000)
    else:
        with libvirt_of(operator.inventory, "gpu1") as there:
            rates = there.connection.lookupByName("acme.web").interfaceParameters(front, libvirt.VIR_DOMAIN_AFFECT_LIVE)
        assert (rates["inbound.average"], rates["outbound.average"]) == (12_207, 12_207)
        operator.does("resize-vm", "web", *ACME, "--bandwidth", "none")
    limited = operator.run("resize-vm", "web", *ACME, "--cpu-limit", "50%")
    if limited.code:
        assert "cannot limit vCPUs of a VM that runs" in limited.err, limited.err
    else:
        with libvirt_of(operator.inventory, "gpu1") as there:
            assert there.connection.lookupByName("acme.web").schedulerParameters()["vcpu_quota"] == 50_000
        operator.does("resize-vm", "web", *ACME, "--cpu-limit", "none")
    operator.does("resize-vm", "web", *ACME, "--disk-iops", "none", "--disk-mbps", "none")
    assert disk() == (0, 0)
    assert operator.run("check-vm", "web", *ACME).code == 0
