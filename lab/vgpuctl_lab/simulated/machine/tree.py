# SPDX-License-Identifier: Apache-2.0
"""The machine's /sys, /proc and /dev as a function of its shape and state: `{path: content}`.

A text is a file, Link a symbolic link, Unreadable a file whose read fails. Folders follow from their contents.
"""

import errno
import hashlib
import json
from dataclasses import dataclass, replace

from vgpuctl_lab.simulated.machine import ovn, rules, sriov_admin
from vgpuctl_lab.simulated.machine.shape import DEFAULT_ORDER, MDEV, MDEV_VF, VF_PROFILE, CardShape, Companion, Shape
from vgpuctl_lab.simulated.machine.state import State, Vgpu, is_nvidia

NO_GPU_INSTANCE = 0xFFFFFFFF
PAGE_SIZES = ("2048", "1048576")
# Drivers before this branch print question marks for a UUID they do not know; this one leaves the line out.
_FIRST_WITHOUT_UUID = 590
_UNKNOWN_UUID = "GPU-????????-????-????-????-????????????"
VGPU_CONFIG = "/usr/share/nvidia/vgpu/vgpuConfig.xml"
# Of a file of UEFI variables. Those of real builds have 131,072 and 540,672 bytes.
VARIABLES_BYTES = 528


def _build(
    number: int, name: str, code: str, variables: str, machines: list[str], features: list[str]
) -> dict[str, str]:
    """One UEFI build with its descriptor, as Debian's ovmf has them."""
    flash = {
        "device": "flash",
        "executable": {"filename": f"/usr/share/OVMF/{code}", "format": "raw"},
        "nvram-template": {"filename": f"/usr/share/OVMF/{variables}", "format": "raw"},
    }
    content = {
        "interface-types": ["uefi"],
        "mapping": flash,
        "targets": [{"architecture": "x86_64", "machines": machines}],
        "features": ["acpi-s3", "amd-sev", *features, "verbose-dynamic"],
        "tags": [],
    }
    return {
        f"/usr/share/OVMF/{code}": "",
        f"/usr/share/OVMF/{variables}": " " * VARIABLES_BYTES,
        f"/usr/share/qemu/firmware/{number}-edk2-x86_64{name}.json": json.dumps(content),
    }


FIRMWARES = {
    **_build(
        40,
        "-secure-enrolled",
        "OVMF_CODE_4M.ms.fd",
        "OVMF_VARS_4M.ms.fd",
        ["pc-q35-*"],
        ["enrolled-keys", "requires-smm", "secure-boot"],
    ),
    **_build(60, "", "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd", ["pc-i440fx-*", "pc-q35-*"], []),
}
SRIOV_MANAGE = "/usr/lib/nvidia/sriov-manage"
_UNKNOWN_BOARD, _FALLEN, _NO_RESET, _BAR_UNASSIGNED, _VBIOS, _OTHER_IDS = (
    "board-unknown",
    "fallen",
    "no-reset",
    "bar-unassigned",
    "vbios-changed",
    "config-differs",
)
_CONFIG_BYTES = 64
POOL_FOLDER = "/var/lib/libvirt/images"
# As libvirt keeps it while the pool is active.
_POOL = f"""<poolstate>
  <pool type='dir'>
    <name>default</name>
    <target>
      <path>{POOL_FOLDER}</path>
    </target>
  </pool>
</poolstate>
"""
# The device id of no card in the catalogue.
_STRANGER = "fffe"
# Number and flags of each memory BAR; those of 64 bits take two registers.
_BARS = ((0, 0x40200), (1, 0x14220C), (3, 0x14220C))
_LIBVIRT_SOCKETS = ("/run/libvirt/libvirt-sock", "/run/libvirt/virtlogd-sock")


@dataclass(frozen=True)
class Link:
    """A symbolic link, with its target as an absolute path."""

    target: str


@dataclass(frozen=True)
class Unreadable:
    """A file whose read fails with this errno."""

    errno: int


Content = str | Link | Unreadable
Tree = dict[str, Content]


