# SPDX-License-Identifier: Apache-2.0
"""Remedies for messages of libvirt and QEMU: one table by subject (what failed) and cause (how).

A message has lines; each is judged by itself, so that a warning about one thing and an error about another are not
mixed. Names that users choose (VMs, disks, networks) decide nothing: a path counts by its folder and ending.
Messages are of libvirt 9.0 to 11.3 (src/util, src/qemu, src/storage) and QEMU 7.2 to 10.0 (block, hw/vfio, util).
"""

import re
from collections.abc import Iterator
from enum import StrEnum

from vgpuctl.model.distribution import Family, Package, install
from vgpuctl.model.libvirt_units import hint_of


class About(StrEnum):
    """What a message is about."""

    GPU = "gpu"
    TPM = "tpm"
    FIRMWARE = "firmware"
    MEMORY = "memory"
    NETWORK = "network"
    DISPLAY = "display"
    KVM = "kvm"
    CGROUP = "cgroup"
    DAEMON = "daemon"
    MACHINE = "machine"
    CPU = "cpu"
    AGENT = "agent"
    QEMU = "qemu"
    POOL = "pool"
    DISK = "disk"


class Cause(StrEnum):
    """How it failed: an errno's text, or a sentence of the program's own."""

    LOCKED = "locked"
    NOT_VIABLE = "not-viable"
    UNMANAGED = "unmanaged"
    CONTAINER = "container"
    PINNING = "pinning"
    PREALLOCATION = "preallocation"
    CORRUPT = "corrupt"
    NOT_THE_FORMAT = "not-the-format"
    INACTIVE = "inactive"
    NOT_FOUND = "not-found"
    UNSUPPORTED = "unsupported"
    INCOMPATIBLE = "incompatible"
    STATE_LOCK = "state-lock"
    NOT_CONNECTED = "not-connected"
    ENDED = "ended"
    NO_SLOT = "no-slot"
    TOO_LOW = "too-low"
    RUN = "run"
    ROLE = "role"
    IO = "EIO"
    NO_SPACE = "ENOSPC"
    QUOTA = "EDQUOT"
    DENIED = "EACCES"
    NOT_PERMITTED = "EPERM"
    MISSING = "ENOENT"
    NO_DEVICE = "ENODEV"
    READ_ONLY = "EROFS"
    STALE = "ESTALE"
    NO_MEMORY = "ENOMEM"
    BUSY = "EBUSY"
    INVALID = "EINVAL"
    IN_USE = "EADDRINUSE"
    FILES = "EMFILE"


_OPTION = re.compile(
    r"-(?P<option>blockdev|drive|device|netdev|chardev|tpmdev|object|machine|accel|vnc|spice|display)\b"
)
_DRIVER = re.compile(r'"(?:driver|qom-type)":\s*"(?P<json>[^"]+)"|^(?P<plain>[\w-]+)')
_JSON = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_LONGEST = 4096
"""Characters of a message that are looked at: the longest known one has some hundreds."""
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|\[[^][]*\]")
_PATH = re.compile(r"(?<![\w/])/[^\s'\",:;\]]+")

_CPUSET = re.compile(r"for 'cpu(set)?\.[a-z_.]+'")
"""libvirt quotes the name of a cgroup's file without its folder."""

