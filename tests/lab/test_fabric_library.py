# SPDX-License-Identifier: Apache-2.0
"""The lab's libnvfm by ctypes, over files as the kernel module writes them; the codes are those of the guide."""

import ctypes
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.lab.nvml_fixtures import FabricFiles, ModuleDouble, module, nvfm, nvfm_library
from vgpuctl.agent import fabric_manager as client
from vgpuctl.agent.fabric_manager import ActivatedList, ConnectParameters, FailedDevices, PartitionList, PciDevice
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl_lab import kernel_faults
from vgpuctl_lab.builds import FABRIC_SOURCES
from vgpuctl_lab.card_links import fabric_config
from vgpuctl_lab.card_table import card_table
from vgpuctl_lab.cards import HostShape, parse_host

__all__ = ["module", "nvfm", "nvfm_library"]

STRUCTURES = {
    "fmConnectParams_v2": (client.ConnectParameters, 272),
    "fmPciDevice_t": (client.PciDevice, 16),
    "fmFabricPartitionGpuInfo_t": (client.GpuInfo, 128),
    "fmFabricPartitionInfo_t": (client.PartitionInfo, 2_060),
    "fmFabricPartitionList_v2": (client.PartitionList, 131_852),
    "fmActivatedFabricPartitionList_v1": (client.ActivatedList, 264),
    "fmNvlinkFailedDeviceInfo_t": (client.FailedDeviceInfo, 372),
    "fmNvlinkFailedDevices_v1": (client.FailedDevices, 10_428),
}
FIRST = "0000:01:00.0"


def shape_of(board: str, count: int) -> HostShape:
    """A host with more cards than an emulated one takes, too."""
    card = parse_host(f"gpu1={board}").cards[0]
    return HostShape("gpu1", (card,) * count)


@pytest.fixture
def files(module: ModuleDouble) -> FabricFiles:
    module.write(cards=card_table(shape_of("h100-sxm5", 8)))
    found = FabricFiles(module.folder)
    found.configure(fabric_config(1))
    return found


@pytest.fixture
def handle(nvfm: Any, files: FabricFiles) -> ctypes.c_void_p:
    assert nvfm.fmLibInit() == 0
    found = ctypes.c_void_p()
    assert connect(nvfm, found) == 0
    return found


def versioned(kind: Any, version: int = 1) -> Any:
    made = kind()
    made.version = ctypes.sizeof(kind) | version << 24
    return made


def connect(library: Any, handle: ctypes.c_void_p, address: str = "127.0.0.1", *, unix: int = 0, kind: int = 0) -> int:
    asked = versioned(ConnectParameters, 2)
    asked.addressInfo, asked.addressIsUnixSocket, asked.addressType = address.encode(), unix, kind
    return int(library.fmConnect(ctypes.byref(asked), ctypes.byref(handle)))


def partitions(library: Any, handle: ctypes.c_void_p) -> dict[int, list[int]]:
    """The modules by partition."""
    found = versioned(PartitionList)
    assert library.fmGetSupportedFabricPartitions(handle, ctypes.byref(found)) == 0
    return {
        one.partitionId: [gpu.physicalId for gpu in one.gpuInfo[: one.numGpus]]
        for one in found.partitionInfo[: found.numPartitions]
    }


def code_of_list(library: Any, handle: ctypes.c_void_p, version: int = 1) -> int:
    found = versioned(PartitionList, version)
    return int(library.fmGetSupportedFabricPartitions(handle, ctypes.byref(found)))


def set_active(library: Any, handle: ctypes.c_void_p, *numbers: int) -> int:
    told = versioned(ActivatedList)
    told.numPartitions, told.partitionIds[: len(numbers)] = len(numbers), numbers
    return int(library.fmSetActivatedFabricPartitions(handle, ctypes.byref(told)))


