# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from tests.agent import machine
from tests.agent.machine import (
    ReadableTree,
    Tree,
    a40,
    build,
    function,
    mdev_types,
    profile_vf,
    vf_address,
    virtual_function,
)
from vgpuctl.agent.dispatch import read_facts, read_holders
from vgpuctl.agent.facts import gpus, host_facts, vgpu_types
from vgpuctl.agent.facts.nvml_gpus import NvmlGpu
from vgpuctl.agent.facts.nvml_mig import NvmlMig
from vgpuctl.agent.facts.nvml_vgpu import NvmlType
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.bus_id import normalise_bus_id
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import Gpu, HostFacts, VgpuType

VM = "11111111-2222-4333-8444-555555555555"
UUID = "c2177883-f1bb-47f0-914d-32a22e3a8804"
PF = "0000:41:00.0"


def read(root: Path, *trees: ReadableTree) -> HostFacts:
    return read_facts(Host(str(build(root, machine.BASE, *trees))))


def read_gpu(root: Path, *trees: ReadableTree) -> Gpu:
    [gpu] = read(root, *trees).gpus
    return gpu


def by_name(gpu: Gpu) -> dict[str, VgpuType]:
    return {each.name: each for each in gpu.types}


def creatable(gpu: Gpu) -> dict[str, int]:
    return {each.name: each.creatable for each in gpu.types}


def test_a_host_without_gpu_is_read_whole(tmp_path: Path) -> None:
    program = tmp_path / "usr/sbin/libvirtd"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho 'libvirtd (libvirt) 9.0.0'\n")
    program.chmod(0o755)
    facts = read(tmp_path)
    assert (facts.hostname, facts.kernel, facts.cpus) == ("gpu1", "6.1.0-28-amd64", 5)
    assert facts.operating_system == "Debian GNU/Linux 12 (bookworm)"
    assert (facts.memory_mib, facts.memory_available_mib) == (8192, 4096)
    assert [node.cores for node in facts.numa_nodes][:2] == [("0,2",), ()]
    assert [(node.number, node.cpus, node.memory_mib) for node in facts.numa_nodes] == [
        (0, "0-3", 4096),
        (1, "8", 4096),
    ]
    assert (facts.iommu_active, facts.kvm) == (True, True)
    assert (facts.libvirt_version, facts.qemu_version) == ("9.0.0", None)
    assert facts.gpus == ()


def test_a_whole_card_with_its_audio_function_can_be_passed_through(tmp_path: Path) -> None:
    audio = function("0000:41:00.1", device="228e", pci_class="040300", driver="snd_hda_intel")
    bridge = function("0000:40:01.0", vendor="8086", device="6f0a", pci_class="060400", driver="pcieport")
    gpu = read_gpu(tmp_path, a40(), audio, bridge)
    assert gpu.sharing == ("passthrough",)
    assert (gpu.vendor_id, gpu.device_id, gpu.subsystem_id, gpu.pci_class) == (
        "10de",
        "2235",
        "10de:145a",
        "030200",
    )
    assert (gpu.name, gpu.uuid, gpu.driver, gpu.numa_node, gpu.local_cpus) == (
        "NVIDIA A40",
        "GPU-5ac3",
        "nvidia",
        1,
        "8",
    )
    assert [(each.address, each.pci_class, each.driver) for each in gpu.companions] == [
        ("0000:41:00.1", "040300", "snd_hda_intel")
    ]
    assert gpu.iommu_group_members == ("0000:40:01.0", PF, "0000:41:00.1")
    assert gpu.bars_bytes == (1 << 24, 1 << 36)
    assert gpu.reset_methods == ("flr", "bus")
    assert gpu.problems == ()


PASSTHROUGH_BLOCKED: dict[str, tuple[ReadableTree, ...]] = {
    "a stranger in the group": (
        a40(),
        function("0000:42:00.0", vendor="8086", device="1533", pci_class="020000", driver="igb"),
    ),
    "a VM holds it": (a40(driver="vfio-pci"), machine.holder(7, "/dev/vfio/14", vm_uuid=VM)),
    "the driver's node is open": (a40(), machine.holder(8, "/dev/nvidia0", command="nv-hostengine")),
    "its VFs are enabled": (
        a40(total_vfs=1),
        profile_vf(0),
        {f"{machine.device_path(PF)}/sriov_numvfs": "1\n"},
    ),
}


