# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts do the product's whole job: the real command, over real SSH, with the real agent and libvirt."""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import MIX, fleet, machine, processes_of, wait_for_no_process
from vgpuctl.errors import DomainRejected, LabError, UsageError
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.hosts.agent_client import AgentClient
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.inventory.load import load_inventory
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine.state import State
from vgpuctl_lab.simulated.mix import parse_mix, share_out

__all__ = ["fleet"]

SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none")
VMS = {
    "vf-profile": ("--gpu", "A40-8Q", "--host", "sim-001", "--disk", "64MiB"),
    "mdev-vf": ("--gpu", "A40-8Q", "--host", "sim-002"),
    "mdev": ("--gpu", "2*T4-2Q", "--host", "sim-003"),
    "passthrough": ("--gpu", "passthrough:rtx-3090", "--host", "sim-003"),
    "vf": ("--gpu", "vf", "--host", "sim-004"),
}


def _connection(folder: lab.LabFolder, name: str) -> Connection:
    target = load_inventory([str(simulated_folder(folder).inventory)]).target(name)
    return Connection(
        target, settings=SshSettings(known_hosts_file=Path("/nonexistent"), ssh_config_file=Path("/dev/null"))
    )


def _truth(folder: lab.LabFolder) -> list[State]:
    """The present state of every machine, without counters that only go up."""
    return [machine(folder, name).state().lasting() for name in lab.simulated.names(folder=folder)]


def _bound(state: State) -> dict[str, str]:
    return {function: driver for function, driver in state.drivers.items() if driver}


