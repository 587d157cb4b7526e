# SPDX-License-Identifier: Apache-2.0
"""The lab's nvidia-smi beside published captures of the real one (reference 5 and 6), with the values of our cards."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.lab.nvml_fixtures import ModuleDouble, module, nvml_library, vm_process
from tests.lab.test_nvml_library import A40, A100, CARDS, FLEX, MIG_ON, VGPU
from vgpuctl_lab.builds import NVML_SOURCES, build_nvidia_smi
from vgpuctl_lab.card_table import card_table
from vgpuctl_lab.cards import parse_host

__all__ = ["module", "nvml_library"]

A40_BUS, A100_BUS = "00000000:01:00.0", "00000001:C1:00.0"
GIS = (
    "gi 0001:c1:00.0 id=1 profile=9 start=0 size=4 in_use=0 hetero=0\n"
    "gi 0001:c1:00.0 id=13 profile=19 start=6 size=1 in_use=0 hetero=0\n"
)
CIS = (
    "ci 0001:c1:00.0 gi=1 id=0 profile=2 start=0 size=3 in_use=0\n"
    "ci 0001:c1:00.0 gi=13 id=0 profile=0 start=0 size=1 in_use=0\n"
)
A40_DETAILS = {
    "mig_mode/current_mig": "N/A",
    "mig_devices": "None",
    "pci/pci_device_id": "223510DE",
    "ecc_errors/volatile/dram_uncorrectable": "3",
    "gpu_virtualization_mode/virtualization_mode": "Host VGPU",
}
CARDS_WITH_CI = CARDS + "ci 0 slices=1 max=1 gi=19 starts=0 nvml=0 name=1g.5gb\n"

Smi = Callable[..., str]


@pytest.fixture(scope="session")
def nvidia_smi(nvml_library: Path) -> Path:
    return build_nvidia_smi(nvml_library.parent, nvml_library)


@pytest.fixture
def smi(nvidia_smi: Path, module: ModuleDouble) -> Smi:
    """Run nvidia-smi and return its output; exit_code is what it must end with."""
    module.write(cards=CARDS_WITH_CI, state=A40 + FLEX + A100)

    def run(*arguments: str, exit_code: int = 0) -> str:
        environment = os.environ | {"LD_LIBRARY_PATH": str(nvidia_smi.parent)}
        done = subprocess.run(
            [nvidia_smi, *arguments], env=environment, check=False, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_list_of_gpus_and_mig_devices(smi: Smi, module: ModuleDouble) -> None:
    """Reference 6.1: two spaces, the name padded to 11, the index to 2."""
    module.write(state=A40 + FLEX + MIG_ON + GIS + CIS)
    lines = smi("-L").splitlines()
    assert lines[:2] == [
        "GPU 0: NVIDIA A40 (UUID: GPU-11111111-2222-5333-8444-555555555555)",
        "GPU 1: NVIDIA A100-PCIE-40GB (UUID: GPU-99999999-2222-5333-8444-555555555555)",
    ]
    assert re.fullmatch(r"  MIG 3g\.20gb     Device  0: \(UUID: MIG-[0-9a-f-]{36}\)", lines[2])
    assert re.fullmatch(r"  MIG 1g\.5gb      Device  1: \(UUID: MIG-[0-9a-f-]{36}\)", lines[3])


def test_a_partial_compute_instance_is_listed_by_its_own_name(smi: Smi, module: ModuleDouble) -> None:
    module.write(state=A40 + MIG_ON + GIS + "ci 0001:c1:00.0 gi=1 id=0 profile=0 start=0 size=1 in_use=0\n")
    assert "  MIG 1c.3g.20gb  Device  0: (UUID: MIG-" in smi("-L")


def test_the_table_of_gpu_instance_profiles_is_the_captured_one(smi: Smi, module: ModuleDouble) -> None:
    """Reference 5.2, the capture of an A100 with 40 GB; its 3g row is not in it."""
    module.write(state=A40 + FLEX + MIG_ON)
    module.answers = {
        "gi-remaining 0001:c1:00.0 19": "ok count=7 starts=0,1,2,3,4,5,6",
        "gi-remaining 0001:c1:00.0 9": "ok count=2 starts=0,4",
    }
    assert smi("mig", "-i", "1", "-lgip").splitlines()[:8] == [
        "+-----------------------------------------------------------------------------+",
        "| GPU instance profiles:                                                      |",
        "| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |",
        "|                              Free/Total   GiB              CE    JPEG  OFA  |",
        "|=============================================================================|",
        "|   1  MIG 1g.5gb        19     7/7        4.75       No     14     0     0   |",
        "|                                                             1     0     0   |",
        "+-----------------------------------------------------------------------------+",
    ]
    assert "|   1  MIG 3g.20gb        9     2/2        19.50      No     42     2     0   |" in smi("mig", "-lgip")


def test_possible_placements_are_listed(smi: Smi, module: ModuleDouble) -> None:
    module.write(state=A40 + FLEX + MIG_ON)
    assert smi("mig", "-lgipp").splitlines() == [
        "GPU  1 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1",
        "GPU  1 Profile ID  9 Placements: {0,4}:4",
    ]


def test_instances_are_listed_in_the_captured_tables(smi: Smi, module: ModuleDouble) -> None:
    module.write(state=A40 + FLEX + MIG_ON + GIS + CIS)
    assert smi("mig", "-lgi").splitlines() == [
        "+-------------------------------------------------------+",
        "| GPU instances:                                        |",
        "| GPU   Name             Profile  Instance   Placement  |",
        "|                          ID       ID       Start:Size |",
        "|=======================================================|",
        "|   1  MIG 3g.20gb          9        1          0:4     |",
        "+-------------------------------------------------------+",
        "|   1  MIG 1g.5gb          19       13          6:1     |",
        "+-------------------------------------------------------+",
    ]
    assert smi("mig", "-lci", "-gi", "13").splitlines() == [
        "+--------------------------------------------------------------------+",
        "| Compute instances:                                                 |",
        "| GPU     GPU       Name             Profile   Instance   Placement  |",
        "|       Instance                       ID        ID       Start:Size |",
        "|         ID                                                         |",
        "|====================================================================|",
        "|   1     13       MIG 1g.5gb           0         0          0:1     |",
        "+--------------------------------------------------------------------+",
    ]
    module.write(state=A40 + FLEX + MIG_ON)
    assert smi("mig", "-lgi", exit_code=6) == "No MIG devices found\n"


def test_creating_an_instance_says_what_was_made_and_what_was_refused(smi: Smi, module: ModuleDouble) -> None:
    module.write(state=A40 + FLEX + MIG_ON + GIS + CIS)
    module.answers = {
        "gi-create 0001:c1:00.0 19 -": "ok id=13 start=6",
        "ci-create 0001:c1:00.0 13 0 -": "ok id=0 start=0",
        "gi-create 0001:c1:00.0 9 -": "error 23 no room",
        "gi-create 0001:c1:00.0 9 4": "ok id=1 start=0",
    }
    assert smi("mig", "-i", "1", "-cgi", "19", "-C").splitlines() == [
        "Successfully created GPU instance ID 13 on GPU  1 using profile MIG 1g.5gb (ID 19)",
        "Successfully created compute instance ID  0 on GPU  1 GPU instance ID 13 using profile MIG 1g.5gb (ID  0)",
    ]
    assert smi("mig", "-i", "1", "-cgi", "9", exit_code=23).splitlines() == [
        "Unable to create a GPU instance on GPU  1 using profile 9: Insufficient Resources",
        "Failed to create GPU instances: Insufficient Resources",
    ]
    assert "using profile MIG 3g.20gb (ID  9)" in smi("mig", "-cgi", "3g.20gb:4")


def test_destroying_an_instance_says_what_is_in_use(smi: Smi, module: ModuleDouble) -> None:
    module.write(state=A40 + FLEX + MIG_ON + GIS + CIS)
    module.answers = {
        "gi-destroy 0001:c1:00.0 1": "error 19 a compute instance is in it",
        "gi-destroy 0001:c1:00.0 13": "ok",
        "ci-destroy 0001:c1:00.0 1 0": "ok",
    }
    assert smi("mig", "-dgi", "-gi", "1", exit_code=19).splitlines() == [
        "Unable to destroy GPU instance ID  1 from GPU  1: In use by another client",
        "Failed to destroy GPU instances: In use by another client",
    ]
    assert smi("mig", "-dci", "-ci", "0", "-gi", "1") == (
        "Successfully destroyed compute instance ID  0 from GPU  1 GPU instance ID  1\n"
    )
    assert smi("mig", "-dgi", "-gi", "13") == "Successfully destroyed GPU instance ID 13 from GPU  1\n"


def test_mig_mode_is_set_at_once_or_pending(smi: Smi, module: ModuleDouble) -> None:
    """Reference 5.1."""
    module.answers = {
        "mig-mode 0001:c1:00.0 1": "ok current=1 pending=1 activation=0",
        "mig-mode 0001:c1:00.0 0": "error 19 VFs are enabled",
    }
    assert smi("-i", "1", "-mig", "1").splitlines() == [f"Enabled MIG Mode for GPU {A100_BUS}", "All done."]
    refused = smi("-i", A100_BUS, "-mig", "0", exit_code=19)
    assert f"Unable to disable MIG Mode for GPU {A100_BUS}: In use by another client" in refused
    module.answers["mig-mode 0001:c1:00.0 1"] = "ok current=0 pending=1 activation=19"
    assert smi("-i", "1", "-mig", "1").splitlines() == [
        f"Warning: MIG mode is in pending enable state for GPU {A100_BUS}:In use by another client",
        f"Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU {A100_BUS}",
        "All done.",
    ]


def test_a_reset_says_what_came_of_it(smi: Smi, module: ModuleDouble) -> None:
    module.answers = {"reset 0001:c1:00.0": "ok", "reset 0000:01:00.0": "error 3 not supported"}
    assert smi("--gpu-reset", "-i", "1").splitlines() == [f"GPU {A100_BUS} was successfully reset.", "All done."]
    assert smi("--gpu-reset", "-i", "0", exit_code=3) == f"Resetting GPU {A40_BUS} is not supported.\n"


def test_persistence_is_said_for_every_gpu_as_sriov_manage_asks_for_it(smi: Smi) -> None:
    enabled = [f"Enabled persistence mode for GPU {bus}." for bus in (A40_BUS, A100_BUS)]
    assert smi("-pm", "1").splitlines() == [*enabled, "All done."]
    assert "0 or 1 is wanted" in smi("-pm", "2", exit_code=2)


def test_the_rows_of_a_query_have_units_and_what_is_missing_in_brackets(smi: Smi) -> None:
    """Reference 5.1 and 6.2."""
    fields = "--query-gpu=name,pci.bus_id,mig.mode.current,mig.mode.pending"
    assert smi(fields, "--format=csv,noheader").splitlines() == [
        f"NVIDIA A40, {A40_BUS}, [N/A], [N/A]",
        f"NVIDIA A100-PCIE-40GB, {A100_BUS}, Disabled, Disabled",
    ]
    query = ("-i", "0", "--query-gpu=memory.total,power.limit,pci.device_id")
    assert smi(*query, "--format=csv").splitlines() == [
        "memory.total [MiB], power.limit [W], pci.device_id",
        "46068 MiB, 300.00 W, 0x223510DE",
    ]
    assert smi(*query, "--format=csv,noheader,nounits") == "46068, 300.00, 0x223510DE\n"
    assert smi("--query-gpu=foo", "--format=csv", exit_code=2) == 'Field "foo" is not a valid field to query.\n\n'


def test_the_state_of_the_fabric_is_the_partitions(smi: Smi, module: ModuleDouble) -> None:
    cards = [f"card 0000:0{bus}:00.0 driver=nvidia interface=vf-profile unbind_lock=0" for bus in (1, 2)]
    module.write(cards=card_table(parse_host("h=h100-sxm5,h100-sxm5")), state="\n".join(cards) + "\n")
    query = ("--query-gpu=fabric.state,fabric.status", "--format=csv,noheader")
    assert smi(*query).splitlines() == ["Completed, Success"] * 2
    (module.folder / "fabricmanager.cfg").write_text("FABRIC_MODE=2\n")
    (module.folder / "fabric").write_text("manager - stopped=0\nactive 8 modules=2\n")
    assert smi(*query).splitlines() == ["In Progress, N/A", "Completed, Success"]


def test_the_vgpus_of_running_vms_are_described_with_the_captured_keys(smi: Smi, module: ModuleDouble) -> None:
    """Reference 6.1; newer drivers say `GPU` for `Gpu` and have Placement ID and PCI beside the captured keys."""
    uuid = "3418ce09-7aad-4506-9305-618522870574"
    with vm_process("ubuntu-vm-0", uuid) as pid:
        module.write(state=A40 + VGPU.format(pid=pid) + FLEX + A100)
        described = smi("vgpu", "-q")
        table = smi("vgpu")
    pairs = [re.sub(r"\s*: ", ": ", line) for line in described.splitlines()]
    instance = next(line.partition(": ")[2] for line in pairs if line.strip().startswith("vGPU ID"))
    captured = f"""\
