# SPDX-License-Identifier: Apache-2.0
"""Known answers of libvirt and QEMU lead to a hint. They are of libvirt 9.0 to 11.3 and QEMU 7.2 to 10.0."""

import subprocess
import sys

import pytest

from vgpuctl.guests.libvirt_errors import hint_for


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ("internal error: Unmanaged PCI device 0000:3d:00.4 must be manually detached from the host", "libvirt 9.7"),
        (
            "Requested operation is not valid: PCI device 0000:41:00.0 is in use by driver QEMU, domain a.b",
            "holds the device",
        ),
        ("Requested operation is not valid: mediated device /x is in use by driver QEMU, domain a", "holds the device"),
        ("Network not found: no network with matching name 'blue'", "net-list"),
        ("Requested operation is not valid: network 'default' is not active", "net-start"),
        ("cannot allocate 4096 bytes in file '/x': No space left on device", "pool-info"),
        ("internal error: qemu unexpectedly closed the monitor: vfio 0000:41:00.0: VFIO_MAP_DMA failed: x", "pinned"),
        (
            "Failed to connect socket to '/var/run/libvirt/virtstoraged-sock': No such file or directory",
            "enable --now virtstoraged.socket",
        ),
        ("Cannot access storage file '/srv/vms/a.qcow2': Permission denied", "semanage fcontext -a -t virt_image_t"),
        ("internal error: process exited: Could not access KVM kernel module: Permission denied", "/dev/kvm"),
        ("operation failed: Unable to find any firmware to satisfy 'efi'", "ovmf"),
        ("unsupported configuration: qemu does not support SGA", "--firmware uefi"),
        ("internal error: Unable to find any usable hugetlbfs mount for 1048576 KiB", "check-hosts"),
        ("internal error: cannot load AppArmor profile 'libvirt-1234'", "AppArmor"),
        ("error getting device from group 14: Input/output error", "nvidia-vgpu-mgr"),
        ("unsupported configuration: spice graphics are not supported with this QEMU", "qemu-system-modules-spice"),
        ("unsupported configuration: domain configuration does not support video model 'qxl'", "--display vnc"),
        ("Address space limit 0xffffffffff < 0x1ffffffffff phys-bits too low (40)", "fewer GPUs"),
    ],
)
def test_a_known_answer_has_a_hint(answer: str, part: str) -> None:
    assert part in (hint_for(answer) or "")


def test_an_unknown_answer_has_none() -> None:
    assert hint_for("the moon is full") is None


def test_the_room_is_imported_without_libvirt_jinja_and_pycdlib() -> None:
    rooms = "libvirtd.hypervisor libvirtd.storage domain.render seed live.disks facts.domain_facts"
    code = (
        "import importlib, sys\n"
        f"for name in {rooms!r}.split(): importlib.import_module('vgpuctl.guests.' + name)\n"
        "print([name for name in ('libvirt', 'jinja2', 'pycdlib') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
