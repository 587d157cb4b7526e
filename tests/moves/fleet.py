# SPDX-License-Identifier: Apache-2.0
"""The two emulated hosts as an operator of vgpuctl has them, with one VM `web` at a time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libvirt
import yaml

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME
from tests.e2e.witness import Witness
from tests.moves.hosts import OTHER_T4, MoveHost, Way, Words, words_in

SIZE = ("--memory", "64MiB", "--vcpus", "1", "--network", "none", "--spare-ports", "0")
BOOT = ("--kernel", "tiny", "--kernel-args", "move")
WEB = ("web", *ACME)
DOMAIN = "acme.web"
LIVE = ("move-vm", *WEB, "--live-only")
GPUS = {Way.PROFILE: "A40-8Q", Way.MDEV_VF: "A40-8Q", Way.MDEV_PF: "T4-4Q"}

T4S = (Way.MDEV_PF.card, OTHER_T4)


def operator_of(hosts: tuple[MoveHost, MoveHost], home: Path) -> Operator:
    """An operator of both hosts: they trust the network between them, and each card has a label that says its way."""
    as_root = hosts[0].machine.inventory.read_text().replace('ansible_user: "operator"', 'ansible_user: "root"')
    inventory = home / "inventory.yml"
    inventory.write_text(as_root.replace("ansible_become: true", "ansible_become: false"))
    for host in hosts:
        declare_moves(home, host)
    made = Operator(home, inventory, f"sqlite:///{home}/store.db")
    made.does("create-tenant", "acme")
    path = "/run/lab/guest/idle.img"
    made.does("register-image", "tiny", "--path", path, "--kind", "kernel", "--format", "raw", "--host", "a")
    checksum = hosts[0].run(f"sha256sum {path}").split()[0]
    made.does("register-image", "idle", "--volume", "idle.img", "--format", "raw", "--checksum", f"sha256:{checksum}")
    return made


def declare_moves(home: Path, host: MoveHost, network: str = "trusted", bandwidth_mbps: int = 10_000) -> None:
    """Write the host's variables: its cards' labels, and the network over which running VMs move."""
    labels = {**{way.card: {"way": way.value} for way in GPUS}, **{card: {"t4": "yes"} for card in T4S}}
    labels[Way.MDEV_PF.card]["way"] = Way.MDEV_PF.value
    gpus = [{"match": {"address": card}, "labels": own} for card, own in labels.items()]
    moves = {"network": network, "address": host.record.network_address, "bandwidth_mbps": bandwidth_mbps}
    file = home / "host_vars" / f"{host.name}.yml"
    file.parent.mkdir(exist_ok=True)
    layout = {"vgpu": {"version": 1}} if network == "tls" else {}
    file.write_text(yaml.safe_dump({"vgpu_moves": moves, "vgpu_placing": {"gpus": gpus}, **layout}))


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
        return words_in(host, serial_of("web"), after=after)

    def vm(self) -> dict[str, Any]:
        """The VM as `list-vms --refresh` shows it."""
        (listed,) = self.operator.json("list-vms", "--refresh")
        assert isinstance(listed, dict)
        return listed

    def ends(self) -> tuple[MoveHost, MoveHost]:
        """The hosts from and to which the VM moves next."""
        (listed,) = self.operator.json("list-vms")
        return (self.a, self.b) if listed["vm"]["host"] == "a" else (self.b, self.a)

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


def serial_of(vm: str) -> str:
    """What the guest of a VM of the tenant has written, on its host."""
    return f"/var/log/libvirt/qemu/acme.{vm}-serial.log"


def say(text: str) -> None:
    """Write a line of a proof's protocol."""
    sys.stderr.write(f"{text}\n")


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


@contextmanager
def killed(fleet: Fleet) -> Iterator[None]:
    """A live move that is killed at the end of the block."""
    client = fleet.operator.start(*LIVE)
    try:
        yield
    finally:
        client.kill()
        client.wait()


def job(host: MoveHost) -> dict[str, Any]:
    """What libvirt says of the VM's job, empty without one."""
    try:
        return dict(host.domain(DOMAIN).jobStats())
    except libvirt.libvirtError:
        return {}


def is_halted(fleet: Fleet, end: str) -> bool:
    """True once the VM stands still: its state still has to be sent, or it waits on the target alone."""
    try:
        state = fleet.a.domain(DOMAIN).state()[0]
    except libvirt.libvirtError:
        return end == "target"
    return end == "source" and state == libvirt.VIR_DOMAIN_PAUSED
