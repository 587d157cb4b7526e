# SPDX-License-Identifier: Apache-2.0
"""A machine as a folder: `{path: content}` becomes files, `-> target` a symbolic link, None an empty folder."""

from collections.abc import Mapping
from pathlib import Path

Tree = dict[str, str | None]
ReadableTree = Mapping[str, str | None]

VF_TYPES = {"557": ("A40-1Q", 1, 32), "558": ("A40-2Q", 2, 24), "562": ("A40-8Q", 8, 6), "566": ("A40-48Q", 48, 1)}

BASE: Tree = {
    "/proc/sys/kernel/hostname": "gpu1\n",
    "/proc/sys/kernel/osrelease": "6.1.0-28-amd64\n",
    "/proc/sys/kernel/random/boot_id": "0a1b2c3d-0000-4000-8000-000000000001\n",
    "/proc/cmdline": "root=/dev/vda intel_iommu=on\n",
    "/proc/meminfo": "MemTotal:        8388608 kB\nMemFree:  100 kB\nMemAvailable:    4194304 kB\n",
    "/proc/1/cmdline": "/sbin/init\0",
    "/proc/1/fd/0": "-> /dev/null",
    "/sys/devices/system/cpu/online": "0-3,8\n",
    "/sys/devices/system/node/node0/cpulist": "0-3\n",
    "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list": "0,2\n",
    "/sys/devices/system/cpu/cpu1/topology/thread_siblings_list": "1\n",
    "/sys/devices/system/cpu/cpu2/topology/thread_siblings_list": "0,2\n",
    "/sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:  4194304 kB\nNode 0 Active(anon): 5 kB\n",
    "/sys/devices/system/node/node1/cpulist": "8\n",
    "/sys/devices/system/node/node1/meminfo": "Node 1 MemTotal:  4194304 kB\n",
    "/sys/class/iommu/dmar0": "-> ../../devices/virtual/iommu/dmar0",
    "/etc/os-release": 'NAME=Debian\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
    "/sys/bus/pci/drivers_probe": "",
    "/sys/bus/pci/drivers/nvidia/unbind": "",
    "/sys/bus/pci/drivers/nvidia/bind": "",
    "/sys/bus/pci/drivers/vfio-pci/unbind": "",
    "/sys/bus/pci/drivers/vfio-pci/bind": "",
    "/sys/bus/pci/drivers/pci-pf-stub/unbind": "",
    "/sys/bus/pci/drivers/pci-pf-stub/bind": "",
    "/sys/bus/pci/drivers/snd_hda_intel/unbind": "",
    "/dev/kmsg": "",
    "/dev/kvm": "",
}


def build(root: Path, *trees: ReadableTree) -> Path:
    """Write trees under `root`, later ones over earlier ones."""
    merged: Tree = {}
    for tree in trees:
        merged.update(tree)
    for path, content in merged.items():
        place = root / path.lstrip("/")
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if content.startswith("-> "):
            place.symlink_to(content[3:])
        else:
            place.write_text(content)
    return root


def device_path(address: str) -> str:
    """Where a function's real folder lies."""
    return f"/sys/devices/pci{address[:4]}:40/{address}"


def function(
    address: str,
    *,
    vendor: str = "10de",
    device: str = "2235",
    pci_class: str = "030200",
    driver: str | None = "nvidia",
    group: int | None = 14,
    files: Mapping[str, str | None] | None = None,
) -> Tree:
    """One PCI function; `files` are relative to its folder."""
    folder = device_path(address)
    tree: Tree = {
        f"/sys/bus/pci/devices/{address}": f"-> ../../../devices/pci{address[:4]}:40/{address}",
        f"{folder}/vendor": f"0x{vendor}\n",
        f"{folder}/device": f"0x{device}\n",
        f"{folder}/class": f"0x{pci_class}\n",
        f"{folder}/driver_override": "(null)\n",
    }
    if driver is not None:
        tree[f"{folder}/driver"] = f"-> ../../../bus/pci/drivers/{driver}"
    if group is not None:
        tree[f"{folder}/iommu_group"] = f"-> ../../../kernel/iommu_groups/{group}"
        tree[f"/sys/kernel/iommu_groups/{group}/devices/{address}"] = f"-> ../../../../bus/pci/devices/{address}"
    tree.update({f"{folder}/{name}": content for name, content in (files or {}).items()})
    return tree