def test_the_agents_structures_have_the_sizes_of_the_header(tmp_path: Path) -> None:
    program = "".join(f'printf("{name} %zu\\n", sizeof({name}));' for name in STRUCTURES)
    source = tmp_path / "sizes.c"
    source.write_text(f'#include <stdio.h>\n#include "nvfm.h"\nint main(void) {{ {program} return 0; }}\n')
    subprocess.run(["cc", "-I", FABRIC_SOURCES, "-o", tmp_path / "sizes", source], check=True, timeout=60)
    sizes = subprocess.run([tmp_path / "sizes"], check=True, capture_output=True, text=True, timeout=10).stdout
    told = {name: int(size) for name, size in (line.split() for line in sizes.splitlines())}
    assert told == {name: size for name, (_, size) in STRUCTURES.items()}
    assert told == {name: ctypes.sizeof(kind) for name, (kind, _) in STRUCTURES.items()}


def test_the_library_is_opened_once_and_a_handle_is_one_that_it_gave(nvfm: Any, files: FabricFiles) -> None:
    handle = ctypes.c_void_p()
    assert connect(nvfm, handle) == -4
    assert code_of_list(nvfm, handle) == -4
    assert nvfm.fmLibShutdown() == -4
    assert (nvfm.fmLibInit(), nvfm.fmLibInit()) == (0, -7)
    assert code_of_list(nvfm, handle) == -1
    assert connect(nvfm, handle) == 0
    assert nvfm.fmGetSupportedFabricPartitions(handle, None) == -1
    assert (nvfm.fmDisconnect(handle), nvfm.fmDisconnect(handle), nvfm.fmDisconnect(None)) == (0, -1, -1)
    assert code_of_list(nvfm, handle) == -1
    assert (nvfm.fmLibShutdown(), nvfm.fmDisconnect(handle)) == (0, -4)


def test_the_version_words_are_the_headers(nvfm: Any, handle: ctypes.c_void_p) -> None:
    """The list is the second of its name, and carries version 1."""
    assert [code_of_list(nvfm, handle, version) for version in (0, 1, 2)] == [-6, 0, -6]
    asked = versioned(ConnectParameters, 1)
    asked.addressInfo = b"127.0.0.1"
    other = ctypes.c_void_p()
    assert nvfm.fmConnect(ctypes.byref(asked), ctypes.byref(other)) == -6
    asked.version = 268 | 1 << 24
    assert nvfm.fmConnect(ctypes.byref(asked), ctypes.byref(other)) == 0
    assert set_active(nvfm, handle) == -3
    assert nvfm.fmSetActivatedFabricPartitions(handle, ctypes.byref(ActivatedList())) == -6
    assert nvfm.fmGetNvlinkFailedDevices(handle, ctypes.byref(FailedDevices())) == -6


def test_it_is_reached_at_the_address_of_its_configuration_alone(nvfm: Any, files: FabricFiles) -> None:
    nvfm.fmLibInit()
    handle = ctypes.c_void_p()
    codes = [
        connect(nvfm, handle, one) for one in ("127.0.0.1:6666", "localhost", "127.0.0.1:7", "127.0.0.2", "here", "")
    ]
    assert codes == [0, 0, -9, -9, -1, -1]
    assert connect(nvfm, handle, "/run/s", unix=1) == -9
    files.configure(fabric_config(1) + "FM_CMD_UNIX_SOCKET_PATH=/run/s\nUNIX_SOCKET_PATH=/run/internal\n")
    assert [connect(nvfm, handle, "/run/s", unix=1), connect(nvfm, handle, "/run/s", kind=2)] == [0, 0]
    assert connect(nvfm, handle) == -9
    assert connect(nvfm, handle, "3:6666", kind=3) == -9
    assert connect(nvfm, handle, "/run/internal", kind=2) == 0
    assert code_of_list(nvfm, handle) == -4, "the socket of its own processes"