def build(shape: Shape, state: State) -> Tree:
    """Everything the machine shows now."""
    tree = _system(shape, state)
    used = {driver for driver in state.drivers.values() if driver} | {card.driver for card in shape.cards}
    for driver in sorted(used | {"vfio-pci", "pci-pf-stub"}):
        for name in ("bind", "unbind", "new_id", "remove_id"):
            tree[f"/sys/bus/pci/drivers/{driver}/{name}"] = ""
    for card in shape.cards:
        _add_card(tree, state, card, shape.nvidia_driver)
        _add_bridges(tree, card)
    for process in state.running():
        tree[f"/proc/{process.pid}/cmdline"] = f"/usr/bin/{process.name}\0"
        tree[f"/proc/{process.pid}/comm"] = process.name[:15]
    for vgpu in state.vgpus:
        if vgpu.uuid is not None:
            _add_mdev(tree, vgpu, next(card for card in shape.cards if card.address == vgpu.card))
    for vm_uuid, domain in state.domains.items():
        words = ("qemu-system-x86_64", "-name", f"guest={domain.name}", "-uuid", vm_uuid)
        tree[f"/proc/{domain.pid}/cmdline"] = "\0".join(words) + "\0"
        tree[f"/proc/{domain.pid}/comm"] = "qemu-system-x86"
        start = max(round((domain.started_at - state.booted_at) * 100), 0)
        tree[f"/proc/{domain.pid}/stat"] = f"{domain.pid} (CPU 0/KVM) S {'0 ' * 18}{start} 0 0\n"
        held_kib = sum(int(size_kib) * count for size_kib, count in domain.pages.items())
        tree[f"/proc/{domain.pid}/status"] = f"Name:\tqemu-system-x86\nHugetlbPages:\t{held_kib:8} kB\nThreads:\t4\n"
    for path, text in state.files.items():
        if text is None:
            tree.pop(path, None)
        else:
            tree[path] = text
    return tree


def open_nodes(shape: Shape, state: State, tree: Tree) -> list[tuple[int, str]]:
    """(pid, node) of every VFIO node that a VM has open, and of the cards' own nodes."""
    minors = {card.address: card.number for card in shape.cards}
    found = [(process.pid, f"/dev/nvidia{minors[process.card]}") for process in state.running()]
    for domain in state.domains.values():
        links = [tree.get(f"/sys/bus/pci/devices/{function}") for function in domain.functions]
        places = [link.target for link in links if isinstance(link, Link)]
        for uuid in domain.mdevs:
            link = tree.get(f"/sys/bus/mdev/devices/{uuid}")
            places += [link.target] if isinstance(link, Link) else []
        for place in places:
            group = tree.get(f"{place}/iommu_group")
            if isinstance(group, Link):
                found.append((domain.pid, f"/dev/vfio/{group.target.rsplit('/', 1)[1]}"))
    return found


def _cpu_times(shape: Shape, state: State) -> str:
    """The first line of /proc/stat: a tenth of all CPUs has worked since the start."""
    ticks = max(int((state.now() - state.booted_at) * 100) * shape.cpus, 0)
    return f"cpu  {ticks // 20} 0 {ticks // 20} {ticks - ticks // 20 * 2} 0 0 0 0 0 0\n"


