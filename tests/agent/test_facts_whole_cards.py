# SPDX-License-Identifier: Apache-2.0
"""Obstacles to giving a whole card away, and unreadable functions, as the agent reads them."""

from pathlib import Path

import pytest

from tests.agent import machine
from tests.agent.machine import ReadableTree, Tree, a40, build, device_path, function, profile_vf
from vgpuctl.agent.changes import driver
from vgpuctl.agent.dispatch import read_facts
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import decode
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import Gpu, HostFacts
from vgpuctl.agent.wire.steps import BindDriver

CARD, AUDIO, NIC = "0000:41:00.0", "0000:41:00.1", "0000:42:00.0"
KFD = "/sys/class/kfd/kfd"
PCI_DEVICES = "/sys/bus/pci/devices"


def read(root: Path, *trees: ReadableTree) -> HostFacts:
    facts = read_facts(Host(str(build(root, machine.BASE, *trees))))
    assert decode.from_json(HostFacts, decode.to_json(facts)) == facts
    return facts


def read_gpu(root: Path, *trees: ReadableTree) -> Gpu:
    [gpu] = read(root, *trees).gpus
    return gpu


def audio(group: int = 14, *, files: ReadableTree | None = None) -> Tree:
    return function(AUDIO, device="228e", pci_class="040300", driver="snd_hda_intel", group=group, files=files)


def nic(group: int) -> Tree:
    return function(NIC, vendor="8086", device="1533", pci_class="020000", driver="igb", group=group)


def amd(files: ReadableTree | None = None) -> Tree:
    nodes = {"drm/card1/dev": "226:1\n", "drm/renderD129/dev": "226:129\n", **(files or {})}
    return function(CARD, vendor="1002", device="740f", pci_class="120000", driver="amdgpu", files=nodes)


def kfd(pid: int, *, vram: str = "0", queue: str | None = None) -> Tree:
    """A process on /dev/kfd, and the driver's topology with the card as GPU 4711."""
    tree = machine.holder(pid, "/dev/kfd", command="/usr/bin/python3")
    tree |= {
        f"{KFD}/topology/nodes/0/gpu_id": "0\n",
        f"{KFD}/topology/nodes/0/properties": "cpu_cores_count 64\nlocation_id 0\ndomain 0\n",
        f"{KFD}/topology/nodes/1/gpu_id": "4711\n",
        f"{KFD}/topology/nodes/1/properties": f"simd_count 416\nlocation_id {0x41 << 8}\ndomain 0\n",
        f"{KFD}/proc/{pid}/vram_4711": f"{vram}\n",
    }
    return tree if queue is None else tree | {f"{KFD}/proc/{pid}/queues/0/gpuid": f"{queue}\n"}


IN_USE: dict[str, tuple[ReadableTree, ...]] = {
    "a stranger in the companion's own group": (a40(), audio(15), nic(15)),
    "a VM holds the companion": (a40(), audio(15), machine.holder(7, "/dev/vfio/15")),
    "a program plays sound on the companion": (
        a40(),
        audio(15, files={"sound/card0/controlC0/dev": "116:1\n"}),
        machine.holder(7, "/dev/snd/controlC0", command="/usr/bin/pipewire"),
    ),
    "the companion has no group": (a40(), function(AUDIO, device="228e", pci_class="040300", group=None)),
    "a render node is open": (amd(), machine.holder(7, "/dev/dri/renderD129", command="/usr/bin/vainfo")),
    "a card node is open": (amd(), machine.holder(7, "/dev/dri/card1", command="/usr/lib/Xorg")),
    "a process has memory on it": (amd(), kfd(7, vram="4096")),
    "a process has a queue on it": (amd(), kfd(7, queue="4711")),
    "it cannot be told on which card a process computes": (amd(), machine.holder(7, "/dev/kfd")),
}


@pytest.mark.parametrize("name", IN_USE)
def test_a_card_is_not_offered_as_a_whole_when(name: str, tmp_path: Path) -> None:
    assert "passthrough" not in read_gpu(tmp_path, *IN_USE[name]).sharing