def test_partitions_are_seen_by_every_process_and_overlap_as_the_guide_says(nvfm: Any, handle: ctypes.c_void_p) -> None:
    assert partitions(nvfm, handle)[3] == [1, 3]
    codes = [nvfm.fmActivateFabricPartition(handle, one) for one in (3, 4, 1, 3, 7, 15)]
    assert codes == [0, 0, -24, -17, -24, -1]
    assert [nvfm.fmDeactivateFabricPartition(handle, one) for one in (9, 15, 4, 4)] == [-4, -1, 0, -4]
    program = (
        "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); library.fmLibInit(); handle = ctypes.c_void_p();"
        "asked = (ctypes.c_uint * 68).from_buffer_copy(bytes.fromhex(sys.argv[2]));"
        "print(library.fmConnect(asked, ctypes.byref(handle)), library.fmActivateFabricPartition(handle, 3))"
    )
    asked = versioned(ConnectParameters, 2)
    asked.addressInfo = b"127.0.0.1"
    argv = ["python3", "-c", program, nvfm._name, bytes(asked).hex()]
    assert subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30).stdout == "0 -17\n"


def test_the_agents_client_uses_it(nvfm: Any, files: FabricFiles, tmp_path: Path) -> None:
    class EmulatedHost(Host):
        def nvfm(self) -> Any:
            return nvfm

    for text, code in (("", ProblemCode.FABRIC_NOT_SUPPORTED), ("FABRIC_MODE=1\n", ProblemCode.FABRIC_GPU_TAKEN)):
        files.configure(text)
        with client.FabricManager(EmulatedHost(str(tmp_path))) as manager:
            if text:
                manager.activate(3)
                assert [one.number for one in manager.partitions() if one.is_active] == [3]
            with pytest.raises(Problem) as caught:
                manager.activate(1)
            assert caught.value.code == code
    files.let(stopped=1)
    with pytest.raises(Problem) as caught:
        client.FabricManager(EmulatedHost(str(tmp_path)))
    assert caught.value.code == ProblemCode.FABRIC_UNREACHABLE


def test_vfs_belong_to_the_gpus_in_their_order(nvfm: Any, handle: ctypes.c_void_p, files: FabricFiles) -> None:
    """An address with ARI can be written with the function alone: 0000:01:02.3 is function 0x13."""
    for bus in (1, 3):
        for function in (0x04, 0x13):
            files.add_vf(f"0000:{bus:02x}:00.0", f"0000:{bus:02x}:{function >> 3:02x}.{function & 7}")
    one, of_ari, three = PciDevice(0, 1, 0, 4), PciDevice(0, 1, 0, 0x13), PciDevice(0, 3, 2, 3)

    def activate(*vfs: PciDevice) -> int:
        return int(nvfm.fmActivateFabricPartitionWithVFs(handle, 3, (PciDevice * len(vfs))(*vfs), len(vfs)))

    assert activate(one, three) == -3
    files.configure(fabric_config(2))
    assert nvfm.fmActivateFabricPartition(handle, 3) == -3
    assert [activate(one), activate(one, of_ari), activate(three, one), activate(one, three, three)] == [-1] * 4
    assert nvfm.fmActivateFabricPartitionWithVFs(handle, 3, None, 2) == -1
    assert activate(of_ari, three) == 0


def test_it_starts_dies_and_restarts(nvfm: Any, handle: ctypes.c_void_p, files: FabricFiles) -> None:
    nvfm.fmActivateFabricPartition(handle, 3)
    files.let(starting_until=int(time.time()) + 1000)
    assert code_of_list(nvfm, handle) == -8
    files.let(window_ends=int(time.time()) + 1000, restarted=1)
    assert (code_of_list(nvfm, handle), nvfm.fmDeactivateFabricPartition(handle, 3)) == (-8, -8)
    assert [set_active(nvfm, handle, *one) for one in ((3, 1), (63,), (3, 4), (3,))] == [-1, -1, 0, -3]
    assert nvfm.fmActivateFabricPartition(handle, 3) == -17
    files.let(window_ends=int(time.time()) + 1000)
    files.pass_time(1000)
    assert (set_active(nvfm, handle, 3), code_of_list(nvfm, handle)) == (-9, -9)
    files.let(stopped=1)
    assert (code_of_list(nvfm, handle), connect(nvfm, ctypes.c_void_p())) == (-9, -9)