GPU {A40_BUS}
    Active vGPUs: 1
    vGPU ID: {instance}
        VM UUID: {uuid}
        VM Name: ubuntu-vm-0
        vGPU Name: NVIDIA A40-8Q
        vGPU Type: 562"""
    assert pairs[:7] == captured.splitlines()
    for line in (
        "        MDEV UUID: 0000:01:00.1",
        "        License Status: N/A (Expiry: N/A)",
        "        GPU Instance ID: N/A",
        "        Accounting Mode: Disabled",
        "        Accounting Buffer Size: 4000",
        "        Frame Rate Limit: 60 FPS",
        "        FB Memory Usage",
        "            Total: 8192 MiB",
        "        Utilization",
        "            Memory: 0 %",
        "        Encoder Stats",
        "            Active Sessions: 0",
        "        FBC Stats",
    ):
        assert line in pairs, line
    assert pairs[-3:] == [f"GPU {A100_BUS}", "    Active vGPUs: 0", ""]
    assert table.splitlines()[2:] == [
        "|---------------------------------+------------------------------+------------+",
        "| GPU  Name                       | Bus-Id                       | GPU-Util   |",
        "|      vGPU ID     Name           | VM ID     VM Name            | vGPU-Util  |",
        "|=================================+==============================+============|",
        f"|   0  NVIDIA A40                 | {A40_BUS}             |   0%       |",
        f"|      {instance}  NVIDIA A40-8Q  | 3418...  ubuntu-vm-0         |      0%    |",
        "+---------------------------------+------------------------------+------------+",
        f"|   1  NVIDIA A100-PCIE-40GB      | {A100_BUS}             |   0%       |",
        "+---------------------------------+------------------------------+------------+",
    ]


def test_types_are_described_with_the_captured_keys(smi: Smi, module: ModuleDouble) -> None:
    module.answers = {
        "placements 0000:01:00.0 558": "ok size=2 supported=0,4 creatable=4",
        "placements 0000:01:00.0 562": "ok size=8 supported=0,16,24,40 creatable=40",
        "creatable 0000:01:00.0": "ok types=562",
    }
    assert smi("vgpu", "-i", "0", "-s") == f"GPU {A40_BUS}\n    NVIDIA A40-2Q\n    NVIDIA A40-8Q\n"
    assert smi("vgpu", "-i", "0", "-c") == f"GPU {A40_BUS}\n    NVIDIA A40-8Q\n"
    pairs = [re.sub(r"\s*: ", ": ", line) for line in smi("vgpu", "-i", "0", "-s", "-v").splitlines()]
    assert pairs[1:18] == [
        "    vGPU Type ID: 0x22e",
        "        Name: NVIDIA A40-2Q",
        "        Class: Quadro",
        "        GPU Instance Profile ID: N/A",
        "        Max Instances: 24",
        "        Max Instances Per VM: 16",
        "        Max Instances Per GI: N/A",
        "        Multi vGPU Exclusive: False",
        "        vGPU Exclusive Type: False",
        "        vGPU Exclusive Size: False",
        "        Device ID: 0x223510de",
        "        Sub System ID: 0x14d810de",
        "        FB Memory: 2048 MiB",
        "        Display Heads: 4",
        "        Maximum X Resolution: 7680",
        "        Maximum Y Resolution: 4320",
        "        Frame Rate Limit: 60 FPS",
    ]
    assert "        Supported Placement IDs: 0 4" in pairs
    module.write(state=A40.replace("hetero=0", "hetero=1") + FLEX + A100)
    pairs = [re.sub(r"\s*: ", ": ", line) for line in smi("vgpu", "-i", "0", "-c", "-v").splitlines()]
    assert pairs[-2:] == ["        Placement Size: 8", "        Creatable Placement IDs: 40"]


def test_mixed_size_mode_is_set_and_refused_while_a_vgpu_exists(smi: Smi, module: ModuleDouble) -> None:
    """Reference 3.3."""
    module.answers = {
        "heterogeneous 0000:01:00.0 1": "ok",
        "heterogeneous 0000:01:00.0 0": "error 19 a vGPU exists",
        "heterogeneous 0001:c1:00.0 1 gi=1": "ok",
    }
    assert smi("vgpu", "-i", "0", "-shm", "1") == f"Enabled vGPU heterogeneous mode for GPU {A40_BUS}\n"
    assert "In use by another client" in smi("vgpu", "-i", "0", "-shm", "0", exit_code=19)
    assert smi("vgpu", "-i", "7", "-shm", "1", exit_code=6) == "No devices were found\n"
    module.write(state=A40 + FLEX + MIG_ON + GIS)
    assert "GPU Instance 1" in smi("vgpu", "-i", "1", "-gi", "1", "-shm", "1")


def test_the_scheduler_is_shown(smi: Smi, module: ModuleDouble) -> None:
    """Reference 3.4."""
    for running, told in (("", "0.0"), (VGPU.format(pid=1), "2.0")):
        module.write(state=A40.replace("sched_policy=1 sched_arr=0", "sched_policy=3 sched_arr=1") + running)
        shown = rf"Scheduler Policy\s+: Fixed Share\n.*ARR Mode\s+: Disabled\n.*Time Slice\s+: {told} ms"
        assert re.search(shown, smi("vgpu", "-ss"))


def test_exit_codes_tell_why_nothing_was_done(smi: Smi, module: ModuleDouble) -> None:
    """Reference 5.4: NVML's number."""
    assert smi("-i", "9", "-L", exit_code=6) == "No devices were found\n"
    assert "not" in smi("mig", "-frobnicate", exit_code=2)
    assert smi("mig", "-lgi", exit_code=6) == "No MIG-enabled devices found.\n"
    module.write(state=A40.replace("fallen=0", "fallen=1") + FLEX + A100)
    assert "Unable to determine the device handle for gpu 0: GPU is lost" in smi("-L")
    (module.folder / "state").unlink()
    assert "couldn't communicate with the NVIDIA driver" in smi("-L", exit_code=9)


