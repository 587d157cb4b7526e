# SPDX-License-Identifier: Apache-2.0
"""vgpuctl moves and suspends running VMs by real QEMU and real libvirt, and tells the truth where that fails.

`make test-moves` runs it. hosts_proof.py has the same two hosts without vgpuctl.
"""

import os
from math import ceil

import pytest

from tests.e2e.small_vms import ACME
from tests.moves.fleet import (
    BOOT,
    GPUS,
    LIVE,
    SIZE,
    T4S,
    WEB,
    Fleet,
    declare_moves,
    goes_along,
    is_halted,
    job,
    killed,
    refused,
    serial_of,
    states,
)  # fmt: skip
from tests.moves.hosts import Way, make_device, wait_for, words_in

pytestmark = pytest.mark.timeout(1800)

ROUNDS = int(os.environ.get("ROUNDS") or 1)
SUSPENDED = 5
"""VMs that are suspended when their host reboots: so many rounds at once."""
DISKS = ("--disk", "16MiB", "--base-image", "idle", "--data-disk", "data,size=24MiB", "--hostname", "web")


@pytest.mark.parametrize("way", GPUS)
def test_a_vm_moves_and_comes_back(fleet: Fleet, way: Way) -> None:
    before = fleet.create(way)
    there = goes_along(fleet, fleet.a, fleet.b, before)
    goes_along(fleet, fleet.b, fleet.a, there)
    fleet.operator.does("check-vm", *WEB)


def test_a_vm_with_two_vgpus_moves(fleet: Fleet) -> None:
    goes_along(fleet, fleet.a, fleet.b, fleet.create(Way.MDEV_VF, gpu="2*A40-8Q"))


def test_a_vm_moves_over_tls(fleet: Fleet) -> None:
    before = fleet.create(Way.MDEV_PF)
    hosts = (fleet.a, fleet.b)
    try:
        for host in hosts:
            declare_moves(fleet.operator.home, host, network="tls")
        assert [one["code"] for one in fleet.verdict("b")["limits"]] == ["move-certificates"]
        fleet.operator.does("apply-hosts", "--no-boot")
        fleet.a.fault(Way.MDEV_PF, "move-state", 32)
        fleet.a.fault(Way.MDEV_PF, "move-bandwidth", 4)
        client = fleet.operator.start(*LIVE)
        wait_for(lambda: job(fleet.a).get("data_processed", 0) > 0 or client.poll() is not None, "the state is sent")
        asked = "virsh -q -c qemu:///system qemu-monitor-command acme.web --hmp info migrate_parameters"
        said = fleet.a.machine.run(asked)[1]
        assert client.communicate() is not None and client.returncode == 0
        assert "tls-creds: 'objlibvirt_migrate_tls0'" in said
        fleet.runs_on(fleet.b, before)
        fleet.has_nothing_left()
    finally:
        for host in hosts:
            declare_moves(fleet.operator.home, host)
            host.run("rm -rf /etc/pki/qemu")


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


@pytest.mark.parametrize("number", range(1, ceil(ROUNDS / SUSPENDED) + 1))
def test_suspended_vms_go_on_after_a_reboot_on_another_card(fleet: Fleet, number: int) -> None:
    vms = [(f"w{number}{index}", *ACME) for index in range(SUSPENDED)]
    names = [vm[0] for vm in vms]
    first, second = T4S
    # A card's vGPUs have one size, so the card with this one is none for the VMs. It goes with the reboot.
    make_device(fleet.a, Way.MDEV_PF, "T4-2Q", card=second)
    for vm in vms:
        fleet.operator.does(
            "create-vm", *vm, "--limit", "a", "--gpu", "T4-1Q", "--require-label", "t4=yes", *SIZE, *BOOT
        )
    before = {name: words_in(fleet.a, serial_of(name), after=1) for name in names}
    had = states(fleet.a)
    assert cards_of(fleet) == dict.fromkeys(names, first)
    fleet.operator.does("suspend-vm", *names, *ACME, "--hold", "release")
    assert states(fleet.a) == []
    fleet.a.reboot()
    taken = make_device(fleet.a, Way.MDEV_PF, "T4-2Q", card=first)
    try:
        fleet.operator.does("resume-vm", *names, *ACME)
        for name in names:
            after = words_in(fleet.a, serial_of(name), after=before[name].count)
            assert (after.memory, after.gpus[0][0]) == (before[name].memory, before[name].gpus[0][0])
        assert cards_of(fleet) == dict.fromkeys(names, second)
        assert states(fleet.a) == had
        fleet.has_nothing_left()
    finally:
        fleet.operator.delete_all_vms()
        taken.delete()


def cards_of(fleet: Fleet) -> dict[str, str]:
    """The card of each VM by its name."""
    listed = fleet.operator.json("list-vms")
    return {one["vm"]["request"]["name"]: one["leases"][0]["share"]["gpu"] for one in listed}


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


@pytest.mark.parametrize("way", GPUS)
def test_a_state_that_is_refused_late_is_told(fleet: Fleet, way: Way) -> None:
    """Libvirt and QEMU call such a move a success. The last tests: afterwards no VM moves live between the hosts."""
    before = fleet.create(way)
    fleet.b.fault(way, "move-load-refused", 1)
    said = refused(fleet, *LIVE, "--trust-hosts")
    assert "acme/web runs on b, but it lost the state of its vGPU on the way and must be restarted" in said
    fleet.runs_on(fleet.b, before, whole=False)
    assert fleet.vm()["vm"]["problem"].startswith("came from a: it lost the state of its vGPU")
    events = fleet.operator.json("list-events", "--kind", "vgpu-state-lost")
    told = [(one["subject"], one["before"]["from_host"]) for one in events if one["before"].get("to_host") == "b"]
    assert set(told) == {("acme/web", "a")}
    assert [one["code"] for one in fleet.verdict("a")["limits"]] == ["must-restart", "lost-before"]
    fleet.has_nothing_left()
