# SPDX-License-Identifier: Apache-2.0
"""The lab's parts that need no emulated host: cards, initramfs, processes, folder."""

import json
import lzma
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from vgpuctl.errors import LabError, UsageError
from vgpuctl_lab.builds import IN_HOST
from vgpuctl_lab.card_links import fabric_config
from vgpuctl_lab.card_table import card_table
from vgpuctl_lab.cards import numa_arguments, qemu_devices
from vgpuctl_lab.folder import built
from vgpuctl_lab.initramfs import Archive, add_modules, modules_in_order
from vgpuctl_lab.lab_file import read_lab_file
from vgpuctl_lab.process import RecordedProcess, checked, record
from vgpuctl_lab.simulated import fleet
from vgpuctl_lab.simulated.layout import simulated_folder
from vgpuctl_lab.simulated.mix import parse_mix


def test_the_default_host_offers_each_interface_once() -> None:
    shape = lab.parse_host(lab.DEFAULT_HOST)
    assert {card.interface for card in shape.cards} == set(lab.CardInterface)
    assert lab.parse_host(shape.text) == shape


def test_the_card_table_takes_its_numbers_from_the_catalogue() -> None:
    lines = card_table(lab.parse_host("h=a40:vf-profile,rtx-3090:passthrough")).splitlines()
    assert lines[0].startswith(
        "card 0000:01:00.0 interface=vf-profile device=10de:2235 subsystem=10de:145a class=030200 revision=a1"
        " framebuffer=49152 vfs=32 uuid=GPU-"
    )
    assert lines[0].endswith(
        " architecture=ampere memory=46068 power=300 bar1=65536 ecc=1 hetero=1 mig=0 name=NVIDIA A40"
    )
    assert (
        "type 562 framebuffer=8192 max=6 heads=4 frl=60 resolution=7680x4320 vdev=2235:14dc placement=8"
        " guest_framebuffer=7616 class=Quadro"
        " license=Quadro-Virtual-DWS,5.0;GRID-Virtual-WS,2.0;GRID-Virtual-WS-Ext,2.0 name=NVIDIA A40-8Q"
    ) in lines
    assert lines[-1].startswith("companion 0000:02:00.1 device=10de:1aef ")


def test_an_intel_card_has_the_catalogues_vfs_and_no_types() -> None:
    shape = lab.parse_host("h=flex-170:vf")
    assert card_table(shape) == (
        "card 0000:01:00.0 interface=vf device=8086:56c0 subsystem=8086:56c0 class=038000 revision=08"
        " framebuffer=16384 vfs=31 name=Intel Data Center GPU Flex 170\n"
    )
    assert "sriov_max_vfs=31" in " ".join(qemu_devices(shape))
    most = lab.parse_host("h=intel-max-1100:vf").cards[0]
    assert (most.board.sriov and most.board.sriov.totalvfs, most.virtual_functions) == (63, 48)


@pytest.mark.parametrize(
    ("name", "card"),
    [
        ("t4", "nvidia-t4:mdev"),
        ("a40", "nvidia-a40:vf-profile"),
        ("a100-40", "nvidia-a100-pcie-40gb:vf-profile"),
        ("a100-80", "nvidia-a100-pcie-80gb:vf-profile"),
        ("h100", "nvidia-h100-pcie-80gb:vf-profile"),
        ("l40s", "nvidia-l40s:vf-profile"),
        ("RTX PRO 6000", "nvidia-rtx-pro-6000-blackwell-server:vf-profile"),
        ("flex-170", "intel-flex-170:vf"),
        ("rtx-3090", "nvidia-geforce-rtx-3090:passthrough"),
    ],
)
def test_a_short_name_means_one_board_and_its_interface_on_a_current_host(name: str, card: str) -> None:
    assert lab.parse_host(f"h={name}").cards[0].text == card
    simulated = parse_mix(name)[0].cards[0]
    assert f"{simulated.board.key}:{simulated.interface}" == card


def test_a_board_with_mig_has_its_profiles_and_mig_backed_types_in_the_table() -> None:
    lines = card_table(lab.parse_host("h=a100-40,h100")).splitlines()
    assert " mig=1 mig_reset=1 mig_kept=1 slots=8 slices=7 name=" in lines[0]
    assert next(line for line in lines if line.endswith(" name=3g.20gb") and line.startswith("gi ")).startswith(
        "gi 9 slices=3 size=4 memory=19968 max=2 starts=0,4 me=0 base=1 nvml=2 sm=42"
    )
    assert "ci 0 slices=1 max=3 gi=9 starts=0,1,2 nvml=0 name=1c.3g.20gb" in lines
    assert any(line.startswith("type 476 ") and " gi=9 per_gi=1 " in line for line in lines)
    assert any(" mig=1 mig_reset=0 mig_kept=0 " in line for line in lines[1:])