def test_only_a_board_before_hopper_names_gpus_and_failed_links(
    nvfm: Any, handle: ctypes.c_void_p, module: ModuleDouble, files: FabricFiles
) -> None:
    files.fail_links(FIRST, 2)
    for board, counted in (("h100-sxm5", 0), ("a100-sxm4-40gb", 1)):
        module.write(cards=card_table(shape_of(board, 8)))
        failed, found = versioned(FailedDevices), versioned(PartitionList)
        assert nvfm.fmGetNvlinkFailedDevices(handle, ctypes.byref(failed)) == 0
        assert nvfm.fmGetSupportedFabricPartitions(handle, ctypes.byref(found)) == 0
        whole = next(one for one in found.partitionInfo if one.numGpus == 8).gpuInfo
        assert failed.numGpus == counted
        assert [bool(whole[0].uuid), bool(whole[0].pciBusId)] == [bool(counted)] * 2
        assert [gpu.maxNumNvLinks - gpu.numNvLinksAvailable for gpu in whole[:2]] == [2, 0]
    assert (failed.gpuInfo[0].pciBusId, failed.gpuInfo[0].portNum[: failed.gpuInfo[0].numPorts]) == (
        b"00000000:01:00.0",
        [0, 1],
    )


def test_the_faults_of_an_emulated_host_are_what_the_library_answers(
    nvfm: Any, handle: ctypes.c_void_p, module: ModuleDouble
) -> None:
    def play(text: str, value: int = 1) -> str:
        script = text.format(card=FIRST, value=value).replace("/run/vgpulab", str(module.folder))
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=30, check=True)
        return done.stdout

    def state() -> tuple[int, list[int]]:
        found = versioned(PartitionList)
        code = nvfm.fmGetSupportedFabricPartitions(handle, ctypes.byref(found))
        return code, [one.partitionId for one in found.partitionInfo if one.isActive]

    begins, ends, left = kernel_faults.BEGINS, kernel_faults.ENDS, kernel_faults.STILL_THERE
    nvfm.fmActivateFabricPartition(handle, 3)
    for kind, code in (("fabric-dead", -9), ("fabric-restarted", -8)):
        play(begins[kind])
        assert (state()[0], bool(play(left[kind]))) == (code, True)
    assert (set_active(nvfm, handle, 3), state(), play(left["fabric-restarted"])) == (0, (0, [3]), "")
    play(begins["fabric-dead"])
    play(ends["fabric-dead"])
    assert (set_active(nvfm, handle, 3), play(left["fabric-dead"])) == (0, "")
    play(begins["fabric-starting"], 1000)
    assert (state()[0], bool(play(left["fabric-starting"]))) == (-8, True)
    play(ends["fabric-starting"])
    assert (state(), play(left["fabric-starting"])) == ((0, []), "")
    for text, links in ((begins["nvlink-failed"], 17), (ends["nvlink-failed"], 18)):
        play(text)
        found = versioned(PartitionList)
        nvfm.fmGetSupportedFabricPartitions(handle, ctypes.byref(found))
        assert found.partitionInfo[0].gpuInfo[0].numNvLinksAvailable == links


def test_any_function_can_be_made_to_return_any_code(nvfm: Any, handle: ctypes.c_void_p, module: ModuleDouble) -> None:
    (module.folder / "nvfm_codes").write_text("fmActivateFabricPartition -10\nfmConnect -6\n")
    assert (nvfm.fmActivateFabricPartition(handle, 3), connect(nvfm, ctypes.c_void_p())) == (-10, -6)
    assert code_of_list(nvfm, handle) == 0


def test_a_host_without_nvswitch_has_nobody_to_connect_to(nvfm: Any, module: ModuleDouble) -> None:
    module.write(cards=card_table(parse_host("gpu1=a40")))
    nvfm.fmLibInit()
    assert connect(nvfm, ctypes.c_void_p()) == -9