def _system(shape: Shape, state: State) -> Tree:
    memory_kib = shape.memory_mib * 1024
    free_kib = memory_kib - sum(int(size_kib) * count for size_kib, count in state.hugepages.items())
    tree: Tree = {
        "/proc/sys/kernel/hostname": shape.hostname,
        "/proc/sys/kernel/osrelease": shape.kernel,
        f"/boot/config-{shape.kernel}": "CONFIG_VFIO=m\nCONFIG_IOMMUFD_DRIVER=y",
        "/proc/sys/kernel/random/boot_id": state.boot_id,
        "/etc/machine-id": hashlib.md5(shape.hostname.encode(), usedforsecurity=False).hexdigest(),
        "/proc/cmdline": "root=/dev/vda1 intel_iommu=on iommu=pt",
        "/proc/meminfo": f"MemTotal: {memory_kib} kB\nMemFree: {free_kib} kB\nMemAvailable: {free_kib} kB",
        "/proc/stat": _cpu_times(shape, state),
        "/proc/1/cmdline": "/sbin/init\0",
        "/sys/devices/system/cpu/online": f"0-{shape.cpus - 1}",
        "/sys/class/iommu/dmar0": Link("/sys/devices/virtual/iommu/dmar0"),
        "/etc/os-release": f'PRETTY_NAME="{shape.operating_system}"\nID=debian',
        "/proc/mounts": "".join(
            f"hugetlbfs /dev/hugepages{size_kib} hugetlbfs rw,relatime,pagesize={int(size_kib) >> 10}M 0 0\n"
            for size_kib in PAGE_SIZES
        ),
        **FIRMWARES,
        **{path: "" for path in _LIBVIRT_SOCKETS if state.services.get("libvirtd.service", True)},
        "/run/libvirt/storage/default.xml": _POOL,
        "/dev/kvm": "",
        "/run/systemd/system/.keep": "",
        "/sys/class/net/lo/operstate": "unknown",
        "/sys/class/net/eno1/operstate": "up",
        "/sys/class/net/eno2/operstate": "up",
        "/sys/class/net/virbr0/operstate": "down",
        "/sys/bus/pci/drivers_probe": "",
        **ovn.files(shape, state),
    }
    for size_kib in PAGE_SIZES:
        count = state.hugepages.get(size_kib, 0)
        folder = f"/sys/kernel/mm/hugepages/hugepages-{size_kib}kB"
        tree[f"{folder}/nr_hugepages"] = str(count)
        tree[f"{folder}/free_hugepages"] = str(count - state.used_pages(size_kib))
    nodes = shape.numa_nodes
    share = shape.cpus // nodes
    for node in range(nodes):
        last = shape.cpus - 1 if node == nodes - 1 else (node + 1) * share - 1
        folder = f"/sys/devices/system/node/node{node}"
        tree[f"{folder}/cpulist"] = f"{node * share}-{last}"
        _add_cores(tree, node * share, last)
        tree[f"{folder}/meminfo"] = (
            f"Node {node} MemTotal: {memory_kib // nodes} kB\nNode {node} MemFree: {free_kib // nodes} kB"
        )
        for size_kib in PAGE_SIZES:
            total, free = state.node_pages(size_kib, node, nodes)
            tree[f"{folder}/hugepages/hugepages-{size_kib}kB/nr_hugepages"] = str(total)
            tree[f"{folder}/hugepages/hugepages-{size_kib}kB/free_hugepages"] = str(free)
    if any(is_nvidia(card) for card in shape.cards):
        tree["/sys/module/nvidia/version"] = shape.nvidia_driver
        tree["/proc/driver/nvidia/version"] = (
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {shape.nvidia_driver}  (simulated)"
        )
        tree[VGPU_CONFIG] = vgpu_config(shape)
        boards = " ".join(f"{one}:" for one in known_boards(shape, state))
        tree[SRIOV_MANAGE] = f"#!/bin/bash\n\nSRIOV_ENABLED_GPUS=({boards})\n"
    return tree


def _add_cores(tree: Tree, first: int, last: int) -> None:
    """Two threads for each core of a node: its lower CPUs are the first ones, as on most servers."""
    cores = (last - first + 1) // 2
    for cpu in range(first, first + cores):
        for thread in (cpu, cpu + cores):
            tree[f"/sys/devices/system/cpu/cpu{thread}/topology/thread_siblings_list"] = f"{cpu},{cpu + cores}"