@pytest.mark.parametrize("name", PASSTHROUGH_BLOCKED)
def test_passthrough_is_not_offered_when(name: str, tmp_path: Path) -> None:
    gpu = read_gpu(tmp_path, *PASSTHROUGH_BLOCKED[name])
    assert "passthrough" not in gpu.sharing


def test_passthrough_needs_an_iommu_group(tmp_path: Path) -> None:
    assert read_gpu(tmp_path, function(PF, group=None)).sharing == ()


def test_the_holder_of_a_card_is_named_with_its_vm(tmp_path: Path) -> None:
    gpu = read_gpu(tmp_path, a40(driver="vfio-pci"), machine.holder(7, "/dev/vfio/14", vm_uuid=VM))
    [holder] = gpu.holders
    assert (holder.pid, holder.command, holder.vm_uuid) == (7, "qemu-system-x86_64", VM)


@pytest.mark.parametrize(
    ("vendor", "pci_class", "is_gpu"),
    [
        ("10de", "030000", True),
        ("10de", "030200", True),
        ("1002", "120000", True),
        ("1002", "038000", True),
        ("8086", "030000", True),
        ("1234", "030000", False),
        ("1b36", "030000", False),
        ("10de", "040300", False),
        ("10de", "068000", False),
        ("8086", "020000", False),
    ],
)
def test_what_counts_as_a_gpu(vendor: str, pci_class: str, is_gpu: bool, tmp_path: Path) -> None:
    facts = read(tmp_path, function(PF, vendor=vendor, pci_class=pci_class, driver=None))
    assert bool(facts.gpus) == is_gpu


def test_mdev_on_the_pf_is_counted_by_the_driver(tmp_path: Path) -> None:
    gpu = read_gpu(
        tmp_path,
        a40(),
        mdev_types(PF, available={"557": 0, "558": 23, "562": 0}),
        machine.active_mdev(UUID, PF, "nvidia-558"),
        machine.holder(9, "/dev/vfio/40", vm_uuid=VM),
    )
    assert gpu.sharing == ("mdev",)
    assert creatable(gpu) == {"A40-1Q": 0, "A40-2Q": 23, "A40-8Q": 0}
    two = by_name(gpu)["A40-2Q"]
    assert (two.type_id, two.full_name, two.framebuffer_mib, two.max_instances) == (
        "nvidia-558",
        "NVIDIA A40-2Q",
        2048,
        24,
    )
    [device] = gpu.mdevs
    assert (device.uuid, device.parent, device.type_id, device.iommu_group) == (UUID, PF, "nvidia-558", 40)
    assert device.holders[0].vm_uuid == VM


def test_types_on_vfs_are_bounded_by_vfs_maximum_and_framebuffer(tmp_path: Path) -> None:
    every = {"557": 1, "558": 1, "562": 1, "566": 1}
    trees: list[ReadableTree] = [a40(total_vfs=8), {f"{machine.device_path(PF)}/sriov_numvfs": "8\n"}]
    for number in range(8):
        trees += [virtual_function(number), mdev_types(vf_address(number), available=every)]
    gpu = read_gpu(tmp_path, *trees)
    assert gpu.sharing == ("mdev-vf",)
    assert creatable(gpu) == {"A40-1Q": 8, "A40-2Q": 8, "A40-8Q": 6, "A40-48Q": 1}


def test_a_used_vf_leaves_the_others_to_types_of_its_size(tmp_path: Path) -> None:
    trees: list[ReadableTree] = [
        a40(total_vfs=8),
        {f"{machine.device_path(PF)}/sriov_numvfs": "8\n"},
        machine.active_mdev(UUID, vf_address(0), "nvidia-562"),
    ]
    for number in range(8):
        available = dict.fromkeys(("557", "558", "562", "566"), 0)
        if number:
            available["562"] = 1
        trees += [virtual_function(number), mdev_types(vf_address(number), available=available)]
    gpu = read_gpu(tmp_path, *trees)
    assert creatable(gpu) == {"A40-1Q": 0, "A40-2Q": 0, "A40-8Q": 5, "A40-48Q": 0}
    assert gpu.vfs[0].mdev_uuid == UUID
    assert [vf.address for vf in gpu.vfs][:5] == [
        "0000:41:00.4",
        "0000:41:00.5",
        "0000:41:00.6",
        "0000:41:00.7",
        "0000:41:01.0",
    ]