FREE: dict[str, tuple[ReadableTree, ...]] = {
    "its companion is in a group of its own": (a40(), audio(15), nic(16)),
    "another card's nodes are open": (amd(), machine.holder(7, "/dev/dri/card0")),
    "a process computes on another card": (amd(), kfd(7, queue="815")),
}


@pytest.mark.parametrize("name", FREE)
def test_a_card_is_offered_as_a_whole_though(name: str, tmp_path: Path) -> None:
    gpu = read_gpu(tmp_path, *FREE[name])
    assert "passthrough" in gpu.sharing and gpu.strangers == ()


def test_strangers_are_those_of_every_function(tmp_path: Path) -> None:
    assert read_gpu(tmp_path, a40(), audio(15), nic(15)).strangers == (NIC,)


def test_the_users_of_a_card_are_named(tmp_path: Path) -> None:
    [user] = read_gpu(tmp_path, amd(), kfd(7, vram="4096")).users
    assert (user.pid, user.command) == (7, "python3")


def console(name: str) -> Tree:
    return {"/sys/class/vtconsole/vtcon1/name": f"(M) {name}\n", "/sys/class/vtconsole/vtcon1/bind": "1\n"}


def test_the_hosts_display_and_console_are_seen(tmp_path: Path) -> None:
    shown = amd({"boot_vga": "1\n", "graphics/fb0/dev": "29:0\n"})
    found = read_gpu(tmp_path, shown, console("frame buffer device")).displays
    assert found == (
        "it is the host's primary display (boot_vga), with the console on frame buffer device",
        "the host's console is on its framebuffer fb0",
    )


@pytest.mark.parametrize("title", ["dummy device", None])
def test_a_host_without_a_console_on_a_display_shows_nothing(title: str | None, tmp_path: Path) -> None:
    trees = [amd({"boot_vga": "1\n"})] + ([] if title is None else [console(title)])
    assert read_gpu(tmp_path, *trees).displays == ()


