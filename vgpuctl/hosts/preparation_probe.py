# SPDX-License-Identifier: Apache-2.0
"""Read a host by plain sh over SSH, before the agent can run there. It only reads.

The script takes the root to look under as its argument and uses what every Linux has: sh, cat, grep, id, od, readlink,
uname. It prints one `key=value` per line.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from vgpuctl.agent.wire.mounts import read_hugetlbfs_sizes
from vgpuctl.agent.wire.os_release import read_os_release
from vgpuctl.errors import CommandFailed
from vgpuctl.hosts.remote_process import CompletedCommand
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.preparation import Preparation, ProbedCard, PythonThere

_TIMEOUT_S = 60.0
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})")
# No host has numbers of more digits, and int() refuses thousands of them.
_NUMBER = re.compile(r"[0-9]{1,12}")
_NVIDIA_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)*)\b")
_BARS = 6
_IS_MEMORY = 0x200  # IORESOURCE_MEM, include/linux/ioport.h

SCRIPT = r"""
root=${1%/}
show() {
  [ -r "$root$2" ] || return 0
  while IFS= read -r line || [ -n "$line" ]; do printf '%s=%s\n' "$1" "$line"; done < "$root$2"
}
present() { [ -e "$root$2" ] || [ -L "$root$2" ] && printf '%s\n' "$1"; }
printf 'user_id=%s\nmachine=%s\n' "$(id -u)" "$(uname -m)"
if [ -r "$root/etc/os-release" ]; then show os_release /etc/os-release; else show os_release /usr/lib/os-release; fi
show kernel /proc/sys/kernel/osrelease
show command_line /proc/cmdline
show mount /proc/mounts
show selinux /sys/fs/selinux/enforce
show ufw /etc/ufw/ufw.conf
show nvidia /proc/driver/nvidia/version
grep -m 1 -o -w -E 'vmx|svm' "$root/proc/cpuinfo" 2>/dev/null | while read -r flag; do echo "virtualisation=$flag"; done
grep -E '^Hugepagesize:' "$root/proc/meminfo" 2>/dev/null | while read -r _ size _; do echo "default_page=$size"; done
for folder in "$root"/sys/kernel/mm/hugepages/hugepages-*kB; do
  [ -r "$folder/nr_hugepages" ] && read -r count < "$folder/nr_hugepages" && echo "pages=${folder##*-} $count"
done
present kvm=1 /dev/kvm
present proxmox=1 /etc/pve
present proxmox=1 /usr/bin/pveversion
for one in "$root"/sys/class/iommu/*; do { [ -e "$one" ] || [ -L "$one" ]; } && echo iommu=1; done
variable=/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c
if [ ! -e "$root/sys/firmware/efi" ]; then echo secure_boot=0
elif [ -r "$root$variable" ]; then
  set -- $(od -An -tu1 "$root$variable" 2>/dev/null); while [ $# -gt 1 ]; do shift; done; echo "secure_boot=$1"
fi
for name in sudo libvirtd virtqemud virt-ssh-helper qemu-system-x86_64 qemu-kvm ovs-vsctl ovn-controller swtpm \
  swtpm_setup nv-fabricmanager; do
  for folder in /usr/sbin /usr/bin /sbin /bin /usr/local/bin /usr/libexec; do
    [ -x "$root$folder/$name" ] && echo "program=$name" && break
  done
done
for folder in /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/lib /usr/local/lib; do
  present fabric_sdk=1 "$folder/libnvfm.so.1"
done
for name in python3 python3.9 python3.10 python3.11 python3.12 python3.13 python3.14 platform-python; do
  for folder in /usr/bin /usr/local/bin /usr/libexec; do
    [ -x "$root$folder/$name" ] || continue
    version=$("$root$folder/$name" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
    echo "python=$folder/$name ${version:-0.0}"
    break
  done
done
for path in "$root"/run/libvirt/*-sock; do
  { [ -e "$path" ] || [ -L "$path" ]; } && echo "socket=${path##*/}"
done
for folder in /etc/systemd/system /usr/lib/systemd/system /lib/systemd/system; do
  for name in libvirtd.service libvirtd.socket virtqemud.socket virtstoraged.socket virtnetworkd.socket \
    virtnwfilterd.socket virtlogd.socket nvidia-vgpu-mgr.service nvidia-vgpud.service nvidia-gridd.service \
    openvswitch.service openvswitch-switch.service ovn-controller.service; do
    present "unit=$name" "$folder/$name"
  done
done
for path in "$root"/proc/[0-9]*/comm; do
  read -r name < "$path" && case $name in
    firewalld|libvirtd|virtqemud|virtlogd|ovs-vswitchd|ovn-controller|nvidia-gridd) echo "process=$name";;
  esac
done 2>/dev/null
IFS= read -r release < "$root/proc/sys/kernel/osrelease"
for list in modules.dep modules.builtin; do
  list=$root/lib/modules/$release/$list
  [ -r "$list" ] && echo modules_list=1
  grep -o -E '/(vfio-pci|openvswitch|geneve|vxlan)\.ko' "$list" 2>/dev/null |
    while IFS= read -r name; do name=${name#/}; echo "module=${name%.ko}"; done
done
for folder in /usr/share/qemu/firmware /etc/qemu/firmware; do
  for path in "$root$folder"/*.json; do [ -s "$path" ] && echo "firmware=${path##*/}"; done