_OF_PATHS = (
    (About.GPU, re.compile(r"^/dev/vfio|^/sys/bus/(pci|mdev)|/sys/devices/.*mdev|^/dev/iommu")),
    (About.KVM, re.compile(r"^/dev/kvm")),
    (About.NETWORK, re.compile(r"^/dev/(net/tun|vhost-net|tap\d+)|^/sys/class/net")),
    (About.CGROUP, re.compile(r"^/sys/fs/cgroup")),
    (About.MEMORY, re.compile(r"^/dev/hugepages|^/sys/kernel/mm/hugepages")),
    (About.TPM, re.compile(r"/swtpm(_setup)?\b")),
    (About.FIRMWARE, re.compile(r"\.fd$|/nvram/|/OVMF/|/edk2/", re.IGNORECASE)),
    (About.DISPLAY, re.compile(r"^/dev/dri/")),
    (About.DAEMON, re.compile(r"-sock$")),
    (About.QEMU, re.compile(r"/qemu-(system-\w+|kvm)$")),
)
_OF_DRIVERS = (
    (About.GPU, re.compile(r"vfio-")),
    (About.TPM, re.compile(r"tpm|emulator")),
    (About.MEMORY, re.compile(r"memory-backend")),
    (About.NETWORK, re.compile(r"virtio-net|e1000|rtl8139|tap|vhost-vdpa")),
    (About.DISPLAY, re.compile(r"qxl|vga|bochs|virtio-gpu|egl")),
    (About.DISK, re.compile(r"virtio-blk|scsi-|ide-|nvme|file|qcow2|raw|host_device|nbd")),
)
_OF_OPTIONS = {
    "blockdev": About.DISK,
    "drive": About.DISK,
    "netdev": About.NETWORK,
    "tpmdev": About.TPM,
    "machine": About.MACHINE,
    "accel": About.KVM,
    "vnc": About.DISPLAY,
    "spice": About.DISPLAY,
    "display": About.DISPLAY,
}
# In what is left of a line without options, quoted values and paths; the more particular subject first.
_OF_WORDS = (
    (
        About.GPU,
        r"\bvfio\b|vfio_|vfio-|device from group|\bmdev\b|mediated device|pci device|\bhostdev\b|passthrough|\biommu",
    ),
    (About.TPM, r"\bswtpm|\btpm\b"),
    (About.FIRMWARE, r"\bfirmware\b|\bnvram\b|\bpflash|\bsga\b"),
    (About.MEMORY, r"hugetlbfs|hugepages?\b|guest (memory|ram)|os_mem_prealloc|locked memory|memlock|preallocat"),
    (About.CGROUP, r"\bcgroup|cpuset\.|\bcontroller \w+ for group"),
    (About.KVM, r"kvm kernel module|initialize kvm|kvm_create_vm|virt type"),
    (About.DISPLAY, r"\bspice\b|\bvnc\b|\bopengl\b|\begl\b|render node|video model|available port"),
    (About.AGENT, r"guest agent"),
    (About.NETWORK, r"\bnetwork\b|\bbridge\b|\btap device|\binterface\b|\bmacvtap\b|\btun module"),
    (About.POOL, r"storage pool|\bpool\b"),
    (About.MACHINE, r"machine type|pci (slots|addresses)"),
    (About.CPU, r"phys-bits|\bcpu\b"),
    (About.DAEMON, r"\bvirtlogd\b|\bvirtlockd\b|reading data|polkit"),
    (About.QEMU, r"qemu binary|from monitor|monitor socket"),
    (About.DISK, r"storage (file|vol)|\bdisk\b|\bimage\b|\block\b|backing file|user and group|open files"),
)
_CAUSES = (
    (Cause.CONTAINER, r"set iommu for container"),
    (Cause.UNMANAGED, r"must be manually detached"),
    (Cause.NOT_VIABLE, r"is not viable"),
    (Cause.LOCKED, r"failed to get (shared )?\"[\w ]+\" lock|another process using the image"),
    (Cause.PINNING, r"vfio_map_dma|vfio_dma_map|vfio_container_dma_map|memlock|locked memory"),
    (Cause.PREALLOCATION, r"os_mem_prealloc|preallocating memory failed|unable to map backing store"),
    (Cause.CORRUPT, r"image is corrupt"),
    (Cause.NOT_THE_FORMAT, r"image is not in \w+ format"),
    (Cause.STATE_LOCK, r"cannot acquire state change lock"),
    (Cause.NOT_CONNECTED, r"not connected|not responding|not available currently"),
    (Cause.ENDED, r"end of file while reading|unable to read from monitor"),
    (Cause.ROLE, r"no polkit agent"),
    (Cause.NO_SLOT, r"no more available pci"),
    (Cause.TOO_LOW, r"phys-bits too low"),
    (Cause.INACTIVE, r"is not active"),
    (
        Cause.INCOMPATIBLE,
        r"incompatible with host cpu|missing features|no drm render node|opengl not av",
    ),
    (Cause.UNSUPPORTED, r"\bnot support|unsupported machine|requires vfio support|is not supported"),
    (Cause.NOT_FOUND, r"\bnot found\b|filesystem is not mounted|unable to find|no usable|could not find"),
    (Cause.RUN, r"could not run|died and reported|died unexpectedly|cannot check qemu|unable to add (port|bridge)"),
    (Cause.BUSY, r"in use by|device or resource busy|resource busy"),
    (Cause.IO, r"input/output error"),
    (Cause.NO_SPACE, r"no space left on device"),
    (Cause.QUOTA, r"disk quota exceeded"),
    (Cause.DENIED, r"permission denied"),
    (Cause.NOT_PERMITTED, r"operation not permitted"),
    (Cause.NO_MEMORY, r"cannot allocate memory"),
    (Cause.READ_ONLY, r"read-only file system"),
    (Cause.STALE, r"stale (nfs )?file handle"),
    (Cause.NO_DEVICE, r"no such device"),
    (Cause.MISSING, r"no such file or directory"),
    (Cause.IN_USE, r"address already in use"),
    (Cause.FILES, r"too many open files"),
    (Cause.INVALID, r"invalid argument"),
)