def _add_card(tree: Tree, state: State, card: CardShape, driver_version: str) -> None:
    folder = card.folder(card.address)
    _add_function(tree, state, folder, card.vendor, card.device, card.pci_class, card.group())
    vendor, subsystem = card.subsystem.split(":")
    tree[f"{folder}/subsystem_vendor"] = f"0x{vendor}"
    tree[f"{folder}/subsystem_device"] = f"0x{subsystem}"
    tree[f"{folder}/numa_node"] = str(card.numa_node)
    cpus = tree.get(f"/sys/devices/system/node/node{card.numa_node}/cpulist")
    tree[f"{folder}/local_cpulist"] = cpus if isinstance(cpus, str) else ""
    starts = _bar_starts(card)
    if state.fault(card, _BAR_UNASSIGNED):
        starts = [0, *starts[1:]]
    tree[f"{folder}/resource"] = _resource(card, starts)
    read_ids = replace(card, device=_STRANGER) if state.fault(card, _OTHER_IDS) else card
    tree[f"{folder}/config"] = "\xff" * _CONFIG_BYTES if state.fault(card, _FALLEN) else _config(read_ids, starts)
    if card.reset_methods and not state.fault(card, _NO_RESET):
        tree[f"{folder}/reset"] = ""
        tree[f"{folder}/reset_method"] = _reset_methods(state, card, card.address, card.reset_methods)
    is_readable = card.address in state.roms and state.drivers.get(card.address) == card.driver
    rom = f"\x55\xaa VBIOS {vbios_version(state, card)} of {card.model}"
    # Off, or of a device that is not enabled, as one that waits on vfio-pci.
    tree[f"{folder}/rom"] = rom if is_readable else Unreadable(errno.EINVAL)
    if card.total_vfs:
        tree[f"{folder}/sriov_totalvfs"] = str(card.total_vfs)
        tree[f"{folder}/sriov_numvfs"] = str(state.vf_counts.get(card.address, 0))
        tree[f"{folder}/sriov_offset"] = str(card.vf_offset)
        tree[f"{folder}/sriov_stride"] = str(card.vf_stride)
        tree[f"{folder}/sriov_vf_device"] = card.vf_device
        tree[f"{folder}/sriov_drivers_autoprobe"] = "0" if card.address in state.no_autoprobe else "1"
    if card.interface == MDEV and state.drivers.get(card.address) == rules.DRIVER:
        _add_types(tree, card, card.address, rules.Ruling(state, card))
    for companion in card.companions:
        _add_companion(tree, state, card, companion)
    ruling = rules.Ruling(state, card)
    for number, address in enumerate(state.vfs_of(card)):
        _add_vf(tree, state, card, number, address, ruling)
    tree.update(sriov_admin.files(state, card))
    tree.update({path: Link(target) for path, target in sriov_admin.links(state, card).items()})
    if is_nvidia(card) and state.drivers.get(card.address) == rules.DRIVER:
        proc = f"/proc/driver/nvidia/gpus/{card.address}"
        tree[f"{proc}/information"] = (
            f"Model: \t\t {card.model}\n{_uuid_line(state, card, driver_version)}Bus Type: \t PCIe\n"
            f"Video BIOS: \t {vbios_version(state, card)}\n"
            f"Bus Location: \t {card.address}\nDevice Minor: \t {card.number}"
        )
        _add_instances(tree, state, card)
        if card.types:
            tree[f"{proc}/unbindLock"] = "1" if card.address in state.unbind_locks else "0"


def _add_instances(tree: Tree, state: State, card: CardShape) -> None:
    """The driver's capabilities of MIG instances, as nvidia-caps/mig-minors numbers them: 135 a card, 9 an instance."""
    for one in state.instances_of(card):
        folder = f"/proc/driver/nvidia/capabilities/gpu{card.number}/mig/gi{one.id}"
        first = 3 + card.number * 135 + one.id * 9
        for path, part in ((folder, 0), *((f"{folder}/ci{part.id}", 1 + part.id) for part in one.computes)):
            tree[f"{path}/access"] = f"DeviceFileMinor: {first + part}\nDeviceFileMode: 292\nDeviceFileModify: 1"


def _add_bridges(tree: Tree, card: CardShape) -> None:
    """The ports above a card, which several may share; each is a function of its own."""
    for depth, address in enumerate(card.bridges, start=1):
        folder = "/".join(("/sys/devices", card.root, *card.bridges[:depth]))
        tree[f"/sys/bus/pci/devices/{address}"] = Link(folder)
        tree[f"{folder}/vendor"] = "0x8086" if depth == 1 else "0x10b5"
        tree[f"{folder}/device"] = "0x352a" if depth == 1 else "0x9797"
        tree[f"{folder}/class"] = "0x060400"
        tree[f"{folder}/numa_node"] = str(card.numa_node)
        tree[f"{folder}/driver"] = Link("/sys/bus/pci/drivers/pcieport")