done
for device in "$root"/sys/bus/pci/devices/*; do
  read -r class < "$device/class" || continue
  case $class in 0x03*|0x12*) ;; *) continue;; esac
  { [ -e "$device/physfn" ] || [ -L "$device/physfn" ]; } && continue
  address=${device##*/}
  driver=$(readlink "$device/driver") || driver=/-
  vfs=-; [ -r "$device/sriov_totalvfs" ] && read -r vfs < "$device/sriov_totalvfs"
  lock=-; [ -e "$root/proc/driver/nvidia/gpus/$address/unbindLock" ] && lock=1
  read -r vendor < "$device/vendor"; read -r number < "$device/device"
  subvendor=0x0000; subnumber=0x0000
  [ -r "$device/subsystem_vendor" ] && read -r subvendor < "$device/subsystem_vendor"
  [ -r "$device/subsystem_device" ] && read -r subnumber < "$device/subsystem_device"
  echo "card=$address $vendor $number ${subvendor#0x}:${subnumber#0x} ${driver##*/} $vfs $lock"
  [ -r "$device/resource" ] && while read -r bar; do echo "bar=$address $bar"; done < "$device/resource"
done 2>/dev/null
echo end=1
"""


class Runner(Protocol):
    """Operations that the probe needs of a connection."""

    target: HostTarget

    def run(
        self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"", become: bool | None = None
    ) -> CompletedCommand:
        """Run one command to its end."""


def probe(connection: Runner) -> Preparation:
    """Read the host as the login user, without sudo. Raises CommandFailed, and what the connection raises."""
    completed = connection.run(["sh", "-s", "/"], timeout_s=_TIMEOUT_S, stdin=SCRIPT.encode(), become=False)
    text = completed.stdout.decode("utf-8", "replace")
    if "\nend=1" not in text:
        raise CommandFailed(
            f"{connection.target.name}: sh could not read the host (exit status {completed.exit_status})",
            context=completed.stderr.decode("utf-8", "replace").splitlines()[-5:],
            hint="see that the login has a shell, and what it prints at a login without terminal",
        )
    return read_preparation(text)


def read_preparation(text: str) -> Preparation:
    """Read what the script printed; a line that cannot be read is left out."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found.setdefault(key, []).append(value.strip())

    def last(key: str) -> str:
        return found.get(key, [""])[-1]

    release = read_os_release("\n".join(found.get("os_release", ())))
    default = last("default_page")
    mounted = read_hugetlbfs_sizes("\n".join(found.get("mount", ())), _number(default))
    driver = _NVIDIA_VERSION.search(" ".join(found.get("nvidia", ())))
    return Preparation(
        distribution=tuple(one for one in (release.get("ID", ""), *release.get("ID_LIKE", "").split()) if one),
        release=" ".join(release[name] for name in ("ID", "VERSION_ID") if name in release),
        operating_system=release.get("PRETTY_NAME", "Linux"),
        kernel=last("kernel"),
        machine=last("machine"),
        command_line=last("command_line"),
        user_id=_number(last("user_id")) or 0,
        pythons=tuple(_pythons(found.get("python", ()))),
        programs=frozenset(found.get("program", ())),
        modules=frozenset(found.get("module", ())),
        has_modules_list="modules_list" in found,
        sockets=frozenset(found.get("socket", ())),
        units=frozenset(found.get("unit", ())),
        processes=frozenset(found.get("process", ())),
        cpu_virtualisation=last("virtualisation"),
        has_kvm="kvm" in found,
        has_iommu="iommu" in found,
        cards=tuple(_cards(found.get("card", ()), found.get("bar", ()))),
        nvidia_driver=driver[1] if driver else None,
        firmware_builds=tuple(sorted(set(found.get("firmware", ())))),
        mounted_pages_kib=frozenset(mounted),
        pages=tuple(_pages(found.get("pages", ()))),
        firewalls=_firewalls(found),
        selinux={"1": "enforcing", "0": "permissive"}.get(last("selinux"), ""),
        has_secure_boot={"1": True, "0": False}.get(last("secure_boot")),
        is_proxmox="proxmox" in found,
        has_fabric_sdk="fabric_sdk" in found,
    )


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _pythons(lines: Iterable[str]) -> Iterable[PythonThere]:
    for line in lines:
        path, _, version = line.partition(" ")
        match = _VERSION.fullmatch(version)
        if match:
            yield PythonThere(path, (int(match[1]), int(match[2])))


def _pages(lines: Iterable[str]) -> Iterable[tuple[int, int]]:
    for line in lines:
        size, _, count = line.partition("kB ")
        numbers = _number(size), _number(count)
        if numbers[0] is not None and numbers[1] is not None:
            yield numbers[0], numbers[1]


def _cards(lines: Iterable[str], bars: Iterable[str]) -> Iterable[ProbedCard]:
    unassigned = _unassigned(bars)
    for line in lines:
        words = line.split()
        if len(words) != 7:
            continue
        address, vendor, device, subsystem, driver, vfs, lock = words
        yield ProbedCard(
            address,
            vendor.removeprefix("0x"),
            device.removeprefix("0x"),
            subsystem,
            None if driver == "-" else driver,
            _number(vfs),
            address in unassigned,
            lock == "1",
        )


def _unassigned(lines: Iterable[str]) -> set[str]:
    """Addresses of functions with a memory BAR of no address: flags are set, start is 0 (drivers/pci/pci-sysfs.c)."""
    seen: dict[str, int] = {}
    found = set()
    for line in lines:
        words = line.split()
        if len(words) != 4:
            continue
        address, start, _end, flags = words
        number = seen[address] = seen.get(address, 0) + 1
        try:
            is_unassigned = number <= _BARS and int(flags, 16) & _IS_MEMORY and not int(start, 16)
        except ValueError:
            continue
        if is_unassigned:
            found.add(address)
    return found


def _firewalls(found: dict[str, list[str]]) -> tuple[str, ...]:
    names = []
    if "firewalld" in found.get("process", ()):
        names.append("firewalld")
    if any(line.lower().replace('"', "") == "enabled=yes" for line in found.get("ufw", ())):
        names.append("ufw")
    return tuple(names)
