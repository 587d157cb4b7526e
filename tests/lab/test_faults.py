# SPDX-License-Identifier: Apache-2.0
"""Faults of a whole host, through the lab's command and from outside: SSH, libvirt, power (docs/lab.md)."""

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import simulated_fleet
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import HostUnreachable, UsageError, VgpuctlError
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl.hosts.agent_client import AgentClient
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.inventory.load import load_inventory
from vgpuctl_lab import kernel_faults
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.machine import fabric_manager
from vgpuctl_lab.simulated.machine.state import MachineFolder

NAME, HGX = "sim-001", "sim-002"
DOMAIN = "<domain type='kvm'><name>web</name><memory>1024</memory><os><type>hvm</type></os></domain>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[lab.LabFolder]:
    with simulated_fleet(tmp_path_factory.mktemp("faults"), 2, "a40*2+t4,h100-sxm5~fabric-shared*2") as made:
        yield made


@pytest.fixture
def healthy(folder: lab.LabFolder) -> Iterator[lab.LabFolder]:
    yield folder
    lab.faults.clear(NAME, folder=folder)


def connection(folder: lab.LabFolder) -> Connection:
    inventory = next(host.inventory for host in lab.simulated.status(folder=folder))
    settings = SshSettings(known_hosts_file=Path("/nonexistent"), ssh_config_file=Path("/dev/null"))
    return Connection(load_inventory([str(inventory)]).target(NAME), settings=settings)


def facts(folder: lab.LabFolder) -> HostFacts:
    with connection(folder) as session:
        return AgentClient(session).facts()


def state(folder: lab.LabFolder) -> str:
    host, _ = lab.simulated.status(folder=folder)
    return host.state


def port(folder: lab.LabFolder) -> int:
    host, _ = lab.simulated.status(folder=folder)
    return host.port


def test_a_stopped_sshd_refuses_and_keeps_its_port(healthy: lab.LabFolder) -> None:
    before = port(healthy)
    with connection(healthy) as open_before:
        agent = AgentClient(open_before)
        agent.facts()
        lab.faults.begin(NAME, "sshd", folder=healthy)
        with pytest.raises(HostUnreachable):
            facts(healthy)
        assert agent.facts().hostname == NAME
    lab.faults.clear(NAME, ["sshd"], folder=healthy)
    assert facts(healthy).hostname == NAME
    assert port(healthy) == before


def test_a_cut_network_is_silence_until_it_ends(healthy: lab.LabFolder) -> None:
    with connection(healthy) as session:
        agent = AgentClient(session)
        agent.facts()
        lab.faults.begin(NAME, "network", folder=healthy)
        with socket.create_connection(("127.0.0.1", port(healthy)), timeout=5) as client:
            client.settimeout(0.5)
            with pytest.raises(TimeoutError):
                client.recv(1)
        lab.faults.clear(NAME, folder=healthy)
        assert agent.facts().hostname == NAME


def test_a_stopped_libvirtd_leaves_the_agent(healthy: lab.LabFolder) -> None:
    lab.faults.begin(NAME, "libvirtd", folder=healthy)
    services = {one.name: one.active for one in facts(healthy).services or ()}
    assert services["libvirtd.service"] is False
    with connection(healthy) as session, pytest.raises(VgpuctlError), session.libvirt_uri() as uri, Hypervisor(uri):
        pass
    lab.faults.clear(NAME, folder=healthy)
    with connection(healthy) as session, session.libvirt_uri() as uri, Hypervisor(uri) as hypervisor:
        assert hypervisor.domains() == []


def test_a_full_disk_takes_no_definition(healthy: lab.LabFolder) -> None:
    with connection(healthy) as session, session.libvirt_uri() as uri, Hypervisor(uri) as hypervisor:
        lab.faults.begin(NAME, "disk-full", folder=healthy)
        with pytest.raises(VgpuctlError, match="No space left on device"):
            hypervisor.define(DOMAIN)
        lab.faults.clear(NAME, folder=healthy)
        hypervisor.define(DOMAIN)
        hypervisor.undefine("web")


def test_power_goes_and_comes_back_as_a_cold_start(healthy: lab.LabFolder) -> None:
    lab.faults.begin(NAME, "power-off", folder=healthy)
    lab.faults.begin(NAME, "busy", folder=healthy)
    assert state(healthy) == "off"
    with pytest.raises(HostUnreachable):
        facts(healthy)
    said: list[str] = []
    lab.simulated.up(1, folder=healthy, say=said.append)
    assert said[-1].startswith(f"{NAME} without power:"), said
    lab.faults.clear(NAME, folder=healthy)
    assert (state(healthy), lab.faults.active(NAME, folder=healthy)) == ("up", [])
    assert facts(healthy).gpus[0].vfs == ()