VGPU_CONFIG = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE vgpu SYSTEM "http://www.nvidia.com/dtd/vgpuConfig.dtd">
<vgpuconfig><version>1.1</version>
<vgpuType id="557" name="NVIDIA A40-1Q" class="Quadro"><profileSize>0x40000000</profileSize></vgpuType>
<vgpuType id="558" name="NVIDIA A40-2Q" class="Quadro"><profileSize>0x80000000</profileSize></vgpuType>
<vgpuType id="562" name="NVIDIA A40-8Q" class="Quadro"><profileSize>0x200000000</profileSize></vgpuType>
<vgpuType id="566" name="NVIDIA A40-48Q" class="Quadro"><profileSize>0xc00000000</profileSize></vgpuType>
<vgpuType id="999" name="NVIDIA B99-1Q" class="Quadro"><profileSize>0x40000000</profileSize></vgpuType>
<pgpu><devId vendorId="0x10de" deviceId="0x2235" subsystemVendorId="0x10de" subsystemId="0x0"/>
<supportedVgpu vgpuId="557"><maxVgpus>32</maxVgpus></supportedVgpu>
<supportedVgpu vgpuId="558"><maxVgpus>24</maxVgpus></supportedVgpu>
<supportedVgpu vgpuId="562"><maxVgpus>6</maxVgpus></supportedVgpu>
<supportedVgpu vgpuId="566"><maxVgpus>1</maxVgpus></supportedVgpu></pgpu>
<pgpu><devId vendorId="0x10de" deviceId="0x2236" subsystemVendorId="0x10de" subsystemId="0x0"/>
<supportedVgpu vgpuId="999"><maxVgpus>1</maxVgpus></supportedVgpu></pgpu>
</vgpuconfig>
"""
CONFIG_FILE: Tree = {"/usr/share/nvidia/vgpu/vgpuConfig.xml": VGPU_CONFIG}


def profile_card(used: dict[int, str], *, count: int = 8) -> list[ReadableTree]:
    sizes = {machine.VF_TYPES[type_id][1] for type_id in used.values()}
    types = tuple(type_id for type_id, (_, gib, _) in machine.VF_TYPES.items() if not sizes or gib in sizes)
    trees: list[ReadableTree] = [a40(total_vfs=count), {f"{machine.device_path(PF)}/sriov_numvfs": f"{count}\n"}]
    return trees + [profile_vf(number, current=used.get(number, "0"), types=types) for number in range(count)]


def test_vendor_vfio_lists_types_with_sizes_from_their_names(tmp_path: Path) -> None:
    gpu = read_gpu(tmp_path, *profile_card({}))
    assert gpu.sharing == ("vf-profile",)
    assert {each.name: each.framebuffer_mib for each in gpu.types} == {
        "A40-1Q": 1024,
        "A40-2Q": 2048,
        "A40-8Q": 8192,
        "A40-48Q": 49152,
    }
    assert [each.type_id for each in gpu.types] == ["557", "558", "562", "566"]
    assert creatable(gpu) == {"A40-1Q": 8, "A40-2Q": 8, "A40-8Q": 6, "A40-48Q": 1}


def test_the_ids_of_vfs_are_those_of_the_first_readable_one(tmp_path: Path) -> None:
    first = machine.device_path(vf_address(0))
    ids = {f"{first}/device": "0x2236\n", f"{first}/subsystem_vendor": "0x10de\n", f"{first}/subsystem_device": "0x0\n"}
    gpu = read_gpu(tmp_path, *profile_card({}), ids)
    assert (gpu.device_id, gpu.vf_device_id, gpu.vf_subsystem_id) == ("2235", "2236", "10de:0000")
    without = tmp_path / "without"
    without.mkdir()
    gpu = read_gpu(without, a40(total_vfs=8))
    assert (gpu.vf_device_id, gpu.vf_subsystem_id) == (None, None)


def test_a_used_vf_keeps_its_type_listed_by_name(tmp_path: Path) -> None:
    gpu = read_gpu(tmp_path, *profile_card({0: "562", 3: "562"}), CONFIG_FILE)
    assert creatable(gpu) == {"A40-1Q": 0, "A40-2Q": 0, "A40-8Q": 4, "A40-48Q": 0}
    assert [vf.current_type for vf in gpu.vfs][:4] == ["562", None, None, "562"]
    assert by_name(gpu)["A40-8Q"].max_instances == 6


def test_the_whole_card_as_one_vgpu_leaves_nothing_and_keeps_its_name(tmp_path: Path) -> None:
    trees = profile_card({0: "566"})
    for number in range(1, 8):
        path = f"{machine.device_path(vf_address(number))}/nvidia/creatable_vgpu_types"
        trees.append({path: machine.creatable(())})
    gpu = read_gpu(tmp_path, *trees, CONFIG_FILE)
    assert set(creatable(gpu).values()) == {0}
    assert by_name(gpu)["A40-48Q"].type_id == "566"


def test_without_any_description_a_used_type_is_still_listed(tmp_path: Path) -> None:
    gpu = read_gpu(tmp_path, *profile_card({0: "562"}, count=3))
    assert creatable(gpu) == {"A40-8Q": 2}
    lonely = tmp_path / "lonely"
    lonely.mkdir()
    only = read_gpu(lonely, *profile_card({0: "562"}, count=1))
    assert [(each.type_id, each.name, each.creatable) for each in only.types] == [("562", "type 562", 0)]


def test_nvml_describes_types_and_the_memory_that_bounds_them(tmp_path: Path) -> None:
    host = Host(str(build(tmp_path, machine.BASE, *profile_card({0: "562", 1: "562"}))))
    types = (NvmlType("562", "NVIDIA A40-8Q", 8192, 6),)
    known = NvmlGpu("NVIDIA A40", "GPU-1", 46068, types, NvmlMig(False, False))
    [gpu], _ = gpus.read_gpus(host, gpus.read_shared(host, {PF: known}))
    assert (gpu.memory_mib, gpu.mig_mode, gpu.uuid) == (46068, "disabled", "GPU-1")
    assert creatable(gpu) == {"A40-8Q": 4}


def test_a_pending_mig_mode_is_a_problem(tmp_path: Path) -> None:
    host = Host(str(build(tmp_path, machine.BASE, a40())))
    known = NvmlGpu("NVIDIA A100", None, 40960, (), NvmlMig(False, True))
    [gpu], _ = gpus.read_gpus(host, gpus.read_shared(host, {PF: known}))
    assert "MIG mode is disabled and becomes enabled" in gpu.problems[0]


def test_a_card_that_nvml_does_not_show_is_a_problem(tmp_path: Path) -> None:
    host = Host(str(build(tmp_path, machine.BASE, a40())))
    [gpu] = host_facts.read(host, None, "no library").gpus
    assert gpu.problems == ()
    [gpu], _ = gpus.read_gpus(host, gpus.read_shared(host, {}))
    assert "NVML does not show it" in gpu.problems[0]
    assert gpu.unread == gpu.problems


def test_plain_vfs_of_another_vendor_can_be_given_away(tmp_path: Path) -> None:
    pf = "0000:03:00.0"
    card = function(
        pf, vendor="8086", device="56c0", pci_class="038000", driver="i915", files={"sriov_totalvfs": "31\n"}
    )
    vfs = [virtual_function(number, pf, vendor="8086") for number in range(2)]
    gpu = read_gpu(tmp_path, card, {f"{machine.device_path(pf)}/sriov_numvfs": "2\n"}, *vfs)
    assert gpu.sharing == ("vf",)
    assert [vf.number for vf in gpu.vfs] == [0, 1]


def test_an_unreadable_part_is_a_problem_and_never_empty(tmp_path: Path) -> None:
    trees = profile_card({}, count=1)
    gpu = read_gpu(tmp_path, *trees, {f"{machine.device_path(vf_address(0))}/nvidia/current_vgpu_type": "???"})
    assert gpu.problems == () and "reads '???'" in (gpu.vfs[0].problem or "")
    assert gpu.unread == (gpu.vfs[0].problem,)


def test_a_broken_vgpu_config_is_a_problem_of_nvidia_cards(tmp_path: Path) -> None:
    gpu = read_gpu(tmp_path, a40(), {"/usr/share/nvidia/vgpu/vgpuConfig.xml": "<vgpuconfig>"})
    assert any("is not XML" in problem for problem in gpu.problems)


def test_a_card_left_on_the_stub_driver_is_a_problem(tmp_path: Path) -> None:
    gpu = read_gpu(tmp_path, a40(total_vfs=32, driver="pci-pf-stub"))
    assert any("pci-pf-stub" in problem for problem in gpu.problems)
    assert gpu.unread == ()


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({}, None),
        ({"/sys/module/nvidia/version": "550.127.06\n"}, "550.127.06"),
        (
            {"/proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.06  Wed Oct\n"},
            "550.127.06",
        ),
    ],
)
def test_the_drivers_version_is_read(files: Tree, version: str | None, tmp_path: Path) -> None:
    assert read(tmp_path, files).nvidia_driver == version


def test_holders_can_be_asked_for_alone(tmp_path: Path) -> None:
    host = Host(
        str(
            build(
                tmp_path,
                machine.BASE,
                *profile_card({0: "562"}, count=1),
                machine.holder(21, "/dev/vfio/devices/vfio0", vm_uuid=VM),
                machine.holder(22, "/dev/vfio/20", command="/bin/cat"),
            )
        )
    )
    assert [each.pid for each in read_holders(host, vf_address(0))] == [21, 22]
    with pytest.raises(Problem) as caught:
        read_holders(host, "0000:99:00.0")
    assert caught.value.code == "not-found"
    with pytest.raises(Problem) as caught:
        read_holders(host, UUID)
    assert caught.value.code == "not-found"


@pytest.mark.parametrize(
    ("name", "size", "mig"),
    [
        ("NVIDIA A40-8Q", 8192, False),
        ("GRID T4-2B4", 2048, False),
        ("GRID M60-0B", 512, False),
        ("GRID A100X-1-5CME", 5120, True),
        ("NVIDIA RTX Pro 6000 Blackwell DC-4-96Q", 98304, True),
        ("NVIDIA RTX Pro 6000 Blackwell DC-12Q", 12288, False),
        ("i915-GVTg_V5_4", None, False),
    ],
)
def test_a_types_name_tells_its_size(name: str, size: int | None, mig: bool) -> None:
    assert vgpu_types.size_of_name(name) == size
    assert vgpu_types.is_mig_backed(name) == mig


def test_nvmls_bus_ids_become_sysfs_addresses() -> None:
    assert normalise_bus_id("00000000:C1:00.0") == "0000:c1:00.0"
    assert normalise_bus_id("00010000:3D:00.0") == "10000:3d:00.0"
    assert normalise_bus_id("C1:00.0") == "0000:c1:00.0"
    assert normalise_bus_id("GPU-C1") == "gpu-c1"


def test_the_hosts_own_addresses_are_read(tmp_path: Path) -> None:
    trie = """Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.11.0.0/24 2 0 2
        |-- 10.11.0.0
           /24 link UNICAST
        |-- 10.11.0.1
           /32 host LOCAL
        |-- 10.11.0.255
           /32 link BROADCAST
     |-- 127.0.0.1
        /32 host LOCAL
Local:
     |-- 10.11.0.1
        /32 host LOCAL
"""
    assert read(tmp_path / "without").addresses is None
    root = tmp_path / "with"
    build(root, machine.BASE)
    (root / "proc/net").mkdir(parents=True, exist_ok=True)
    (root / "proc/net/fib_trie").write_text(trie)
    assert read_facts(Host(str(root))).addresses == ("10.11.0.1", "127.0.0.1")
