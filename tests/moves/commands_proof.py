# SPDX-License-Identifier: Apache-2.0
"""vgpuctl moves and suspends running VMs by real QEMU and real libvirt, and tells the truth where that fails.

`make test-moves` runs it. hosts_proof.py has the same two hosts without vgpuctl.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt
import pytest
import yaml

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME
from tests.e2e.witness import Witness
from tests.moves.hosts import MoveHost, Way, Words, make_device, qemu_status, wait_for, words_in

pytestmark = pytest.mark.timeout(1800)

SIZE = ("--memory", "64MiB", "--vcpus", "1", "--network", "none", "--spare-ports", "0")
BOOT = ("--kernel", "tiny", "--kernel-args", "move")
WEB = ("web", *ACME)
DOMAIN = "acme.web"
LIVE = ("move-vm", *WEB, "--live-only")
GPUS = {Way.PROFILE: "A40-8Q", Way.MDEV_VF: "A40-8Q", Way.MDEV_PF: "T4-4Q"}
DISKS = ("--disk", "16MiB", "--base-image", "idle", "--data-disk", "data,size=24MiB", "--hostname", "web")


@pytest.fixture(scope="session")
def operator(hosts: tuple[MoveHost, MoveHost], tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """An operator of both hosts: they trust the network between them, and each card has a label that says its way."""
    home: Path = tmp_path_factory.mktemp("operator")
    as_root = hosts[0].machine.inventory.read_text().replace('ansible_user: "operator"', 'ansible_user: "root"')
    inventory = home / "inventory.yml"
    inventory.write_text(as_root.replace("ansible_become: true", "ansible_become: false"))
    gpus = [{"match": {"address": way.card}, "labels": {"way": way.value}} for way in GPUS]
    for host in hosts:
        moves = {"network": "trusted", "address": host.record.network_address, "bandwidth_mbps": 10_000}
        file = home / "host_vars" / f"{host.name}.yml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump({"vgpu_moves": moves, "vgpu_placing": {"gpus": gpus}}))
    made = Operator(home, inventory, f"sqlite:///{home}/store.db")
    made.does("create-tenant", "acme")
    path = "/run/lab/guest/idle.img"
    made.does("register-image", "tiny", "--path", path, "--kind", "kernel", "--format", "raw", "--host", "a")
    checksum = hosts[0].run(f"sha256sum {path}").split()[0]
    made.does("register-image", "idle", "--volume", "idle.img", "--format", "raw", "--checksum", f"sha256:{checksum}")
    return made


@dataclass
class Fleet:
    """The two hosts and their operator, as a test of one VM uses them."""

    operator: Operator
    a: MoveHost
    b: MoveHost

    def state(self) -> dict[str, list[str]]:
        """All devices, domains and volumes of each host: equal means no leak."""
        return {host.name: Witness(host.machine).state() for host in (self.a, self.b)}

    def create(self, way: Way, *more: str, gpu: str = "") -> Words:
        """Create the VM `web` on the first host; what its guest says when its registers are written."""
        given = ("--gpu", gpu or GPUS[way], "--require-label", f"way={way}", *SIZE, *BOOT, *more)
        self.operator.does("create-vm", *WEB, "--limit", "a", *given)
        return self.says(self.a, after=1)

    def says(self, host: MoveHost, *, after: int = 0) -> Words:
        """Wait for a line of the guest with a later count."""
        return words_in(host, f"/var/log/libvirt/qemu/{DOMAIN}-serial.log", after=after)

    def vm(self) -> dict[str, Any]:
        """The VM as `list-vms --refresh` shows it."""
        (listed,) = self.operator.json("list-vms", "--refresh")
        assert isinstance(listed, dict)
        return listed

    def verdict(self, host: str) -> dict[str, Any]:
        """What the check says of a host."""
        told = self.operator.json("move-vm", *WEB, "--check")["verdicts"]
        (found,) = [one["verdict"] for one in told if one["host"] == host]
        assert isinstance(found, dict)
        return found

    def has_nothing_left(self) -> None:
        """Check that neither the store nor a host has something to repair."""
        assert self.operator.json("repair") == []
        assert self.operator.json("gc", "--dry-run") == []
        assert self.operator.json("list-reservations") == []

    def runs_on(self, host: MoveHost, before: Words, *, whole: bool = True) -> Words:
        """Check that the VM runs on this host alone, and that its memory and registers are as they were."""
        listed = self.vm()
        assert (listed["vm"]["host"], listed["vm"]["state"], listed["observed"]) == (host.name, "running", "running")
        assert {(one["host"], one["state"]) for one in listed["leases"]} == {(host.name, "running")}
        assert [one.name for one in (self.a, self.b) if one.has_domain(DOMAIN)] == [host.name]
        after = self.says(host, after=before.count)
        assert after.memory == before.memory
        marks = [mark for mark, _count in before.gpus]
        assert [mark for mark, _count in after.gpus] == (marks if whole else [0] * len(marks))
        return after

    def delete(self) -> None:
        """Delete the VM without waiting for its guest."""
        self.operator.does("delete-vm", *WEB, "--yes", "--timeout", "0")


@pytest.fixture
def fleet(operator: Operator, a: MoveHost, b: MoveHost) -> Iterator[Fleet]:
    """A fleet without a VM; after a test that has passed it is as it was."""
    made = Fleet(operator, a, b)
    operator.does("list-gpus", "--refresh")
    before = made.state()
    yield made
    for host in (a, b):
        host.end_faults()
    if operator.json("list-vms"):
        operator.run("repair")
        made.delete()
    assert made.state() == before


def states(host: MoveHost) -> list[str]:
    """What tells the vGPUs of a host that a VM has apart, wherever they go."""
    return sorted(one["state"] for one in host.vgpus() if one["in_use"] != "0")


def refused(fleet: Fleet, *command: str) -> str:
    """Run a move that must end with exit code 7; what it says."""
    done = fleet.operator.run(*command)
    assert done.code == 7, f"{done.code}\n{done.out}\n{done.err}"
    return done.err


def goes_along(fleet: Fleet, source: MoveHost, target: MoveHost, before: Words) -> Words:
    """Move the VM live, and check that all of it came along and nothing was left."""
    had = states(source)
    assert fleet.verdict(target.name)["kind"] == "live", fleet.verdict(target.name)
    moved = fleet.operator.json(*LIVE)
    assert (moved["way"], moved["from"], moved["to"]) == ("live", source.name, target.name)
    assert moved["downtime_s"] > 0
    after = fleet.runs_on(target, before)
    assert fleet.vm()["vm"]["problem"] is None
    assert (states(target), states(source)) == (had, [])
    fleet.has_nothing_left()
    return after


@pytest.mark.parametrize("way", GPUS)
def test_a_vm_moves_and_comes_back(fleet: Fleet, way: Way) -> None:
    before = fleet.create(way)
    there = goes_along(fleet, fleet.a, fleet.b, before)
    goes_along(fleet, fleet.b, fleet.a, there)
    fleet.operator.does("check-vm", *WEB)


def test_a_vm_with_two_vgpus_moves(fleet: Fleet) -> None:
    goes_along(fleet, fleet.a, fleet.b, fleet.create(Way.MDEV_VF, gpu="2*A40-8Q"))


def test_a_vm_moves_with_its_disks(fleet: Fleet) -> None:
    """An overlay on a base image that both hosts have, a data disk and a seed; the disks are copied while it runs."""
    before = fleet.create(Way.PROFILE, *DISKS)
    there = goes_along(fleet, fleet.a, fleet.b, before)
    goes_along(fleet, fleet.b, fleet.a, there)


@pytest.mark.parametrize("fault", ["move-header-refused", "move-refused"])
def test_a_state_that_is_refused_before_leaves_the_vm_where_it_runs(fleet: Fleet, fault: str) -> None:
    before = fleet.create(Way.MDEV_PF)
    had = fleet.state()
    (fleet.a if fault == "move-refused" else fleet.b).fault(Way.MDEV_PF, fault, 1)
    said = refused(fleet, *LIVE, "--trust-hosts")
    assert "cannot move domain acme.web from a to b" in said
    # QEMU resets a vGPU whose state it could not save.
    fleet.runs_on(fleet.a, before, whole=fault != "move-refused")
    assert fleet.state() == had
    fleet.has_nothing_left()


def test_a_suspended_vm_goes_on_after_a_reboot_on_another_vgpu(fleet: Fleet) -> None:
    before = fleet.create(Way.PROFILE)
    function = fleet.vm()["leases"][0]["share"]["function"]
    had = states(fleet.a)
    fleet.operator.does("suspend-vm", *WEB, "--hold", "release")
    assert states(fleet.a) == []
    fleet.a.reboot()
    taken = make_device(fleet.a, Way.PROFILE, GPUS[Way.PROFILE], int(function.rpartition(".")[2]))
    assert taken.address == function
    try:
        fleet.operator.does("resume-vm", *WEB)
        fleet.runs_on(fleet.a, before)
        assert fleet.vm()["leases"][0]["share"]["function"] != function
        assert states(fleet.a) == had
        fleet.has_nothing_left()
    finally:
        fleet.delete()
        taken.delete()


def test_a_resumed_vm_without_its_state_is_told(fleet: Fleet) -> None:
    before = fleet.create(Way.MDEV_PF)
    fleet.operator.does("suspend-vm", *WEB)
    fleet.a.fault(Way.MDEV_PF, "move-load-refused", 1)
    said = refused(fleet, "resume-vm", *WEB)
    assert "acme/web runs on a, but it lost the state of its vGPU on the way and must be restarted" in said
    fleet.runs_on(fleet.a, before, whole=False)


@contextmanager
def killed(fleet: Fleet) -> Iterator[None]:
    """A live move that is killed at the end of the block."""
    client = fleet.operator.start(*LIVE)
    try:
        yield
    finally:
        client.kill()
        client.wait()


def test_a_move_that_is_killed_while_the_state_is_sent_is_repaired(fleet: Fleet) -> None:
    before = fleet.create(Way.MDEV_PF)
    had = fleet.state()
    fleet.a.fault(Way.MDEV_PF, "move-state", 256)
    fleet.a.fault(Way.MDEV_PF, "move-bandwidth", 4)
    with killed(fleet):
        wait_for(lambda: job(fleet.a).get("data_processed", 0) > 0, "the state is sent")
    fleet.a.end_faults()
    fleet.operator.does("repair")
    fleet.runs_on(fleet.a, before)
    fleet.has_nothing_left()
    assert fleet.state() == had


@pytest.mark.parametrize("end", ["source", "target"])
def test_a_move_that_is_killed_after_the_state_was_sent_is_repaired(fleet: Fleet, end: str) -> None:
    """Before the target is told to let it run, and while the target does so."""
    before = fleet.create(Way.MDEV_PF)
    host = fleet.a if end == "source" else fleet.b
    host.fault(Way.MDEV_PF, "move-sleep", 4000)
    with killed(fleet):
        wait_for(lambda: is_halted(fleet, end), "the VM was halted for its move")
    host.end_faults()
    fleet.operator.does("repair")
    fleet.runs_on(fleet.a if end == "source" else fleet.b, before)
    fleet.has_nothing_left()


def job(host: MoveHost) -> dict[str, Any]:
    """What libvirt says of the VM's job, empty without one."""
    try:
        return dict(host.domain(DOMAIN).jobStats())
    except libvirt.libvirtError:
        return {}