def a40(address: str = "0000:41:00.0", *, total_vfs: int = 0, group: int = 14, driver: str = "nvidia") -> Tree:
    """An A40 with its identity, BARs and reset; SR-IOV when total_vfs."""
    files: Tree = {
        "subsystem_vendor": "0x10de\n",
        "subsystem_device": "0x145a\n",
        "numa_node": "1\n",
        "local_cpulist": "8\n",
        "reset": "",
        "reset_method": "flr bus\n",
        "resource": "0x00000000a0000000 0x00000000a0ffffff 0x0000000000040200\n"
        "0x0000382000000000 0x0000382fffffffff 0x000000000014220c\n"
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x0000000000003000 0x000000000000307f 0x0000000000040101\n",
    }
    if total_vfs:
        files |= {"sriov_totalvfs": f"{total_vfs}\n", "sriov_numvfs": "0\n"}
    tree = function(address, driver=driver, group=group, files=files)
    tree[f"/proc/driver/nvidia/gpus/{address}/information"] = (
        "Model: \t\t NVIDIA A40\nGPU UUID: \t GPU-5ac3\nDevice Minor: \t 0\n"
    )
    return tree


def mdev_types(address: str, *, available: Mapping[str, int]) -> Tree:
    """The mdev types of a parent; available: {decimal id: available_instances}."""
    tree: Tree = {}
    for type_id, count in available.items():
        name, gib, maximum = VF_TYPES[type_id]
        folder = f"{device_path(address)}/mdev_supported_types/nvidia-{type_id}"
        tree[f"{folder}/name"] = f"NVIDIA {name}\n"
        tree[f"{folder}/description"] = (
            f"num_heads=4, frl_config=60, framebuffer={gib * 1024}M, max_resolution=7680x4320, max_instance={maximum}\n"
        )
        tree[f"{folder}/available_instances"] = f"{count}\n"
        tree[f"{folder}/create"] = ""
    return tree


def creatable(type_ids: tuple[str, ...]) -> str:
    """The text of creatable_vgpu_types."""
    return "ID    : vGPU Name\n" + "".join(f"{each:<6}: NVIDIA {VF_TYPES[each][0]}\n" for each in type_ids)


def virtual_function(
    number: int, pf: str = "0000:41:00.0", *, files: Mapping[str, str | None] | None = None, vendor: str = "10de"
) -> Tree:
    """One VF with the links both ways. Its address follows offset 4, stride 1."""
    address = vf_address(number, pf)
    tree = function(address, group=20 + number, vendor=vendor, files={"physfn": f"-> ../{pf}", **(files or {})})
    tree[f"{device_path(pf)}/virtfn{number}"] = f"-> ../{address}"
    return tree


def vf_address(number: int, pf: str = "0000:41:00.0") -> str:
    """The address of a VF whose offset is 4."""
    routing = (int(pf[5:7], 16) << 8) + 4 + number
    return f"{pf[:4]}:{routing >> 8:02x}:{routing >> 3 & 0x1F:02x}.{routing & 7}"


def profile_vf(number: int, *, current: str = "0", types: tuple[str, ...] = tuple(VF_TYPES)) -> Tree:
    """A VF with vendor-specific VFIO."""
    files: Tree = {
        "nvidia/current_vgpu_type": f"{current}\n",
        "nvidia/creatable_vgpu_types": creatable(() if current != "0" else types),
        f"vfio-dev/vfio{number}": None,
    }
    return virtual_function(number, files=files)


def holder(pid: int, node: str, *, command: str = "/usr/bin/qemu-system-x86_64", vm_uuid: str | None = None) -> Tree:
    """A process that has `node` open."""
    words = [command, "-name", "guest", *(["-uuid", vm_uuid] if vm_uuid else [])]
    return {f"/proc/{pid}/cmdline": "\0".join(words) + "\0", f"/proc/{pid}/fd/9": f"-> {node}"}


def active_mdev(uuid: str, parent: str, type_id: str, *, group: int = 40) -> Tree:
    """A mediated device that exists."""
    folder = f"{device_path(parent)}/{uuid}"
    return {
        f"/sys/bus/mdev/devices/{uuid}": f"-> ../../../devices/pci{parent[:4]}:40/{parent}/{uuid}",
        f"{folder}/mdev_type": f"-> ../mdev_supported_types/{type_id}",
        f"{folder}/iommu_group": f"-> ../../../../kernel/iommu_groups/{group}",
        f"{folder}/remove": "",
    }