def test_the_summary_has_a_row_of_three_lines_for_each_gpu(smi: Smi) -> None:
    lines = smi().splitlines()[1:]
    assert {len(line) for line in lines} == {91}
    assert sum("A40" in line or "A100" in line for line in lines) == 2
    assert sum("MiB /" in line for line in lines) == 2


def test_every_gpu_is_described_as_text_and_as_xml(smi: Smi, module: ModuleDouble) -> None:
    """Reference 6.3: labels, their columns and paths; reference 3.3: the capabilities of mixed sizes."""
    module.write(state=A40 + FLEX + MIG_ON + GIS + CIS)
    text = smi("-q")
    first, second = text.split("\nGPU ")[1:]
    assert first.startswith(f"{A40_BUS}\n    Product Name                          : NVIDIA A40\n")
    assert "    MIG Mode\n        Current                           : N/A\n" in first
    assert "        Host VGPU Mode                    : SR-IOV\n" in first
    assert "        Heterogenous Multi-vGPU           : Supported\n" in first
    assert "        Total                             : 46068 MiB\n" in first
    assert "        Current                           : Enabled\n" in second
    assert "    MIG Device\n        Index                             : 1\n" in second
    log = ElementTree.fromstring(smi("-q", "-x"))
    assert (log.tag, log.findtext("attached_gpus")) == ("nvidia_smi_log", "2")
    a40, a100 = log.findall("gpu")
    assert a40.get("id") == A40_BUS
    assert {path: a40.findtext(path) for path in A40_DETAILS} == A40_DETAILS
    assert a100.findtext("mig_mode/pending_mig") == "Enabled"
    ids = [one.findtext("gpu_instance_id") for one in a100.findall("mig_devices/mig_device")]
    assert ids == ["1", "13"]
    only = smi("-q", "-i", "0")
    assert only.count("\nGPU 0000") == 1


def test_the_help_lists_every_option_that_is_known_and_no_other_is_taken(smi: Smi) -> None:
    """The readers of each option: nvml_library/README.md."""
    listed = set(re.findall(r"(?<![-\w])--?[a-zA-Z][a-z-]*", smi("-h")))
    described = re.findall(r"^\| `([^|]*)` \|", (NVML_SOURCES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == {word for row in described for word in re.findall(r"(?<![-\w])--?[a-zA-Z][a-z-]*", row)}
    for unknown in ("--version", "--list-gpus", "-r"):
        smi(unknown, exit_code=2)


def test_every_field_of_the_details_can_be_queried(smi: Smi) -> None:
    answer = smi("--query-gpu=index,uuid,serial,memory.used,ecc.mode.pending", "--format=csv,noheader,nounits")
    assert answer.splitlines()[0].startswith("0, GPU-11111111-2222-5333-8444-555555555555, ")
