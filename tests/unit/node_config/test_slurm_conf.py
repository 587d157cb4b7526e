# SPDX-License-Identifier: Apache-2.0
"""The lines of slurm.conf and gres.conf follow from the pools; tests/e2e/slurm gives them to a real slurmctld."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.node_pool import NodePool, NodeRole
from vgpuctl.model.vm import VmRequest
from vgpuctl.node_config.slurm_conf import SlurmSettings, gres_conf, program, resume_timeout_s, slurm_conf


def pool(name: str, *gpus: str, maximum: int = 4, **given: object) -> NodePool:
    request = VmRequest(name=name, tenant="acme", vcpus=8, memory_mib=32768, gpus=tuple(map(parse_gpu_request, gpus)))
    made = NodePool(name, "acme", NodeRole.SLURM, request, maximum)
    return replace(made, **given)  # type: ignore[arg-type]  # fields of NodePool


def node_line(one: NodePool) -> str:
    text = slurm_conf("acme", "main", [one], SlurmSettings())
    (line,) = [line for line in text.splitlines() if line.startswith("NodeName=")]
    return line


def test_two_pools_make_two_lines_of_nodes_and_one_partition() -> None:
    gpu = pool("gpu", "A40-8Q", maximum=64, labels=(("team", "vision"), ("ssd", "")), join_timeout_s=900.0)
    big = pool("big", "2*H100XM-80C", maximum=2, minimum=1, join_timeout_s=1800.0)
    settings = SlurmSettings("/opt/slurm/sbin/", "gpus", 300, 60)
    assert slurm_conf("acme", "main", [gpu, big], settings).splitlines()[2:] == [
        "SelectType=select/cons_tres",
        "GresTypes=gpu",
        "SlurmctldParameters=idle_on_node_suspend,cloud_reg_addrs,enable_configless",
        "CommunicationParameters=NoAddrCache",
        "PrivateData=cloud",
        "TreeWidth=65533",
        "ResumeProgram=/opt/slurm/sbin/vgpuctl-slurm-resume",
        "SuspendProgram=/opt/slurm/sbin/vgpuctl-slurm-suspend",
        "ResumeFailProgram=/opt/slurm/sbin/vgpuctl-slurm-fail",
        "ResumeTimeout=2100",
        "SuspendTimeout=60",
        "SuspendTime=300",
        "ResumeRate=0",
        "SuspendRate=0",
        "SuspendExcNodes=big-[001-002]:1",
        "NodeName=gpu-[001-064] CPUs=8 RealMemory=31130 Gres=gpu:a40-8q:1 Feature=a40-8q,team=vision,ssd Weight=9 "
        "State=CLOUD",
        "NodeName=big-[001-002] CPUs=8 RealMemory=31130 Gres=gpu:h100xm-80c:2 Feature=h100xm-80c Weight=161 "
        "State=CLOUD",
        "PartitionName=gpus Nodes=gpu-[001-064],big-[001-002] State=UP",
    ]
    assert gres_conf([gpu, big]) == (
        "NodeName=gpu-[001-064] Name=gpu Type=a40-8q File=/dev/nvidia0\n"
        "NodeName=big-[001-002] Name=gpu Type=h100xm-80c File=/dev/nvidia[0-1]\n"
    )
    assert resume_timeout_s(big) == 2100


@pytest.mark.parametrize(
    ("gpus", "gres", "feature", "weight"),
    [
        ((), None, None, 1),
        (("passthrough:H100 PCIe",), "gpu:h100_pcie:1", "h100_pcie", 81),
        (("passthrough",), "gpu:passthrough:1", "passthrough", 1),
        (("memory>=16GiB,series=Q",), "gpu:1", None, 17),
        (("A40-8Q", "A40-4Q", "A40-8Q"), "gpu:a40-8q:2,gpu:a40-4q:1", "a40-8q,a40-4q", 21),
        (("GRID-UNKNOWN",), "gpu:grid-unknown:1", "grid-unknown", 1),
    ],
)
def test_gpus_are_gres_features_and_a_weight(
    gpus: tuple[str, ...], gres: str | None, feature: str | None, weight: int
) -> None:
    words = dict(word.split("=", 1) for word in node_line(pool("gpu", *gpus)).split())
    assert (words.get("Gres"), words.get("Feature"), words["Weight"]) == (gres, feature, str(weight))


def test_one_node_has_no_brackets_and_a_small_one_keeps_half_of_its_memory() -> None:
    one = pool("gpu", maximum=1)
    small = replace(one, request=replace(one.request, memory_mib=300))
    assert node_line(small) == "NodeName=gpu-001 CPUs=8 RealMemory=150 Weight=1 State=CLOUD"
    assert gres_conf([small]) == ""


@pytest.mark.parametrize(
    ("gpus", "lines"),
    [
        (("vf:flex-170",), ["Type=flex-170 File=/dev/dri/renderD128"]),
        (("2*vf:flex-170",), ["Type=flex-170 File=/dev/dri/renderD[128-129]"]),
        (
            ("passthrough:mi210", "vf:flex-170"),
            ["Type=mi210 File=/dev/dri/renderD128", "Type=flex-170 File=/dev/dri/renderD129"],
        ),
        (
            ("A40-8Q", "vf:flex-170", "A40-8Q"),
            ["Type=a40-8q File=/dev/nvidia[0-1]", "Type=flex-170 File=/dev/dri/renderD128"],
        ),
        (("passthrough:A40",), ["Type=a40 File=/dev/nvidia0"]),
        (("memory>=16GiB,series=Q",), ["File=/dev/nvidia0"]),
        (("passthrough",), ["Type=passthrough Count=1"]),
        (("2*vf",), ["Type=vf Count=2"]),
        (("GRID-UNKNOWN",), ["Type=grid-unknown Count=1"]),
    ],
)
def test_a_file_is_that_of_the_driver_which_the_guest_has(gpus: tuple[str, ...], lines: list[str]) -> None:
    found = gres_conf([pool("gpu", *gpus, maximum=1)]).splitlines()
    assert found == [f"NodeName=gpu-001 Name=gpu {line}" for line in lines]


def test_devices_of_several_types_are_counted_on() -> None:
    assert gres_conf([pool("gpu", "2*A40-8Q", "A40-4Q")]) == (
        "NodeName=gpu-[001-004] Name=gpu Type=a40-8q File=/dev/nvidia[0-1]\n"
        "NodeName=gpu-[001-004] Name=gpu Type=a40-4q File=/dev/nvidia2\n"
    )


@pytest.mark.parametrize("what", ["resume", "suspend", "fail"])
def test_the_program_runs_the_command_of_its_name_without_path_and_home(tmp_path: Path, what: str) -> None:
    log = tmp_path / "log"
    assert run_program(tmp_path, what, log) == [
        "-x", "--log-file", str(log), f"slurm-{what}", "--tenant", "acme", "--cluster", "main", "--", "gpu-[001-002]"
    ]  # fmt: skip
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_log_that_cannot_be_written_keeps_no_node_waiting(tmp_path: Path) -> None:
    assert run_program(tmp_path, "resume", tmp_path / "missing" / "log")[2] == "/dev/null"


def run_program(folder: Path, what: str, log: Path) -> list[str]:
    """The arguments that the program gives to vgpuctl."""
    vgpuctl = folder / "it's vgpuctl"
    vgpuctl.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    script = folder / f"vgpuctl-slurm-{what}"
    script.write_text(program("acme", "main", [str(vgpuctl), "-x"]))
    for path in (vgpuctl, script):
        path.chmod(0o755)
    environment = {"VGPUCTL_SLURM_LOG": str(log)}
    done = subprocess.run(
        [script, "gpu-[001-002]"], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()
