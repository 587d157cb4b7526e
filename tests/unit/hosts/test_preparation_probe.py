# SPDX-License-Identifier: Apache-2.0
"""The probe by plain sh, run by every shell that is here on folders that look like hosts of each distribution."""

import shutil
import subprocess
from pathlib import Path

import pytest

from vgpuctl.hosts.preparation_probe import SCRIPT, read_preparation
from vgpuctl.model.preparation import Preparation, PythonThere

SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
CARD = "/sys/bus/pci/devices/0000:41:00.0"
EL8 = {
    "/etc/os-release": 'ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="8.10"\nPRETTY_NAME="Rocky Linux 8.10"\n',
    "/proc/sys/kernel/osrelease": "4.18.0-553.el8_10.x86_64\n",
    "/proc/cmdline": "ro crashkernel=auto\n",
    "/proc/cpuinfo": "flags : fpu vmx smx\n",
    "/proc/meminfo": "MemTotal: 8 kB\nHugepagesize:       2048 kB\n",
    "/proc/mounts": "hugetlbfs /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n",
    "/proc/812/comm": "firewalld\n",
    "/sys/fs/selinux/enforce": "1",
    "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "16\n",
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": "\x06\x00\x00\x00\x01",
    "/lib/modules/4.18.0-553.el8_10.x86_64/modules.dep": "kernel/drivers/vfio/pci/vfio-pci.ko.xz: kernel/x.ko.xz\n",
    "/usr/libexec/platform-python": "#!/bin/sh\necho 3.6\n",
    "/usr/bin/python3.11": "#!/bin/sh\necho 3.11\n",
    "/usr/libexec/qemu-kvm": "#!/bin/sh\n",
    "/usr/bin/nv-fabricmanager": "#!/bin/sh\n",
    "/usr/lib64/libnvfm.so.1": "",
    "/usr/lib/systemd/system/libvirtd.socket": "",
    f"{CARD}/class": "0x030200\n",
    f"{CARD}/vendor": "0x10de\n",
    f"{CARD}/device": "0x2235\n",
    f"{CARD}/subsystem_vendor": "0x10de\n",
    f"{CARD}/subsystem_device": "0x145a\n",
    f"{CARD}/sriov_totalvfs": "32\n",
    f"{CARD}/resource": "0x0 0x0 0x0\n0x0000000000000000 0x0000000fffffffff 0x000000000014220c\n",
    "/sys/bus/pci/devices/0000:00:1f.0/class": "0x060100\n",
}


def run(shell: str, root: Path, files: dict[str, str]) -> Preparation:
    for path, text in files.items():
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        if "/bin/" in path or "/libexec/" in path:
            place.chmod(0o755)
    argv = ["busybox", "sh"] if shell == "busybox" else [shell]
    done = subprocess.run([*argv, "-s", str(root)], input=SCRIPT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nend=1\n")
    return read_preparation(done.stdout)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_host_of_the_rhel_family_is_read_as_it_is(shell: str, tmp_path: Path) -> None:
    (tmp_path / CARD.lstrip("/")).mkdir(parents=True)
    (tmp_path / CARD.lstrip("/") / "driver").symlink_to("/sys/bus/pci/drivers/nouveau")
    there = run(shell, tmp_path, EL8)
    assert (there.distribution[:2], there.release) == (("rocky", "rhel"), "rocky 8.10")
    assert there.operating_system == "Rocky Linux 8.10"
    assert there.pythons == (
        PythonThere("/usr/bin/python3.11", (3, 11)),
        PythonThere("/usr/libexec/platform-python", (3, 6)),
    )
    assert (there.has_kvm, there.has_iommu, there.cpu_virtualisation) == (False, False, "vmx")
    assert (there.pages, there.mounted_pages_kib) == (((1 << 20, 16),), frozenset({2048}))
    assert (there.firewalls, there.selinux, there.has_secure_boot) == (("firewalld",), "enforcing", True)
    assert (there.programs, there.units) == (
        frozenset({"qemu-kvm", "nv-fabricmanager"}),
        frozenset({"libvirtd.socket"}),
    )
    assert there.has_fabric_sdk
    assert there.has_modules_list and there.modules == {"vfio-pci"}
    (card,) = there.cards
    assert (card.address, card.vendor, card.device, card.subsystem) == ("0000:41:00.0", "10de", "2235", "10de:145a")
    assert (card.driver, card.total_vfs, card.has_unassigned_memory, card.is_vgpu_host) == ("nouveau", 32, True, False)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_host_that_shows_nothing_at_all_is_read_too(shell: str, tmp_path: Path) -> None:
    there = run(shell, tmp_path, {})
    assert (there.distribution, there.pythons, there.cards, there.programs) == ((), (), (), frozenset())


def test_numbers_that_no_host_has_are_none() -> None:
    many = "9" * 5000
    card = f"card=0000:41:00.0 0x10de 0x2235 10de:145a - {many} -"
    text = f"user_id={many}\npages={many}kB 1\ndefault_page=\u00b2\npython=/p {many}.1\n{card}\n"
    text += f"mount=x /p hugetlbfs pagesize={many}M 0 0\n"
    there = read_preparation(text)
    assert (there.user_id, there.pages, there.pythons, there.mounted_pages_kib) == (0, (), (), frozenset())
    assert [one.total_vfs for one in there.cards] == [None]


def test_lines_that_no_host_prints_are_left_out() -> None:
    text = "card=0000:41:00.0 0x10de\npython=/usr/bin/python3 x.y\npages=one two\nbar=a b c d\nuser_id=-1\nnothing\n"
    assert read_preparation(text) == Preparation()