def is_halted(fleet: Fleet, end: str) -> bool:
    """True once the VM stands still: its state still has to be sent, or the target's QEMU has all of it."""
    if fleet.a.domain(DOMAIN).state()[0] != libvirt.VIR_DOMAIN_PAUSED:
        return False
    return end == "source" or qemu_status(fleet.a, DOMAIN) == "postmigrate"


def test_a_halt_that_would_be_too_long_is_refused_or_ends_the_move(fleet: Fleet) -> None:
    """By the estimate before the move, and by what QEMU cannot do within the limit while it runs."""
    before = fleet.create(Way.MDEV_PF)
    had = fleet.state()
    assert "and max_downtime is 2 s" in str(fleet.operator.is_refused(*LIVE, "--max-downtime", "2s")["context"])
    # More is written each second than is read.
    for kind, value in (("move-state", 256), ("move-dirty", 64), ("move-bandwidth", 16)):
        fleet.a.fault(Way.MDEV_PF, kind, value)
    assert "the state of its GPUs does not get less, and the guest may be halted for 8s only" in refused(
        fleet, *LIVE, "--max-downtime", "8s"
    )
    fleet.runs_on(fleet.a, before)
    assert fleet.state() == had
    fleet.has_nothing_left()


def test_a_state_that_is_refused_late_is_told(fleet: Fleet) -> None:
    """Libvirt and QEMU call such a move a success. The last test: afterwards no VM moves live between the hosts."""
    before = fleet.create(Way.MDEV_PF)
    fleet.b.fault(Way.MDEV_PF, "move-load-refused", 1)
    said = refused(fleet, *LIVE)
    assert "acme/web runs on b, but it lost the state of its vGPU on the way and must be restarted" in said
    fleet.runs_on(fleet.b, before, whole=False)
    assert fleet.vm()["vm"]["problem"].startswith("came from a: it lost the state of its vGPU")
    (told,) = fleet.operator.json("list-events", "--kind", "vgpu-state-lost")
    assert (told["subject"], told["before"]["from_host"], told["before"]["to_host"]) == ("acme/web", "a", "b")
    assert [one["code"] for one in fleet.verdict("a")["limits"]] == ["lost-before"]
    fleet.has_nothing_left()