def test_every_type_of_a_card_has_an_id_and_no_two_have_the_same() -> None:
    """Types without a published id get one of the lab's own."""
    lines = card_table(lab.parse_host("h=h100,l40s,rtx-pro-6000")).splitlines()
    ids = [line.split()[1] for line in lines if line.startswith("type ")]
    assert len(set(ids)) == len(ids)
    assert any(line.startswith("type 60") and line.endswith(" name=NVIDIA L40S-4C") for line in lines)


def test_bridged_cards_are_pairs_in_the_table_whatever_their_order_in_the_text() -> None:
    shape = lab.parse_host("h=a40:mdev-vf~bridged@1,t4:mdev@0,a40~bridged@0,a40~bridged@1")
    assert lab.parse_host(shape.text) == shape
    lines = [line.split(" name=")[0] for line in card_table(shape).splitlines() if line.startswith("card ")]
    peers = {line.split()[1]: dict(word.split("=") for word in line.split()[2:]).get("nvlink_peers") for line in lines}
    assert peers == {
        "0000:41:00.0": None,
        "0000:42:00.0": "0000:81:00.0",
        "0000:81:00.0": "0000:42:00.0",
        "0000:82:00.0": None,
    }


def test_a_word_at_one_card_gives_the_mode_of_the_hosts_fabric_manager() -> None:
    for text, mode in (
        ("h100-sxm5,h100-sxm5", 0),
        ("b200,b200~fabric-shared", 1),
        ("b200:mdev-vf~fabric-vgpu@1,b200", 2),
    ):
        shape = lab.parse_host(f"h={text}")
        assert (lab.parse_host(shape.text), shape.fabric_mode) == (shape, mode)
    assert f"FABRIC_MODE={mode}\n" in fabric_config(mode)


def test_a_mig_mode_that_outlives_a_reboot_is_written_down_and_comes_back_with_the_table(tmp_path: Path) -> None:
    table = tmp_path / "cards"
    shape = lab.parse_host("h=a100-40,h100,a30,h100@1+keeps-mig")
    assert lab.parse_host(shape.text) == shape
    addresses = [f"0000:{bus:02x}:00.0" for bus in shape.buses]
    table.write_text(card_table(shape))

    def keep(*arguments: str, **environment: str) -> str:
        command = ["sh", str(IN_HOST / "keep-mig-mode"), *arguments]
        environment = {**os.environ, "VGPULAB_MIG_MODES": str(tmp_path / "modes"), **environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert keep(str(table)) == table.read_text()
    for index, mode in ((0, "1"), (1, "1"), (2, "1"), (2, "0"), (3, "1")):
        keep(PCI_SLOT_NAME=addresses[index], VGPULAB_MIG_MODE=mode)
    now = keep(str(table)).splitlines()
    # Of the two H100 only the one that was asked to.
    kept = [line.split()[1] for line in now if "mig_mode=1" in line]
    assert kept == [addresses[0], addresses[3]]
    assert now[0].endswith(" slices=7 mig_mode=1 name=NVIDIA A100 PCIe 40GB")
    assert len(now) == len(table.read_text().splitlines())


def test_each_card_has_a_root_port_of_its_own_in_the_order_of_the_buses() -> None:
    devices = " ".join(qemu_devices(lab.parse_host("h=t4:mdev,a40:mdev-vf")))
    assert devices.index("id=rp1") < devices.index("bus=rp1") < devices.index("id=rp2") < devices.index("bus=rp2")
    assert "sriov_max_vfs=32" in devices


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("UPPER=a40:mdev", "not a host name"),
        ("../x", "not a host name"),
        ("h=a40:", "no interface ''"),
        ("h=a40:sriov", "no interface 'sriov'"),
        ("h=nothing-99:mdev", "no board of the catalogue is called 'nothing-99'"),
        ("h=rtx-6000", "3 boards"),
        ("h=rtx-3090:mdev", "no interface 'mdev'"),
        ("h=a40:vf", "no interface 'vf'"),
        ("h=a40+keeps-mig", "no MIG mode that a reboot takes"),
        ("h=a100-40+keeps-mig", "no MIG mode that a reboot takes"),
        ("h=a40~joined", "there is no 'joined'"),
        ("h=t4~bridged", "takes no NVLink bridge"),
        ("h=a40~switched", "no PCIe switch"),
        ("h=a40~fabric-vgpu", "no NVSwitch"),
        ("h=b200~fabric-vgpu,b200~fabric-shared", "not both of"),
        ("h=flex-170:passthrough", "no interface 'passthrough'"),
        ("h=intel-arc-pro-b50:vf", "cannot play"),
        ("h=amd-mi300x", "cannot play"),
        ("h=" + ",".join(["a40:mdev"] * 9), "9 cards"),
    ],
)
def test_a_wrong_host_names_what_is_wrong(text: str, part: str) -> None:
    with pytest.raises(UsageError) as raised:
        lab.parse_host(text)
    assert part in raised.value.message