@pytest.fixture(scope="module")
def operator(fleet: lab.LabFolder, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    home: Path = tmp_path_factory.mktemp("operator")
    return Operator(home, simulated_folder(fleet).inventory, f"sqlite:///{home}/store.db")


@pytest.fixture(scope="module")
def before(fleet: lab.LabFolder) -> list[State]:
    return _truth(fleet)


@pytest.fixture(scope="module")
def created(operator: Operator, before: list[State]) -> Iterator[dict[str, Any]]:
    operator.does("create-tenant", "acme")
    with ThreadPoolExecutor(3) as several:
        answers = several.map(lambda name: operator.json("create-vm", name, "--tenant", "acme", *VMS[name], *SIZE), VMS)
        yield {name: answer[0] for name, answer in zip(VMS, answers, strict=True)}


def test_every_kind_of_sharing_gives_a_running_vm(created: dict[str, Any], fleet: lab.LabFolder) -> None:
    for name, answer in created.items():
        assert (answer["changed"], answer["vm"]["state"]) == (True, "running"), name
        assert {lease["share"]["sharing"] for lease in answer["leases"]} == {name}
        held = machine(fleet, answer["vm"]["host"]).state().domains[answer["vm"]["uuid"]]
        devices = {lease["share"]["mdev_uuid"] or lease["share"]["function"] for lease in answer["leases"]}
        assert devices <= {*held.functions, *held.mdevs}
    assert [host.vms for host in lab.simulated.status(folder=fleet)] == [1, 1, 2, 1]


def test_the_same_command_again_changes_nothing(
    created: dict[str, Any],
    operator: Operator,
    fleet: lab.LabFolder,
) -> None:
    truth = _truth(fleet)
    again = operator.json("create-vm", "mdev-vf", "--tenant", "acme", *VMS["mdev-vf"], *SIZE)[0]
    assert not again["changed"]
    assert again["leases"] == created["mdev-vf"]["leases"]
    assert _truth(fleet) == truth


def test_the_host_tells_who_holds_what_and_what_the_guest_sees(created: dict[str, Any], operator: Operator) -> None:
    shown = operator.json("show-vm", "mdev", "--tenant", "acme")
    assert [one[0]["vm_uuid"] for one in shown["holders"]] == [created["mdev"]["vm"]["uuid"]] * 2
    assert [device["vendor_id"] for device in shown["guest_devices"]] == ["10de"] * 2
    assert "<domain type='kvm' id=" in shown["xml"], "libvirt's test driver does not show"


def test_libvirt_takes_a_whole_card_from_its_driver_and_gives_it_back(
    created: dict[str, Any],
    operator: Operator,
    fleet: lab.LabFolder,
) -> None:
    lease = created["passthrough"]["leases"][0]["share"]
    functions = (lease["function"], *lease["companions"])
    drivers = machine(fleet, "sim-003").state().drivers
    assert [drivers[function] for function in functions] == ["vfio-pci"] * 2
    assert operator.json("stop-vm", "passthrough", "--tenant", "acme")["changed"]
    drivers = machine(fleet, "sim-003").state().drivers
    assert [drivers[function] for function in functions] == ["nvidia", "snd_hda_intel"]
    assert operator.json("start-vm", "passthrough", "--tenant", "acme")["changed"]
    assert operator.json("repair") == []


def test_a_vm_whose_device_is_gone_does_not_start(created: dict[str, Any], fleet: lab.LabFolder) -> None:
    with _connection(fleet, "sim-002") as connection, connection.libvirt_uri() as uri, Hypervisor(uri) as hypervisor:
        uuid = created["mdev-vf"]["leases"][0]["share"]["mdev_uuid"]
        xml = hypervisor.xml("acme.mdev-vf")
        assert xml is not None
        mine = xml.replace(created["mdev-vf"]["vm"]["uuid"], "11111111-2222-4333-8444-555555555555")
        hypervisor.define(mine.replace("acme.mdev-vf", "thief"))
        with pytest.raises(DomainRejected, match=f"mediated device {uuid} is in use by another domain"):
            hypervisor.start("thief")
        hypervisor.define(mine.replace("acme.mdev-vf", "thief").replace(uuid, "22222222-2222-4333-8444-555555555555"))
        with pytest.raises(DomainRejected, match="not found"):
            hypervisor.start("thief")
        hypervisor.undefine("thief")


def test_deleting_returns_every_device(
    created: dict[str, Any],
    before: list[State],
    operator: Operator,
    fleet: lab.LabFolder,
) -> None:
    with ThreadPoolExecutor(3) as several:
        list(several.map(lambda name: operator.does("delete-vm", name, "--tenant", "acme", "--yes"), created))
    assert [state.vgpus for state in _truth(fleet)] == [[], [], [], []]
    assert [state.domains for state in _truth(fleet)] == [{}, {}, {}, {}]
    assert [_bound(state) for state in _truth(fleet)] == [_bound(state) for state in before]


def test_a_reboot_loses_vms_vgpus_and_vfs_and_keeps_definitions(fleet: lab.LabFolder, operator: Operator) -> None:
    operator.json("create-vm", "lost", "--tenant", "acme", *VMS["vf-profile"], *SIZE)
    first = machine(fleet, "sim-001").state()
    assert first.vf_counts and first.vgpus and first.domains
    with _connection(fleet, "sim-001") as connection:
        agent = AgentClient(connection)
        agent.facts()
        lab.simulated.reboot("sim-001", folder=fleet)
        with pytest.raises(Exception, match="sim-001"):
            agent.facts()
    second = machine(fleet, "sim-001").state()
    assert not (second.vf_counts or second.vgpus or second.domains)
    assert second.boot_id != first.boot_id
    with _connection(fleet, "sim-001") as connection:
        with connection.libvirt_uri() as uri, Hypervisor(uri) as hypervisor:
            assert [(fact.name, fact.state) for fact in hypervisor.domains()] == [("acme.lost", "shut-off")]
        (gpu,) = AgentClient(connection).facts().gpus
        assert (gpu.vfs, gpu.total_vfs, gpu.sharing) == ((), 32, ("passthrough",))
    assert [row for row in operator.json("repair") if "lost" in str(row)]
    operator.does("delete-vm", "lost", "--tenant", "acme", "--yes", "--timeout", "0")


def test_latency_is_added_to_every_round_trip(tmp_path: Path) -> None:
    folder = lab.LabFolder(tmp_path / "slow")
    try:
        (host,) = lab.simulated.up(1, latency_ms=80, folder=folder)
        assert host.latency_ms == 80
        with _connection(folder, "sim-001") as connection:
            agent = AgentClient(connection)
            agent.holders("0000:41:00.0")
            began = time.monotonic()
            agent.holders("0000:41:00.0")
            assert time.monotonic() - began >= 0.08
    finally:
        lab.simulated.down(folder=folder)
    assert wait_for_no_process(folder) == []
    assert not (folder.path / "simulated").exists()


def test_up_again_changes_nothing_and_more_hosts_join(fleet: lab.LabFolder) -> None:
    before = [(host.name, host.port) for host in lab.simulated.status(folder=fleet)]
    again = lab.simulated.up(5, mix=f"{MIX},t4", folder=fleet)
    assert [(host.name, host.port) for host in again][:4] == before
    assert (again[4].name, again[4].cards, again[4].state) == ("sim-005", ("t4",), "up")
    assert lab.simulated.down(["sim-005"], folder=fleet) == ["sim-005"]
    assert [(host.name, host.port) for host in lab.simulated.status(folder=fleet)] == before
    with pytest.raises(LabError, match="no simulated host"):
        lab.simulated.down(["sim-005"], folder=fleet)


def test_after_a_crash_nothing_runs_and_up_or_down_find_what_is_left(tmp_path: Path) -> None:
    folder = lab.LabFolder(tmp_path / "crash")
    try:
        lab.simulated.up(1, mix="t4", folder=folder)
        with _connection(folder, "sim-001") as connection:
            with connection.libvirt_uri() as uri, Hypervisor(uri) as hypervisor:
                hypervisor.define(
                    "<domain type='kvm'><name>kept</name><memory>1024</memory><os><type>hvm</type></os></domain>"
                )
            AgentClient(connection).holders("0000:41:00.0")
            processes = simulated_folder(folder).read_processes()
            assert processes is not None and len(processes_of(folder)) >= 3
            os.kill(processes[0].pid, signal.SIGKILL)
            os.waitpid(processes[0].pid, 0)
            assert wait_for_no_process(folder) == []
        (dead,) = lab.simulated.status(folder=folder)
        assert dead.state == "dead"
        (again,) = lab.simulated.up(1, mix="t4", folder=folder)
        assert (again.state, again.port) == ("up", dead.port)
        with (
            _connection(folder, "sim-001") as connection,
            connection.libvirt_uri() as uri,
            Hypervisor(uri) as hypervisor,
        ):
            assert [fact.name for fact in hypervisor.domains()] == ["kept"]
    finally:
        assert lab.simulated.down(folder=folder) == ["sim-001"]
    assert wait_for_no_process(folder) == []
    assert lab.simulated.down(folder=folder) == []


def test_hosts_whose_folder_was_removed_end(tmp_path: Path) -> None:
    folder = lab.LabFolder(tmp_path / "removed")
    lab.simulated.up(1, mix="t4", folder=folder)
    assert len(processes_of(folder)) == 2  # the lab daemon and libvirtd
    shutil.rmtree(folder.path)
    assert wait_for_no_process(folder) == []


def test_the_lab_commands_show_both_kinds(fleet: lab.LabFolder, operator: Operator) -> None:
    folder = ("lab", "--folder", str(fleet.path))
    shown = operator.json(*folder, "status")
    assert [host["cards"] for host in shown["simulated"]][:2] == [["a40"], ["a40/mdev-vf"]]
    assert "sim-003" in operator.does(*folder, "status").out
    refused = operator.is_refused(*folder, "up", "--mix", "t4:1")
    assert refused["exit_code"] == UsageError.exit_code


@pytest.mark.parametrize(
    ("mix", "hosts", "counts"),
    [("a40:50,h100-pcie:30,t4:20", 100, [50, 30, 20]), ("a40:1,t4:1,l40s:1", 10, [4, 3, 3]), ("a40", 3, [3])],
)
def test_hosts_are_shared_out_by_weight(mix: str, hosts: int, counts: list[int]) -> None:
    parts = parse_mix(mix)
    shared = share_out(parts, hosts)
    assert [sum(one is part for one in shared) for part in parts] == counts


@pytest.mark.parametrize("mix", ["", "a40:0", "a40:x", "nonsense", "t4/vf-profile", "a40*17", "rtx-3090/mdev"])
def test_a_mix_that_cannot_be_is_refused(mix: str) -> None:
    with pytest.raises(UsageError):
        parse_mix(mix)


def test_changes_of_several_processes_never_overlap(fleet: lab.LabFolder) -> None:
    place = machine(fleet, "sim-004")
    start = place.state().next_pid

    def count() -> None:
        own = machine(fleet, "sim-004")
        for _ in range(50):
            with own.change() as state:
                state.next_pid += 1

    _in_processes(count, 3)
    assert place.state().next_pid == start + 150


def _in_processes(work: Callable[[], None], number: int) -> None:
    children = []
    for _ in range(number):
        child = os.fork()
        if child == 0:
            try:
                work()
            finally:
                os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
