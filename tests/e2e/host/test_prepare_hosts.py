# SPDX-License-Identifier: Apache-2.0
"""check-hosts --prepare: missing prerequisites on several distributions; a real login without Python or root.

The simulated hosts are root's logins to a Debian, a RHEL and a SUSE; the real sshd has users with and without sudo.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import vgpuctl_lab as lab
from tests.e2e.layout_fleet import LayoutFleet, layout_fleet
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import need_simulated
from tests.sshd_fixture import FREE_USER, PLAIN_USER, LoopbackSshd, missing_for_accounts

OVN = {"southbound": ["ssl:192.0.2.1:6642"], "tunnels": "192.0.2.0/24"}
GPUS = [{"match": "all", "kind": "vgpu"}]
NO_PYTHON = {"ansible_python_interpreter": "/usr/bin/python3.99"}
DEBIAN = {
    "/etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\n',
    "/usr/share/qemu/firmware/40-edk2-x86_64-secure-enrolled.json": None,
    "/usr/share/qemu/firmware/60-edk2-x86_64.json": None,
    "/sys/class/iommu/dmar0": None,
    "/proc/cmdline": "ro quiet",
    "/proc/cpuinfo": "flags : fpu vmx\n",
}
ROCKY = {
    "/etc/os-release": 'PRETTY_NAME="Rocky Linux 8.10"\nID="rocky"\nID_LIKE="rhel centos fedora"\n',
    "/usr/bin/python3": None,
    "/usr/libexec/platform-python": "#!/bin/sh\necho 3.6\n",
    "/usr/bin/libvirtd": None,
    "/usr/bin/qemu-system-x86_64": None,
    "/run/libvirt/libvirt-sock": None,
    "/proc/900/comm": "firewalld\n",
}
SLES = {
    "/etc/os-release": 'PRETTY_NAME="SUSE Linux Enterprise Server 15 SP6"\nID="sles"\nID_LIKE="suse"\n',
    "/usr/bin/python3": "#!/bin/sh\necho 3.6\n",
    "/run/libvirt/libvirt-sock": None,
    "/run/libvirt/virtlogd-sock": None,
    "/usr/lib/systemd/system/virtqemud.socket": "",
    "/usr/share/qemu/firmware/40-edk2-x86_64-secure-enrolled.json": None,
    "/usr/share/qemu/firmware/60-edk2-x86_64.json": None,
}
LAYOUTS: dict[str, dict[str, Any]] = {
    "sim-001": {"vgpu": {"version": 1, "gpus": GPUS, "kernel_arguments": ["default_hugepagesz=1G"]}},
    "sim-002": {"vgpu": {"version": 1, "gpus": GPUS, "network": OVN}, **NO_PYTHON},
    "sim-003": NO_PYTHON,
}


@pytest.fixture(scope="module")
def newcomers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LayoutFleet]:
    """sim-001 to sim-004: Debian, Rocky without Python, SLES with an old one, and a host that has all."""
    need_simulated()
    fleet = layout_fleet(tmp_path_factory.mktemp("prepare"), 4, "a40")
    fleet.declare()
    for number, files in enumerate((DEBIAN, ROCKY, SLES), start=1):
        with fleet.machine(f"sim-{number:03}").change() as state:
            state.files.update(files)
    for name, variables in LAYOUTS.items():
        (fleet.operator.inventory / "host_vars" / f"{name}.yml").write_text(yaml.safe_dump(variables))
    yield fleet
    lab.simulated.down(folder=fleet.folder)


def look(operator: Operator, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what --json says of each host."""
    done = operator.run("check-hosts", "--prepare", *options, "--json")
    return done.code, {one["host"]: one for one in json.loads(done.out)}


def fixes(host: dict[str, Any]) -> dict[str, str]:
    """Return each finding's remedy, by its check; the last one if a check has several."""
    return {one["check"]: one["fix"] for one in host["findings"]}