@pytest.mark.parametrize(
    ("name", "near"), [("a41", "near to it: a40,"), ("flex170", "near to it: flex-170,"), ("x", "boards: tesla-m60,")]
)
def test_a_board_that_is_not_there_names_those_near_to_it(name: str, near: str) -> None:
    for parse in (lambda card: lab.parse_host(f"h={card}"), parse_mix):
        with pytest.raises(UsageError) as raised:
            parse(name)
        assert (raised.value.hint or "").startswith(near)


def test_modules_come_after_what_they_depend_on() -> None:
    dependencies = "a/9p.ko: a/9pnet.ko a/netfs.ko\na/9pnet.ko:\nb/virtio_pci.ko.xz: b/virtio.ko b/virtio_ring.ko\n"
    assert modules_in_order(dependencies) == [
        "b/virtio_ring.ko",
        "b/virtio.ko",
        "b/virtio_pci.ko.xz",
        "a/netfs.ko",
        "a/9pnet.ko",
        "a/9p.ko",
    ]


def test_what_two_processes_build_at_once_is_kept_once(tmp_path: Path) -> None:
    with built(tmp_path / "made") as first, built(tmp_path / "made") as second:
        assert first is not None and second is not None
        (first / "by").write_text("first")
        (second / "by").write_text("second")
    assert (tmp_path / "made/by").read_text() == "second", "its block ends first"
    assert [one.name for one in tmp_path.iterdir()] == ["made"]


def test_compressed_modules_are_inserted_as_they_were_built(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/9p.ko.xz").write_bytes(lzma.compress(b"the module"))
    (tmp_path / "modules.dep").write_text("a/9p.ko.xz:\n")
    archive = Archive()
    add_modules(archive, tmp_path)
    finished = archive.finished()
    assert b"the module" in finished and b"9p.ko\n" in finished and b"9p.ko.xz" not in finished


@pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio reads the archive back")
def test_cpio_unpacks_the_archive(tmp_path: Path) -> None:
    archive = Archive()
    archive.add("etc/deep/file", b"content", 0o640)
    archive.add_link("bin/sh", "busybox")
    subprocess.run(
        ["cpio", "-i", "-d", "--quiet"], input=archive.finished(), cwd=tmp_path, check=True, capture_output=True
    )
    assert (tmp_path / "etc/deep/file").read_bytes() == b"content"
    assert (tmp_path / "etc/deep/file").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "bin/sh").readlink() == Path("busybox")


def test_a_process_with_the_same_pid_but_another_start_is_left_alone() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        known = record(child.pid)
        RecordedProcess(known.pid, known.start_time - 1, known.boot_id).end(grace_s=1)
        RecordedProcess(known.pid, known.start_time, "another boot").end(grace_s=1)
        assert child.poll() is None
        known.end(grace_s=5)
        assert not known.is_running()
        known.end(grace_s=5)


def test_a_failed_program_shows_its_last_words() -> None:
    with pytest.raises(LabError) as raised:
        checked(["sh", "-c", "echo it broke >&2; exit 3"], what="trying", timeout_s=10)
    assert "ended with 3" in raised.value.message
    assert raised.value.context == ("it broke",)


