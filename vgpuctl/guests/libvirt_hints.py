# SPDX-License-Identifier: Apache-2.0
"""Remedies for messages of libvirt and QEMU: the subject and the cause of one, for libvirt_remedies.py.

A message has lines; each is judged by itself, so that a warning about one thing and an error about another are not
mixed. Names that users choose (VMs, disks, networks) decide nothing: a path counts by its folder and ending.
Messages are of libvirt 9.0 to 11.3 (src/util, src/qemu, src/storage) and QEMU 7.2 to 10.0 (block, hw/vfio, util).
"""

import re
from collections.abc import Iterator

from vgpuctl.guests.libvirt_remedies import BY_THEMSELVES, REMEDIES, About, Cause
from vgpuctl.model.libvirt_units import hint_of

_OPTION = re.compile(
    r"-(?P<option>blockdev|drive|device|netdev|chardev|tpmdev|object|machine|accel|vnc|spice|display)\b"
)
_DRIVER = re.compile(r'"(?:driver|qom-type)":\s*"(?P<json>[^"]+)"|^(?P<plain>[\w-]+)')
_JSON = re.compile(r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_LONGEST = 4096
"""Characters of a message that are looked at: the longest known one has some hundreds."""
_VIRT_TYPE = re.compile(r"virt type '(\w+)'")
"""libvirt quotes its own word for the accelerator, which nobody chooses as a name."""
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
    (About.FIREWALL, r"firewall command"),
    (About.SECURITY, r"security driver"),
    (About.FIRMWARE, r"\bfirmware\b|\bnvram\b|\bpflash|\bsga\b"),
    (About.MEMORY, r"hugetlbfs|hugepages?\b|guest (memory|ram)|os_mem_prealloc|locked memory|memlock|preallocat"),
    (About.CGROUP, r"\bcgroup|cpuset\.|\bcontroller \w+ for group"),
    (
        About.KVM,
        r"kvm kernel module|initialize kvm|kvm_create_vm|virt type|domaintype|domain type|requires kvm|kvm is not",
    ),
    (About.DISPLAY, r"\bspice\b|\bvnc\b|\bopengl\b|\begl\b|render node|video model|available port|free port"),
    (About.AGENT, r"guest agent"),
    (About.NETWORK, r"\bnetwork\b|\bbridge\b|\btap device|\binterface\b|\bmacvtap\b|\btun module|vhost-net"),
    (About.POOL, r"storage pool|\bpool\b"),
    (About.MACHINE, r"machine type|pci (slots|addresses)"),
    (About.CPU, r"phys-bits|\bcpu\b"),
    (About.DAEMON, r"\bvirtlogd\b|\bvirtlockd\b|reading data|client socket|polkit"),
    (About.QEMU, r"qemu binary|from monitor|monitor socket|suitable emulator|supported architecture"),
    (About.DISK, r"storage (file|vol)|\bdisk\b|\bimage\b|\block\b|backing file|user and group|open files"),
)
_CAUSES = (
    (Cause.APPARMOR, r"apparmor profile"),
    (Cause.LIBRARY, r"loading shared libraries|undefined symbol|symbol lookup error|failed to initialize module"),
    (Cause.OTHER_ACCELERATOR, r"(virt type |domaintype=|domain type )(?!kvm)\w+"),
    (Cause.FORMAT, r"exec format error"),
    (Cause.NO_GROUP, r"no iommu_group found"),
    (Cause.SHARED_GROUP, r"used in multiple address spaces"),
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
    (Cause.ENDED, r"end of file while reading|unable to read from monitor|client socket is closed"),
    (Cause.ROLE, r"no polkit agent"),
    (Cause.NO_SLOT, r"no more available pci"),
    (Cause.TOO_LOW, r"phys-bits too low"),
    (Cause.INACTIVE, r"is not active"),
    (
        Cause.INCOMPATIBLE,
        r"incompatible with host cpu|host cpu are not compatible|cpu feature \S+ not found|missing features"
        r"|no drm render node|opengl not av",
    ),
    (
        Cause.UNSUPPORTED,
        r"\bnot support|unsupported machine|requires vfio support|is not supported|requires kvm, but",
    ),
    (Cause.IN_USE, r"address already in use|any free port"),
    (
        Cause.NOT_FOUND,
        r"\bnot found\b|filesystem is not mounted|unable to find|no usable|(could not|cannot) find"
        r"|no supported architecture",
    ),
    (Cause.RUN, r"could not run|died and reported|died unexpectedly|failed to apply|unable to add (port|bridge)"),
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
    (Cause.FILES, r"too many open files"),
    (Cause.INVALID, r"invalid argument"),
)


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
    lowered = _VIRT_TYPE.sub(r"virt type \1", lowered)
    causes = [cause for cause, pattern in _CAUSES if re.search(pattern, _without_names(lowered))]
    if causes and causes[0] in BY_THEMSELVES:
        return REMEDIES[None, causes[0]], None
    subjects = list(_subjects(line))
    pairs = [(subject, cause) for subject in subjects for cause in (*causes, None)] if causes else []
    by_subject = next((REMEDIES[pair] for pair in pairs if pair in REMEDIES), None)
    return by_subject, next((REMEDIES[None, cause] for cause in causes if (None, cause) in REMEDIES), None)


def _subjects(line: str) -> Iterator[About]:
    """The subjects of a line, the most specific first: QEMU's option, the paths, then the words."""
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