_DETACHED = (
    "libvirt before 9.7 accepts an unmanaged device only when its driver is vfio-pci; a vendor's VFIO driver "
    "(managed='no') needs libvirt 9.7 or newer on the host"
)
_HOLDER = (
    "another domain or program holds the device; `vgpuctl inspect-host HOST` names its holder, `virsh list --all` "
    "shows the domains, and `vgpuctl repair` rolls back what a killed run left"
)
_GONE_DEVICE = (
    "the host has no such device any more: `vgpuctl check-vm` says what is lost, `vgpuctl repair` makes it again"
)
_VENDOR = "the vendor's driver refused the device: `journalctl -u nvidia-vgpu-mgr` and dmesg on the host say why"
_DYING = "the disk under this file fails: `dmesg` and `smartctl -a` on the host say which; move the VMs away from it"
_PIN = "the guest's memory could not be pinned: check free memory on the host and the memlock limit of libvirtd"
_LIMIT = "libvirt raises the limit of locked memory itself; in a container libvirtd needs CAP_SYS_RESOURCE"
_MEMORY = "a guest with a GPU pins all its memory: free memory on the host or ask for less with --memory"
_HUGE = "libvirt finds no hugetlbfs of the guest's page size: `vgpuctl check-hosts` names the command that mounts it"
_HUGE_FREE = (
    "too few huge pages are free on this node: `grep . /sys/devices/system/node/node*/hugepages/*/free_hugepages`"
    " there; free some or ask for less with --memory"
)
_FULL = "a disk of the host is full: `df -h` there shows which, `virsh pool-info POOL` what a storage pool has left"
_LABEL = (
    "look at the file's owner and mode, and at its folders'; where `getenforce` says Enforcing, a folder other than"
    " /var/lib/libvirt/images needs a label: `semanage fcontext -a -t virt_image_t 'FOLDER(/.*)?'`, then"
    " `restorecon -R FOLDER`"
)
_APPARMOR = (
    "AppArmor stands in the way: `journalctl -k | grep DENIED` on the host names the path; base images belong "
    "into a libvirt pool or /var/lib/libvirt/images"
)
_KVM = "/dev/kvm is missing or refused: enable virtualisation in the firmware, load kvm_intel or kvm_amd"
_FIRMWARE = (
    "the host has no UEFI build that starts a guest without Secure Boot's keys: "
    f"{install([Package.FIRMWARE], Family.UNKNOWN)}"
)
_TPM = (
    "the emulator of its TPM fails: `/var/log/swtpm/libvirt/qemu/` on the host says why; swtpm_setup must be"
    " installed, and the folder of its certificates, /var/lib/swtpm-localca, writable for its user"
)
_SPICE = (
    "the host's QEMU has no SPICE: Debian 13 has it in qemu-system-modules-spice, RHEL 9 and newer do not have it; or "
    "create the VM with --display vnc"
)
_NETWORKS = "`virsh net-list --all` on the host lists its networks; choose one with --network"
_NET_START = "`virsh net-start NETWORK` and `virsh net-autostart NETWORK` on the host bring a network up"
_BRIDGE = "the host has no bridge of this name: `ip -br link` there lists its interfaces; set it up, or choose another"
_OVS = "Open vSwitch does not take the port: `ovs-vsctl show` and its service's log on the host say why"
_TUN = "the host cannot make tap devices: `modprobe tun` there, and libvirtd needs CAP_NET_ADMIN"
_POOL = (
    "`virsh pool-list --all` on the host lists its storage pools; `virsh pool-start` and `pool-autostart` bring one up"
)
_LOCK = (
    "another QEMU or qemu-img has the disk open: `fuser -v FILE` on the host, or on each host that mounts it, names it"
)
_MISSING_FILE = "the file is gone, or its storage is not mounted: `findmnt -T FILE` on the host says which"
_MACHINE = "the host's QEMU is older than the one that made the VM: upgrade it, or start the VM where QEMU is as new"
_CPU = (
    "the host's CPU lacks what the guest was given; start it on a host with the CPU that it had, or another CPU model"
)
_CGROUP = (
    "the CPUs or memory nodes of the VM are not in the cgroup of libvirt: `systemctl show machine.slice -p AllowedCPUs`"
)
_IOMMU = (
    "the IOMMU does not take the device: `dmesg | grep -e DMAR -e AMD-Vi` on the host; without interrupt remapping"
    " VFIO refuses devices"
)
_GROUP = "other devices of its IOMMU group have another driver: `vgpuctl inspect-host HOST` lists the group"
_REPLY = (
    "another command holds the domain: `virsh domjobinfo DOMAIN` on the host says which; try again when it has ended"
)
_EXITED = "QEMU ended: its log on the host, /var/log/libvirt/qemu/DOMAIN.log says why, or dmesg"
_NFS = "the NFS server has replaced the file, or maps root to nobody: mount it again, with `no_root_squash` there"
_SWITCHED = "the file system went read-only, most often after errors of its disk: `dmesg` on the host, then fsck"
_RENDER = "the host has no GPU that can render for the display: /dev/dri is empty; create the VM with --display vnc"
_NO_QEMU = f"the host has no QEMU there: {install([Package.QEMU], Family.UNKNOWN)}"