UNREADABLE: dict[str, Tree] = {
    "the kernel answers with an error": {f"{device_path(NIC)}/vendor/folder": ""},
    "it says something else": {f"{device_path(NIC)}/vendor": "garbage\n"},
    "it says too much": {f"{device_path(NIC)}/vendor": "0x1234567890\n"},
    "it vanishes": {f"{PCI_DEVICES}/{NIC}": f"-> ../../../devices/pci0000:40/{NIC}"},
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_function_that_cannot_be_read_is_its_own_problem(name: str, tmp_path: Path) -> None:
    broken = {**nic(16), **UNREADABLE[name]} if name != "it vanishes" else UNREADABLE[name]
    if name == "the kernel answers with an error":
        del broken[f"{device_path(NIC)}/vendor"]
    facts = read(tmp_path, a40(), broken)
    assert [gpu.address for gpu in facts.gpus] == [CARD]
    assert facts.gpus[0].problems == ()
    assert [one.address for one in facts.unread_functions] == [NIC]
    assert facts.unread_functions[0].problem


def test_an_unreadable_companion_is_the_cards_problem(tmp_path: Path) -> None:
    gpu = read_gpu(tmp_path, a40(), {**audio(15), f"{device_path(AUDIO)}/class": "garbage\n"})
    assert "passthrough" not in gpu.sharing or gpu.problems
    assert gpu.unread


def test_an_unreadable_vf_is_its_own_problem(tmp_path: Path) -> None:
    broken = profile_vf(1)
    place = f"{device_path(machine.vf_address(1))}/nvidia/current_vgpu_type"
    del broken[place]
    counted = {f"{device_path(CARD)}/sriov_numvfs": "2\n"}
    gpu = read_gpu(tmp_path, {**a40(total_vfs=2), **counted}, profile_vf(0), broken, {f"{place}/folder": ""})
    assert [vf.problem is None for vf in gpu.vfs] == [True, False]
    assert "could not be read" in (gpu.vfs[1].problem or "")
    assert gpu.sharing == ("vf-profile",) and gpu.types


UUID = "5b1f5b5e-7c0e-4f5c-9d0e-0a0b0c0d0e0f"
SECOND = "0000:81:00.0"
TYPES = {"558": 4, "562": 2}


def broken_mdev(parent: str, how: str) -> Tree:
    """A mediated device of which the kernel does not tell the type, or another part."""
    tree = dict(machine.active_mdev(UUID, parent, "nvidia-558"))
    folder = f"{device_path(parent)}/{UUID}"
    if how == "it has no type":
        del tree[f"{folder}/mdev_type"]
        return tree | {f"{folder}/power/control": "auto\n"}
    return tree | {f"{folder}/iommu_group": "-> ../../kernel/iommu_groups/garbage"}


@pytest.mark.parametrize("how", ["it has no type", "its group is no number"])
def test_an_unreadable_mdev_is_the_problem_of_its_parent_alone(how: str, tmp_path: Path) -> None:
    second = {**a40(SECOND, group=15), **machine.mdev_types(SECOND, available=TYPES)}
    trees = ({**a40(), **machine.mdev_types(CARD, available=TYPES)}, second, broken_mdev(CARD, how))
    first, other = read(tmp_path, *trees).gpus
    assert UUID in first.unread[0] and first.unread[0] in first.problems
    assert other.problems == () and other.unread == () and "mdev" in other.sharing
    host = Host(str(tmp_path))
    for step, refused in ((BindDriver((CARD,), "vfio-pci"), True), (BindDriver((SECOND,), "vfio-pci"), False)):
        if refused:
            with pytest.raises(Problem, match=UUID):
                driver.ensure(host, step, dry_run=True)
        else:
            assert driver.ensure(host, step, dry_run=True).changed


def test_an_unreadable_mdev_of_a_vf_takes_that_vf_alone(tmp_path: Path) -> None:
    vfs = [
        machine.virtual_function(number) | machine.mdev_types(machine.vf_address(number), available=TYPES)
        for number in range(2)
    ]
    card = {**a40(total_vfs=2), f"{device_path(CARD)}/sriov_numvfs": "2\n"}
    gpu = read_gpu(tmp_path, card, *vfs, broken_mdev(machine.vf_address(1), "it has no type"))
    assert [vf.problem is None for vf in gpu.vfs] == [True, False]
    assert gpu.vfs[1].mdev_uuid == UUID and gpu.problems == () and len(gpu.unread) == 1
    assert gpu.sharing == ("mdev-vf",) and {one.type_id: one.creatable for one in gpu.types}["nvidia-558"] == 1


def test_an_unreadable_type_is_left_out_and_noted(tmp_path: Path) -> None:
    tree = {**a40(), **machine.mdev_types(CARD, available=TYPES)}
    tree[f"{device_path(CARD)}/mdev_supported_types/nvidia-558/available_instances"] = "garbage\n"
    gpu = read_gpu(tmp_path, tree)
    assert [one.type_id for one in gpu.types] == ["nvidia-562"] and "mdev" in gpu.sharing
    assert "nvidia-558" in gpu.unread[0] and gpu.problems == ()


def test_a_vf_whose_types_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    broken = profile_vf(1)
    place = f"{device_path(machine.vf_address(1))}/nvidia/creatable_vgpu_types"
    del broken[place]
    card = {**a40(total_vfs=2), f"{device_path(CARD)}/sriov_numvfs": "2\n"}
    gpu = read_gpu(tmp_path, card, profile_vf(0), broken, {f"{place}/folder": ""})
    assert gpu.sharing == ("vf-profile",) and max(one.creatable for one in gpu.types) == 1
    assert machine.vf_address(1) in gpu.unread[0]


def test_a_card_with_mig_instances_is_not_bound_to_another_driver(tmp_path: Path) -> None:
    instances: Tree = {f"/proc/driver/nvidia/capabilities/gpu0/mig/gi{number}/access": "" for number in (7, 8)}
    host = Host(str(build(tmp_path, machine.BASE, a40(), instances)))
    with pytest.raises(Problem) as caught:
        driver.ensure(host, BindDriver((CARD,), "vfio-pci"), dry_run=False)
    assert caught.value.code == "mig-instances-active"
    assert "gi7, gi8" in caught.value.message and host.writes == 0
