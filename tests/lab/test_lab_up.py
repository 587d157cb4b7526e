# SPDX-License-Identifier: Apache-2.0
"""The emulated host is up: SSH, libvirt and the cards, and its life from up to reboot."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import vgpuctl_lab as lab
from tests.lab_fixtures import KernelHost
from vgpuctl.errors import LabError

pytestmark = pytest.mark.kernel_lab
# libvirt NEWS, 9.7.0: VFIO variant drivers with managed='no'.
_TAKES_VENDOR_VFIO = (9, 7, 0)


def _own_libvirt() -> tuple[int, ...]:
    """The version of this machine's libvirt, which the host has."""
    said = subprocess.run(["/usr/sbin/libvirtd", "--version"], capture_output=True, text=True, check=True).stdout
    return _version(said)


def _version(told: str) -> tuple[int, ...]:
    """The version in `libvirtd (libvirt) 9.0.0`."""
    return tuple(int(number) for number in told.rsplit(maxsplit=1)[-1].split("."))


def test_the_host_runs_a_stock_kernel_under_its_own_name(kernel_host: KernelHost) -> None:
    code, output, errors = kernel_host.run("hostname; uname -r; cat /etc/hostname; findmnt -no FSTYPE /")
    assert (code, errors) == (0, "")
    name, release, written, root_type = output.split()
    assert name == written == "gpu1"
    assert release.endswith("-amd64")
    assert root_type == "overlay"


def test_the_host_cannot_change_this_machine(kernel_host: KernelHost, tmp_path: Path) -> None:
    # A folder that the host sees wherever this checkout lies; /tmp is the host's own.
    file = Path("/usr/share/vgpuctl_written_by_the_host")
    code, _output, errors = kernel_host.run(f"echo changed > {file} && cat {file}")
    assert code == 0, errors
    assert not file.exists()
    kernel_host.run(f"rm {file}")


def test_the_login_user_becomes_root_and_reaches_libvirt(kernel_host: KernelHost) -> None:
    inventory = yaml.safe_load(kernel_host.inventory.read_text())
    variables = inventory["gpu_hosts"]["hosts"]["gpu1"]
    assert variables["ansible_user"] == "operator"
    code, output, errors = lab.run("gpu1", "id -un; sudo -n id -un", folder=kernel_host.folder, root=False)
    assert (code, output.split()) == (0, ["operator", "root"]), errors
    code, output, errors = lab.run(
        "gpu1", "virsh -q -c qemu:///system net-list --name", folder=kernel_host.folder, root=False
    )
    assert (code, output.strip()) == (0, "default"), errors


@pytest.mark.parametrize("path", ["/usr/local/bin:/usr/bin:/bin", "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"])
def test_libvirt_tells_the_version_it_behaves_as_whatever_path_a_login_has(kernel_host: KernelHost, path: str) -> None:
    told = f"PATH={path}; $(command -v libvirtd || echo /usr/sbin/libvirtd) --version"
    code, output, errors = kernel_host.run(told)
    assert (code, errors) == (0, "")
    assert _version(output) == max(_own_libvirt(), _TAKES_VENDOR_VFIO)


def test_libvirt_gives_a_vm_a_vf_on_its_vendors_driver_by_itself_or_before_9_7_by_the_shim(
    kernel_host: KernelHost, record_property: Callable[[str, object], None]
) -> None:
    code, output, errors = kernel_host.run("cat /proc/$(cat /run/libvirtd.pid)/maps")
    assert code == 0, errors
    has_shim = "driver_link_shim.so" in output
    record_property("VFs on their vendor's driver are taken by", "the shim" if has_shim else "libvirt itself")
    assert has_shim == (_own_libvirt() < _TAKES_VENDOR_VFIO)


def test_the_inventory_checks_host_keys(kernel_host: KernelHost) -> None:
    (host,) = lab.status(folder=kernel_host.folder)
    assert f"[127.0.0.1]:{host.port} ecdsa-sha2-nistp256 " in host.known_hosts.read_text()
    assert host.private_key.stat().st_mode & 0o077 == 0
    assert "StrictHostKeyChecking=no" not in host.inventory.read_text()


def test_each_card_shows_its_interface(kernel_host: KernelHost) -> None:
    kernel_host.restore_pristine()
    code, output, errors = kernel_host.run("lspci -Dn; cat /proc/vgpulab/state")
    assert code == 0, errors
    assert "0000:01:00.0 0302: 10de:2235" in output
    assert "0000:04:00.1 0403: 10de:1aef" in output
    assert "0000:05:00.0 0380: 8086:56c0" in output
    assert [line.split()[3] for line in output.splitlines() if line.startswith("card ")] == [
        "interface=vf-profile",
        "interface=mdev-vf",
        "interface=mdev-pf",
        "interface=none",
        "interface=vf",
    ]
    code, output, errors = kernel_host.run("virsh -q -c qemu:///system nodedev-list --cap mdev_types")
    assert (code, output.strip()) == (0, "pci_0000_03_00_0"), errors