_ROWS: dict[tuple[About | None, Cause | None], str] = {
    (About.GPU, Cause.UNMANAGED): _DETACHED,
    (About.GPU, Cause.CONTAINER): _IOMMU,
    (About.GPU, Cause.BUSY): _HOLDER,
    (About.GPU, Cause.NOT_VIABLE): _GROUP,
    (About.GPU, Cause.PINNING): _PIN,
    (About.GPU, Cause.IO): _VENDOR,
    (About.GPU, Cause.NO_DEVICE): _GONE_DEVICE,
    (About.GPU, Cause.MISSING): _GONE_DEVICE,
    (About.GPU, Cause.NOT_FOUND): _GONE_DEVICE,
    (About.GPU, Cause.NO_MEMORY): _PIN,
    (About.GPU, Cause.NOT_PERMITTED): _IOMMU,
    (About.GPU, Cause.INVALID): _IOMMU,
    (About.GPU, Cause.DENIED): "QEMU's user may not open the device: `ls -l /dev/vfio` on the host; " + _APPARMOR,
    (About.GPU, Cause.UNSUPPORTED): "VFIO is not loaded on the host: `modprobe vfio-pci`, and the IOMMU must be on "
    "(intel_iommu=on, amd_iommu=on)",
    (About.GPU, Cause.INCOMPATIBLE): _RENDER,
    (About.TPM, None): _TPM,
    (About.FIRMWARE, Cause.NOT_FOUND): _FIRMWARE,
    (About.FIRMWARE, Cause.MISSING): "the firmware's build, or the file of the VM's variables in"
    " /var/lib/libvirt/qemu/nvram, is gone: bring it back from a backup, or " + _FIRMWARE,
    (About.FIRMWARE, Cause.UNSUPPORTED): "this QEMU has no serial console for its BIOS, as on RHEL 9 and its kin: "
    "create the VM with --firmware uefi",
    (About.MEMORY, Cause.NOT_FOUND): _HUGE,
    (About.MEMORY, Cause.PREALLOCATION): _HUGE_FREE,
    (About.MEMORY, Cause.NO_SPACE): _HUGE_FREE,
    (About.MEMORY, Cause.PINNING): _LIMIT,
    (About.NETWORK, Cause.NOT_FOUND): _NETWORKS,
    (About.NETWORK, Cause.INACTIVE): _NET_START,
    (About.NETWORK, Cause.NO_DEVICE): _BRIDGE,
    (About.NETWORK, Cause.RUN): _OVS,
    (About.NETWORK, Cause.MISSING): _TUN,
    (About.NETWORK, Cause.NOT_PERMITTED): _TUN,
    (About.NETWORK, Cause.BUSY): "something else holds the interface: `ip -d link show` on the host names its master",
    (About.DISPLAY, Cause.UNSUPPORTED): _SPICE,
    (
        About.DISPLAY,
        Cause.IN_USE,
    ): "all ports for displays are taken, or one is taken by another program: `ss -ltnp` on the"
    " host; remote_display_port_max in its qemu.conf has the range",
    (About.DISPLAY, Cause.INCOMPATIBLE): _RENDER,
    (About.KVM, Cause.NO_MEMORY): _MEMORY,
    (About.KVM, None): _KVM,
    (About.CGROUP, None): _CGROUP,
    (About.MACHINE, Cause.UNSUPPORTED): _MACHINE,
    (About.MACHINE, Cause.NO_SLOT): "the domain has no free PCI slot: give the VM fewer GPUs, NICs or disks",
    (About.CPU, Cause.INCOMPATIBLE): _CPU,
    (About.CPU, Cause.TOO_LOW): "the GPUs' memory windows do not fit the CPU's address width; give the VM fewer GPUs",
    (About.AGENT, Cause.NOT_CONNECTED): "qemu-guest-agent does not run in the guest, or the guest has not booted yet",
    (About.DAEMON, Cause.ENDED): hint_of(""),
    (
        About.DAEMON,
        Cause.ROLE,
    ): "the login may not use libvirt: set ansible_become, or add its user to the group libvirt",
    (About.QEMU, Cause.ENDED): _EXITED,
    (About.QEMU, Cause.RUN): _NO_QEMU,
    (About.QEMU, Cause.MISSING): _NO_QEMU,
    (About.POOL, Cause.NOT_FOUND): _POOL,
    (About.POOL, Cause.INACTIVE): _POOL,
    (About.DISK, Cause.LOCKED): _LOCK,
    (About.DISK, Cause.BUSY): _LOCK,
    (About.DISK, Cause.IO): _DYING,
    (About.FIRMWARE, Cause.IO): _DYING,
    (About.DISK, Cause.DENIED): _LABEL,
    (About.FIRMWARE, Cause.DENIED): _LABEL,
    (About.DISK, Cause.NOT_PERMITTED): _NFS,
    (About.DISK, Cause.MISSING): _MISSING_FILE,
    (
        About.DISK,
        Cause.CORRUPT,
    ): "the image is damaged: `qemu-img check -r leaks FILE` on the host while the VM is off, or a snapshot",
    (
        About.DISK,
        Cause.NOT_THE_FORMAT,
    ): "the file is another format than its pool says: `qemu-img info FILE` on the host",
    (About.DISK, Cause.INVALID): "the file system may not do direct I/O (cache=none): `findmnt -T FILE` on the host",
    (
        About.DISK,
        Cause.FILES,
    ): "libvirtd or QEMU has too many files open: raise LimitNOFILE, or max_files in qemu.conf",
    (None, Cause.STATE_LOCK): _REPLY,
    (None, Cause.NO_SPACE): _FULL,
    (None, Cause.QUOTA): "the user of QEMU has no disk quota left there: `quota -v` and `repquota -a` on the host",
    (None, Cause.NO_MEMORY): _MEMORY,
    (None, Cause.READ_ONLY): _SWITCHED,
    (None, Cause.STALE): _NFS,
    (None, Cause.LOCKED): _LOCK,
}
"""The remedy by subject and cause. None: of every subject, or of every cause; what says more of the two counts."""