def _uuid_line(state: State, card: CardShape, driver_version: str) -> str:
    """Return the driver's line for a card's UUID, which it does not know until somebody uses the card."""
    if card.address in state.opened:
        return f"GPU UUID: \t {card.uuid}\n"
    if int(driver_version.partition(".")[0]) >= _FIRST_WITHOUT_UUID:
        return ""
    return f"GPU UUID: \t {_UNKNOWN_UUID}\n"


def _add_function(
    tree: Tree, state: State, folder: str, vendor: str, device_id: str, pci_class: str, group: int
) -> None:
    address = folder.rpartition("/")[2]
    tree[f"/sys/bus/pci/devices/{address}"] = Link(folder)
    tree[f"{folder}/vendor"] = f"0x{vendor}"
    tree[f"{folder}/device"] = f"0x{device_id}"
    tree[f"{folder}/class"] = f"0x{pci_class}"
    tree[f"{folder}/driver_override"] = state.overrides.get(address, "(null)")
    tree[f"{folder}/iommu_group"] = Link(f"/sys/kernel/iommu_groups/{group}")
    tree[f"/sys/kernel/iommu_groups/{group}/devices/{address}"] = Link(folder)
    driver = state.drivers.get(address)
    if driver is not None:
        tree[f"{folder}/driver"] = Link(f"/sys/bus/pci/drivers/{driver}")


def _add_companion(tree: Tree, state: State, card: CardShape, companion: Companion) -> None:
    folder = card.folder(companion.address)
    _add_function(tree, state, folder, companion.vendor, companion.device, companion.pci_class, card.group())
    tree[f"{folder}/numa_node"] = str(card.numa_node)


def _reset_methods(state: State, card: CardShape, function: str, at_first: str) -> str:
    """The order of resets. A card with several functions shows `bus` until its order is written for the first time."""
    order = state.reset_orders.get(function, at_first)
    return " ".join(card.default_resets(function)) if order == DEFAULT_ORDER else order


def _add_vf(tree: Tree, state: State, card: CardShape, number: int, address: str, ruling: rules.Ruling) -> None:
    folder = card.folder(address)
    _add_function(tree, state, folder, card.vendor, card.vf_device, card.pci_class, card.group(number))
    tree[f"{folder}/physfn"] = Link(card.folder(card.address))
    tree[f"{card.folder(card.address)}/virtfn{number}"] = Link(folder)
    tree[f"{folder}/numa_node"] = str(card.numa_node)
    tree[f"{folder}/reset"] = ""
    tree[f"{folder}/reset_method"] = _reset_methods(state, card, address, "flr")
    if state.drivers.get(address) != rules.DRIVER or card.address in state.unregistered:
        return
    if card.interface == MDEV_VF:
        _add_types(tree, card, address, ruling)
    elif card.interface == VF_PROFILE:
        tree[f"{folder}/vfio-dev/vfio{card.group(number)}/dev"] = ""
        _add_profile(tree, state, card, address, ruling)


def _add_types(tree: Tree, card: CardShape, function: str, ruling: rules.Ruling) -> None:
    for each in card.types:
        folder = f"{card.folder(function)}/mdev_supported_types/nvidia-{each.type_id}"
        tree[f"{folder}/name"] = each.full_name
        tree[f"{folder}/description"] = each.description
        tree[f"{folder}/available_instances"] = str(ruling.available(function, each))
        tree[f"{folder}/device_api"] = "vfio-pci"
        tree[f"{folder}/create"] = ""


def _add_profile(tree: Tree, state: State, card: CardShape, function: str, ruling: rules.Ruling) -> None:
    folder = f"{card.folder(function)}/nvidia"
    vgpu = next((each for each in state.vgpus if each.function == function), None)
    lines = ["ID    : vGPU Name"]
    lines += [f"{each.type_id:<6}: {each.full_name}" for each in ruling.creatable(function)]
    tree[f"{folder}/creatable_vgpu_types"] = "\n".join(lines)
    tree[f"{folder}/current_vgpu_type"] = str(vgpu.type_id if vgpu else 0)
    tree[f"{folder}/gpu_instance_id"] = str(_instance(vgpu)) if vgpu else Unreadable(errno.ENXIO)
    tree[f"{folder}/placement_id"] = str(vgpu.placement) if vgpu else Unreadable(errno.ENXIO)
    tree[f"{folder}/vgpu_params"] = vgpu.params if vgpu else ""