def test_a_folder_with_other_files_is_never_taken_for_a_lab(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(LabError, match="not a lab"):
        lab.down(folder=lab.LabFolder(tmp_path), purge=True)
    assert (tmp_path / "thesis.tex").exists()


def test_two_runs_cannot_change_the_lab_at_once(tmp_path: Path) -> None:
    folder = lab.LabFolder(tmp_path / "lab")
    with folder.locked(), pytest.raises(LabError, match="another run"), folder.locked():
        pass


def test_down_after_a_crash_removes_what_is_left(tmp_path: Path) -> None:
    folder = lab.LabFolder(tmp_path / "lab")
    with folder.locked():
        left = folder.host("gpu1")
        left.mkdir(parents=True)
    process = {"pid": os.getpid(), "start_time": 1, "boot_id": "of another boot"}
    (left / "host.json").write_text(
        json.dumps(
            {
                "process": process,
                "port": 0,
                "shape": "gpu1=nvidia-t4:mdev",
                "memory_mib": 1024,
                "accelerator": "tcg",
                "number": 1,
                "seconds": 1.0,
            }
        )
    )
    (folder.host("gpu2")).mkdir()
    assert [host.state for host in lab.status(folder=folder)] == ["dead"]
    assert lab.down(folder=folder, purge=True) == ["gpu1", "gpu2"]
    assert not folder.path.exists()


def test_down_ends_a_process_that_another_version_of_the_lab_wrote_down(tmp_path: Path) -> None:
    folder = lab.LabFolder(tmp_path / "lab")
    with subprocess.Popen(["sleep", "60"]) as child:
        known = record(child.pid)
        with folder.locked():
            folder.host("gpu1").mkdir(parents=True)
        process = {"pid": known.pid, "start_time": known.start_time, "boot_id": known.boot_id}
        (folder.host("gpu1") / "host.json").write_text(json.dumps({"process": process, "of_another_time": True}))
        assert lab.down(folder=folder, purge=True) == ["gpu1"]
        assert not known.is_running()


def test_cards_on_numa_nodes_have_buses_of_their_node() -> None:
    shape = lab.parse_host("two=a40@0,t4@1,t4:mdev@1,l40s")
    assert shape.buses == (0x41, 0x81, 0x82, 0x42)
    # The table goes by bus, as NVML numbers GPUs.
    assert [line.split()[1] for line in card_table(shape).splitlines() if line.startswith("card ")] == [
        "0000:41:00.0",
        "0000:42:00.0",
        "0000:81:00.0",
        "0000:82:00.0",
    ]
    assert lab.parse_host(shape.text) == shape
    arguments = " ".join(numa_arguments(shape, 4096, 2))
    assert "nodeid=0,memdev=memory0,cpus=0-0" in arguments
    assert "nodeid=1,memdev=memory1,cpus=1-1" in arguments
    assert numa_arguments(lab.parse_host("one=a40"), 4096, 2) == []


def test_a_lab_file_names_hosts_of_both_kinds(tmp_path: Path) -> None:
    file = tmp_path / "lab.yml"
    file.write_text(
        "memory: 2GiB\nhosts:\n  gpu1: [a40, t4]\n  gpu2: [h100@0, l40s@1]\n"
        "simulated: {count: 100, mix: 'a40:50,t4:20', latency_ms: 5}\n"
    )
    read = read_lab_file(file)
    assert [shape.name for shape in read.shapes] == ["gpu1", "gpu2"]
    assert [shape.numa_nodes for shape in read.shapes] == [1, 2]
    assert (read.memory_mib, read.simulated_count, read.latency_ms) == (2048, 100, 5)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("hosts: [", "not valid YAML"),
        ("hosts: {gpu1: [a40@7]}", "NUMA node"),
        ("hosts: {gpu1: [nothing]}", "nothing"),
        ("hosts: {gpu1: [a40]}\nmemroy: 2GiB", r"lab\.yml:2: lab\.memroy is not a key of a lab file"),
        ("{}", "has no host"),
        ("simulated: {count: 0}", r"lab\.yml:1: lab\.simulated\.count is 0"),
        ("hosts: {gpu1: [a40]}\nmemory: many", r"lab\.yml:2: lab\.memory is 'many'"),
    ],
)
def test_a_wrong_lab_file_is_refused_by_name(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "lab.yml"
    file.write_text(text)
    with pytest.raises(UsageError, match=part) as refused:
        read_lab_file(file)
    assert str(file) in refused.value.message


def open_files() -> set[str]:
    """The numbers of this process's open files."""
    return {number.name for number in Path("/proc/self/fd").iterdir() if number.exists()}


def test_a_lab_daemon_that_does_not_listen_yet_is_an_error_and_no_open_socket(tmp_path: Path) -> None:
    hosts = simulated_folder(lab.LabFolder(tmp_path))
    hosts.path.mkdir()
    ours = record(os.getpid())
    assert ours is not None
    hosts.write_processes(ours, ours)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(hosts.control_socket))
        before = open_files()
        # The error keeps a socket alive that was left open, so that it is counted below.
        with pytest.raises(LabError, match=r"does not answer: .*refused") as raised:
            fleet.status(folder=lab.LabFolder(tmp_path))
        assert open_files() == before
        del raised