def test_the_command_sets_lists_and_ends_faults(healthy: lab.LabFolder, tmp_path: Path) -> None:
    operator = Operator(tmp_path, tmp_path, f"sqlite:///{tmp_path}/store.db")
    command = ("lab", "--folder", str(healthy.path), "fault", NAME)
    found = operator.json(*command, "refuse", "0x40", "--card", "0000:43:00.0")
    assert found == [{"fault": "refuse", "card": "0000:43:00.0", "value": 0x40}]
    assert "0x40" in operator.does(*command, "--list").out
    assert operator.json(*command, "--clear") == []
    assert operator.is_refused(*command, "refuse", "soon")["exit_code"] == UsageError.exit_code


def test_faults_of_fabric_manager_end_by_themselves_or_with_their_end(healthy: lab.LabFolder) -> None:
    def active() -> list[str]:
        return [kind for kind, _, _ in lab.faults.active(HGX, folder=healthy)]

    machine = MachineFolder(simulated_folder(healthy).host(HGX))
    for kind, seconds in (("fabric-starting", 30), ("fabric-restarted", 60)):
        lab.faults.begin(HGX, kind, seconds if kind == "fabric-starting" else None, folder=healthy)
        assert active() == [kind]
        with machine.change() as state:
            state.skipped_s += seconds
        assert active() == []
    for kind in ("fabric-version", "fabric-dead"):
        lab.faults.begin(HGX, kind, folder=healthy)
        assert active() == [kind]
        assert not fabric_manager.is_running(machine.state())
        lab.faults.clear(HGX, folder=healthy)
        assert fabric_manager.is_running(machine.state())
    lab.faults.begin(HGX, "nvlink-failed", 4, folder=healthy)
    assert lab.faults.active(HGX, folder=healthy) == [("nvlink-failed", "0000:41:00.0", 4)]
    lab.faults.clear(HGX, folder=healthy)


@pytest.mark.parametrize("scripts", [kernel_faults.BEGINS, kernel_faults.ENDS], ids=["begins", "ends"])
def test_the_scripts_for_emulated_hosts_are_shell_and_every_one_has_its_end(scripts: dict[str, str]) -> None:
    # An emulated host's sshd comes back by itself.
    assert set(scripts) | {"sshd"} == set(kernel_faults.BEGINS)
    for kind, text in scripts.items():
        script = text.format(value=7, card="0000:01:00.0")
        done = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, timeout=10, check=False)
        assert (done.returncode, done.stderr) == (0, ""), kind


def test_a_shell_on_the_host_has_the_cards_programs(folder: lab.LabFolder) -> None:
    def shell(*words: str) -> "subprocess.CompletedProcess[str]":
        command = lab.simulated.shell_command(NAME, words, folder=folder)
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    listed = shell("nvidia-smi", "-L")
    assert (listed.returncode, listed.stdout.count("NVIDIA A40 (UUID: GPU-")) == (0, 2), listed.stderr
    assert shell("nvidia-smi", "-i", "7", "-L").returncode == 6
    assert shell("sriov-manage", "-e", "0000:41:00.0").returncode == 0
    assert "already has VFs enabled" in shell("sriov-manage", "-e", "0000:41:00.0").stdout
    assert "ssh.service loaded active" in shell("systemctl", "list-units").stdout


@pytest.mark.parametrize(
    ("kind", "value", "card"),
    [
        ("storm", None, None),
        ("busy", 7, None),
        ("xid", 0, None),
        ("sshd", None, "0000:41:00.0"),
        ("busy", None, "1"),
        ("pf-stub", None, "0000:45:00.0"),
        ("move-sleep", None, None),
        ("fabric-dead", None, None),
        ("nvlink-failed", None, None),
        ("types-alone", 8, None),
        ("vf-wedged", 33, None),
    ],
)
def test_a_fault_that_cannot_be_is_refused(
    kind: str, value: int | None, card: str | None, folder: lab.LabFolder
) -> None:
    with pytest.raises(UsageError):
        lab.faults.begin(NAME, kind, value, card=card, folder=folder)
    assert lab.faults.active(NAME, folder=folder) == []