def _add_mdev(tree: Tree, vgpu: Vgpu, card: CardShape) -> None:
    parent = card.folder(vgpu.function)
    folder = f"{parent}/{vgpu.uuid}"
    tree[f"/sys/bus/mdev/devices/{vgpu.uuid}"] = Link(folder)
    tree[f"{folder}/mdev_type"] = Link(f"{parent}/mdev_supported_types/nvidia-{vgpu.type_id}")
    tree[f"{folder}/iommu_group"] = Link(f"/sys/kernel/iommu_groups/{vgpu.group}")
    tree[f"{folder}/driver"] = Link("/sys/bus/mdev/drivers/nvidia-vgpu-vfio")
    tree[f"{folder}/remove"] = ""
    tree[f"{folder}/nvidia/vgpu_params"] = vgpu.params
    tree[f"{folder}/nvidia/gpu_instance_id"] = str(_instance(vgpu))


def _instance(vgpu: Vgpu) -> int:
    return NO_GPU_INSTANCE if vgpu.instance is None else vgpu.instance


def vbios_version(state: State, card: CardShape) -> str:
    """The version of a card's firmware: made up, and another one once somebody has flashed the card."""
    return f"94.02.00.{state.fault(card, _VBIOS):02x}.{card.number:02x}"


def _bar_starts(card: CardShape) -> list[int]:
    """The addresses of a card's three memory BARs: one of 32 bits, two of 64."""
    first = 0x3820_0000_0000 + (card.number << 40)
    return [0xA000_0000 + (card.number << 24), first, first + card.bars_bytes[1]]


def _resource(card: CardShape, starts: list[int]) -> str:
    """The BARs as Linux lists them; one without address is marked as unset (include/linux/ioport.h)."""
    lines = ["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 4
    for (number, flags), start, size in zip(_BARS, starts, card.bars_bytes, strict=True):
        flags |= 0 if start else 0x20000000
        lines[number] = f"{start:#018x} {start + size - 1:#018x} {flags:#018x}"
    return "\n".join(lines)


def _config(card: CardShape, starts: list[int]) -> str:
    """The header of the config space, with ids and memory BARs, byte by byte in Latin-1."""
    header = bytearray(_CONFIG_BYTES)
    header[0:4] = int(card.device + card.vendor, 16).to_bytes(4, "little")
    for (number, flags), start in zip(_BARS, starts, strict=True):
        place, width = 0x10 + 4 * number, 8 if flags & 0x100000 else 4
        header[place : place + width] = (start | flags & 0xF).to_bytes(width, "little")
    return header.decode("latin-1")


def known_boards(shape: Shape, state: State) -> list[str]:
    """The device ids that sriov-manage has in its list."""
    vgpu_cards = [card for card in shape.cards if is_nvidia(card) and card.types and card.total_vfs]
    unknown = {card.device for card in vgpu_cards if state.fault(card, _UNKNOWN_BOARD)}
    return sorted({card.device for card in vgpu_cards} - unknown)


def vgpu_config(shape: Shape) -> str:
    """The text of vgpuConfig.xml, which NVIDIA's driver package brings, for the cards of a host."""
    types = {each.type_id: each for card in shape.cards if is_nvidia(card) for each in card.types}
    lines = ["<vgpuconfig>"]
    lines += [
        f'<vgpuType id="{each.type_id}" name="{each.full_name}"><profileSize>{each.framebuffer_mib << 20:#x}'
        "</profileSize></vgpuType>"
        for each in types.values()
    ]
    boards = {(card.device, card.subsystem): card for card in shape.cards if is_nvidia(card) and card.types}
    for (device_id, subsystem), card in boards.items():
        ids = f'vendorId="0x10de" deviceId="0x{device_id}" subsystemId="0x{subsystem.split(":")[1]}"'
        lines += ["<pgpu>", f"<devId {ids}/>"]
        lines += [
            f'<supportedVgpu vgpuId="{each.type_id}"><maxVgpus>{each.max_instances}</maxVgpus></supportedVgpu>'
            for each in card.types
        ]
        lines.append("</pgpu>")
    return "\n".join([*lines, "</vgpuconfig>"])