def hint_for(answer: str) -> str | None:
    """Give what helps against a message of libvirt or QEMU, None when nothing is known."""
    answer = answer[:_LONGEST]
    lines = answer.split("; ")
    found = [_hints_of(line) for line in lines]
    by_subject = next((one for one, _by_cause in found if one is not None), None)
    by_cause = next((one for _by_subject, one in found if one is not None), None)
    return by_subject or by_cause or (hint_of(answer) if "-sock'" in answer else None)


def _hints_of(line: str) -> tuple[str | None, str | None]:
    """The remedies of one line: by its subject (and cause where that matters), and by its cause alone."""
    lowered = line.lower()
    if "apparmor profile" in _bare(lowered):
        return _APPARMOR, None
    causes = [cause for cause, pattern in _CAUSES if re.search(pattern, _without_names(lowered))]
    subjects = list(_subjects(line))
    pairs = [(subject, cause) for subject in subjects for cause in (*causes, None)] if causes else []
    by_subject = next((_ROWS[pair] for pair in pairs if pair in _ROWS), None)
    return by_subject, next((_ROWS[None, cause] for cause in causes if (None, cause) in _ROWS), None)


def _subjects(line: str) -> Iterator[About]:
    """What a line is about, the most particular first: QEMU's option, the paths, then the words."""
    option = _OPTION.search(line)
    if option is not None:
        argument = line[option.end() :].lstrip()
        driver = _DRIVER.search(argument)
        name = "" if driver is None else driver["json"] or driver["plain"] or ""
        if option["option"] != "blockdev":
            yield from (subject for subject, pattern in _OF_DRIVERS if pattern.search(name))
    paths = _PATH.findall(line)
    special = [subject for subject, pattern in _OF_PATHS if any(pattern.search(path) for path in paths)]
    yield from special
    bare = _bare(line.lower())
    yield from (subject for subject, pattern in _OF_WORDS if re.search(pattern, bare))
    if _CPUSET.search(line):
        yield About.CGROUP
    if option is not None and option["option"] in _OF_OPTIONS:
        yield _OF_OPTIONS[option["option"]]
    if paths and not special:
        yield About.DISK


def _without_names(lowered: str) -> str:
    """A line without the values that users choose; the words of a lock stay."""
    return re.sub(r"'[^']*'|\[[^\]]*\]", " ", _JSON.sub(" ", lowered))


def _bare(lowered: str) -> str:
    """A line without QEMU's options, quoted values and paths."""
    return _PATH.sub(" ", _QUOTED.sub(" ", _JSON.sub(" ", lowered)))