def test_each_host_is_told_what_it_lacks_in_its_own_distributions_words(newcomers: LayoutFleet) -> None:
    before = newcomers.states()
    code, hosts = look(newcomers.operator)
    assert code == 1
    debian, rocky, sles, ready = (hosts[f"sim-{number:03}"] for number in (1, 2, 3, 4))
    assert ready["is_ready"] and ready["has_agent"]
    assert not [one for one in ready["findings"] if one["severity"] != "note"], ready
    assert debian["has_agent"] and not debian["is_ready"]
    assert debian["operating_system"] == "Debian GNU/Linux 13 (trixie)"
    told = fixes(debian)
    assert "apt-get install -y ovmf" in told["guest-firmware"]
    assert "VT-d" in told["iommu-off"] and "update-grub" in told["iommu-off"]
    assert "default_hugepagesz=1G" in told["kernel-arguments"]
    assert not rocky["has_agent"] and not sles["has_agent"]
    told = fixes(rocky)
    assert "dnf install -y python3.11" in told["python"] and "ansible_python_interpreter" in told["python"]
    assert told["libvirt"] == "dnf install -y libvirt" and told["qemu"] == "dnf install -y qemu-kvm"
    assert "ovn-host" in told["ovn"] and "--add-port=6081/udp" in told["firewall"]
    told = fixes(sles)
    assert "zypper --non-interactive install python311" in told["python"]
    assert "virtqemud.socket virtstoraged.socket" in told["libvirt-daemons"]
    assert told["guest-firmware"] == "zypper --non-interactive install qemu-ovmf-x86_64"
    assert newcomers.states() == before


def test_people_get_a_list_and_a_script_that_a_shell_can_read(newcomers: LayoutFleet, tmp_path: Path) -> None:
    shown = newcomers.operator.run("check-hosts", "--prepare", "--limit", "sim-002")
    assert shown.code == 1 and "sim-002: lacks" in shown.out and "(Rocky Linux 8.10)" in shown.out
    assert "      fix: dnf install -y libvirt" in shown.out and "the agent does not run there yet" in shown.out
    made = newcomers.operator.run("check-hosts", "--prepare", "--script")
    assert made.code == 1 and "nothing was run" in made.err
    script = tmp_path / "fix.sh"
    script.write_text(made.out)
    subprocess.run(["sh", "-n", str(script)], check=True)
    lines = made.out.splitlines()
    assert "dnf install -y libvirt" in lines and "zypper --non-interactive install qemu-ovmf-x86_64" in lines
    assert all(f"# sim-{number:03}: " in made.out for number in (1, 2, 3, 4))


def test_prepare_goes_with_no_other_kind_of_check(newcomers: LayoutFleet) -> None:
    for options in (("--prepare", "--diff"), ("--prepare", "--after-reboot"), ("--script",)):
        assert newcomers.operator.run("check-hosts", *options).code == 2


def test_a_real_login_without_python_or_sudo_is_told_all_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    if missing := missing_for_accounts():
        pytest.skip(missing)
    home = tmp_path_factory.mktemp("real")
    with LoopbackSshd(home / "sshd", accounts=True) as server:
        common = {
            "ansible_host": server.address,
            "ansible_port": server.port,
            "ansible_ssh_private_key_file": str(server.client_key),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={server.known_hosts}",
            "ansible_python_interpreter": "/nowhere/python3",
        }
        hosts: dict[str, dict[str, Any]] = {
            "as-root": {"ansible_user": "root"},
            "with-sudo": {"ansible_user": FREE_USER, "ansible_become": True},
            "refused": {"ansible_user": PLAIN_USER, "ansible_become": True},
            "no-become": {"ansible_user": PLAIN_USER},
            "silent": {"ansible_user": "root", "ansible_port": 1},
        }
        inventory = home / "hosts.yml"
        inventory.write_text(yaml.safe_dump({"all": {"vars": common, "hosts": hosts}}))
        operator = Operator(home, inventory, f"sqlite:///{home}/store.db")
        done = operator.run("check-hosts", "--prepare", "--json")
    found = {one["host"]: one for one in json.loads(done.out)}
    assert done.code not in (0, 1), done.err
    assert found["silent"]["error"]["reference"] == "host-unreachable" and found["silent"]["is_ready"] is None
    for name in ("as-root", "with-sudo"):
        assert "set `ansible_python_interpreter: /usr/" in fixes(found[name])["python"], found[name]
        assert "sudo" not in fixes(found[name])
    assert "/etc/sudoers.d" in fixes(found["refused"])["sudo"]
    assert "ansible_become: true" in fixes(found["no-become"])["sudo"]
    assert all(found[name]["operating_system"] != "Linux" for name in hosts if name != "silent")