def test_up_again_changes_nothing(kernel_host: KernelHost) -> None:
    before = lab.status(folder=kernel_host.folder)
    said: list[str] = []
    assert lab.up(folder=kernel_host.folder, say=said.append) == before
    assert said == [f"gpu1: already up, port {before[0].port}"]


def test_up_with_other_cards_is_refused(kernel_host: KernelHost) -> None:
    with pytest.raises(LabError, match="other cards"):
        lab.up([lab.parse_host("gpu1=t4:mdev")], folder=kernel_host.folder)


def test_the_command_shows_the_host_and_runs_in_it(kernel_host: KernelHost) -> None:
    environment = {**os.environ, "VGPUCTL_LAB_FOLDER": str(kernel_host.folder.path)}
    command = [sys.executable, "-m", "vgpuctl", "lab"]

    def vgpuctl(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*command, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    (shown,) = json.loads(vgpuctl("status", "--json").stdout)["hosts"]
    assert (shown["name"], shown["state"]) == ("gpu1", "up")
    ended = vgpuctl("shell", "gpu1", "--", "sh", "-c", 'echo "a  b"; id -un; exit 7')
    assert (ended.returncode, ended.stdout) == (7, "a  b\nroot\n")
    assert "vgpulab:" in vgpuctl("log", "gpu1").stdout
    refused = vgpuctl("shell", "gpu9")
    assert refused.returncode == LabError.exit_code
    assert "gpu1" in refused.stderr


def test_reboot_loses_devices_and_keeps_the_disk(kernel_host: KernelHost) -> None:
    kept = "/var/lib/libvirt/images/kept /etc/modprobe.d/kept.conf"
    kernel_host.restore_pristine()
    (before,) = lab.status(folder=kernel_host.folder)
    create = "/sys/bus/pci/devices/0000:03:00.0/mdev_supported_types/nvidia-232/create"
    code, _output, errors = kernel_host.run(
        f"echo 4b20d080-1b54-4048-85b3-a6a62d165c01 > {create}; echo kept | tee {kept};"
        " ls /sys/bus/mdev/devices | grep 4b20d080"
    )
    assert code == 0, errors
    kernel_host.reboot()
    code, output, errors = kernel_host.run(f"ls /sys/bus/mdev/devices; cat {kept}")
    assert (code, output) == (0, "kept\nkept\n"), errors
    assert kernel_host.run(f"rm {kept}; virsh -q pool-refresh default")[0] == 0
    (after,) = lab.status(folder=kernel_host.folder)
    assert (after.port, after.state) == (before.port, "up")
    assert after.pid != before.pid


@pytest.mark.long(
    "tests/lab/test_lab_network.py::test_the_switch_starts_once_and_leaves_nothing",
    "tests/lab/test_simulated.py::test_up_again_changes_nothing_and_more_hosts_join",
    "tests/lab/test_lab_parts.py::test_down_after_a_crash_removes_what_is_left",
)
def test_a_second_host_shares_a_network_and_its_death_leaves_the_first_alone(kernel_host: KernelHost) -> None:
    folder = kernel_host.folder
    (tiny,) = lab.up([lab.parse_host("tiny=t4:mdev")], folder=folder, memory_mib=2048)
    try:
        (first,) = [host for host in lab.status(folder=folder) if host.name == "gpu1"]
        assert first.network_address != tiny.network_address
        # 1472 bytes of data make a packet of 1500, the largest that fits.
        code, output, errors = kernel_host.run(f"busybox ping -c 3 -W 20 -s 1472 {tiny.network_address}")
        assert (code, "3 packets received" in output) == (0, True), output + errors
        variables = yaml.safe_load(first.inventory.read_text())["gpu_hosts"]["hosts"]
        assert variables["tiny"]["lab_network_address"] == tiny.network_address
        os.kill(tiny.pid, 9)
        os.waitpid(tiny.pid, 0)
        assert {host.name: host.state for host in lab.status(folder=folder)} == {"gpu1": "up", "tiny": "dead"}
        with pytest.raises(LabError, match="not running"):
            lab.run("tiny", "true", folder=folder)
    finally:
        assert lab.down(["tiny"], folder=folder) == ["tiny"]
    assert not folder.host("tiny").exists()
    assert kernel_host.run("hostname")[1] == "gpu1\n"
