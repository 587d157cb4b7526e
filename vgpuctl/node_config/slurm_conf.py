# SPDX-License-Identifier: Apache-2.0
"""The lines of slurm.conf and gres.conf for pools whose nodes Slurm switches on and off.

Sources: slurm.conf(5) and gres.conf(5) of 22.05, and Slurm's power_save.html. Pure text: nothing is read here.
"""

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.catalog.lookup import boards_named, boards_with_type, type_by_name
from vgpuctl.model.gpu_positions import placed_gpus
from vgpuctl.model.gpu_request import GpuRequest
from vgpuctl.model.hostlist import compress
from vgpuctl.model.node_pool import NodePool
from vgpuctl.sharing.kinds import asks_for_card

PROGRAM_NAMES = {
    "ResumeProgram": "vgpuctl-slurm-resume",
    "SuspendProgram": "vgpuctl-slurm-suspend",
    "ResumeFailProgram": "vgpuctl-slurm-fail",
}
CREATION_S = 300
"""Time for a VM to be made and to start; `join_timeout` counts from there."""
_GUEST_RESERVE_MIB = 256
"""What a Linux guest keeps for itself, at least; of large guests 5 %. slurmd registers what is left."""
_DEVICES = {"nvidia": ("/dev/nvidia", 0), "amd": ("/dev/dri/renderD", 128), "intel": ("/dev/dri/renderD", 128)}
"""The files of GPUs in a guest, by vendor: amdgpu, i915 and xe have DRM's render nodes, which begin at 128."""
_TYPE = re.compile(r"[^a-z0-9._-]+")


@dataclass(frozen=True)
class SlurmSettings:
    """The choices of an operator. programs: the folder of the programs that slurmctld runs. Times are in seconds."""

    programs: str = "/usr/local/sbin"
    partition: str = "vgpu"
    suspend_s: int = 600
    suspend_timeout_s: int = 120


def slurm_conf(tenant: str, cluster: str, pools: Sequence[NodePool], settings: SlurmSettings) -> str:
    """The lines for slurm.conf. pools: of one cluster, at least one."""
    nodes = ",".join(_nodes(pool) for pool in pools)
    kept = [f"{_nodes(pool)}:{pool.minimum}" for pool in pools if pool.minimum]
    lines = [
        f"# The nodes of cluster {cluster} of tenant {tenant}, by `vgpuctl export slurm {tenant} {cluster}`.",
        "# A parameter that slurm.conf already has is to be merged by hand: the last one counts alone.",
        "SelectType=select/cons_tres",
        "GresTypes=gpu",
        "SlurmctldParameters=idle_on_node_suspend,cloud_reg_addrs,enable_configless",
        "CommunicationParameters=NoAddrCache",
        "PrivateData=cloud",
        "TreeWidth=65533",
        *(f"{key}={settings.programs.rstrip('/')}/{name}" for key, name in PROGRAM_NAMES.items()),
        f"ResumeTimeout={max(resume_timeout_s(pool) for pool in pools)}",
        f"SuspendTimeout={settings.suspend_timeout_s}",
        f"SuspendTime={settings.suspend_s}",
        "ResumeRate=0",
        "SuspendRate=0",
        *([f"SuspendExcNodes={','.join(kept)}"] if kept else []),
        *map(_node_line, pools),
        f"PartitionName={settings.partition} Nodes={nodes} State=UP",
    ]
    return "\n".join(lines) + "\n"


def gres_conf(pools: Sequence[NodePool]) -> str:
    """The lines for gres.conf. Slurm finds no GPU by itself (AutoDetect) on nodes of the state CLOUD.

    slurmd ends when a file is not there, so GPUs whose driver in the guest is not known are counted alone.
    """
    lines = []
    for pool in pools:
        taken = Counter[str]()
        for kind, files in _files(pool).items():
            name = f"NodeName={_nodes(pool)} Name=gpu{f' Type={kind}' if kind else ''}"
            for (folder, number), count in Counter(files).items():
                if not folder:
                    lines.append(f"{name} Count={count}")
                    continue
                first = number + taken[folder]
                numbers = str(first) if count == 1 else f"[{first}-{first + count - 1}]"
                lines.append(f"{name} File={folder}{numbers}")
                taken[folder] += count
    return "".join(f"{line}\n" for line in lines)


def _files(pool: NodePool) -> dict[str, list[tuple[str, int]]]:
    """For each type of Gres the device files of its GPUs: the name before the number, and the first number."""
    found: dict[str, list[tuple[str, int]]] = {}
    for one in placed_gpus(pool.request.gpus):
        found.setdefault(_type_of(one), []).append(_DEVICES.get(_vendor_of(one) or "", ("", 0)))
    return found


def _vendor_of(gpu: GpuRequest) -> str | None:
    """The vendor of the GPU's driver in the guest; None where the request leaves it open."""
    if gpu.profile is not None:
        boards = boards_with_type(gpu.profile)
    elif gpu.board is not None:
        boards = boards_named(gpu.board)
    else:
        return None if gpu.sharing is not None else "nvidia"  # a vGPU type by its size
    vendors = {one.vendor for one in boards}
    return vendors.pop() if len(vendors) == 1 else None


def program(tenant: str, cluster: str, vgpuctl: Sequence[str]) -> str:
    """The script that slurmctld runs, under three names. vgpuctl: the program by its absolute path, and arguments.

    slurmctld gives it no PATH and no HOME, and throws away what it prints (reference clusters, section 6.1).
    """
    rest = ["--tenant", tenant, "--cluster", cluster]
    return "\n".join(
        [
            "#!/bin/sh",
            f"# Runs `vgpuctl slurm-resume`, `slurm-suspend` or `slurm-fail` for cluster {cluster} of tenant {tenant},",
            f"# by its own name. Install it as {', '.join(PROGRAM_NAMES.values())}.",
            "case $0 in",
            "*-resume) command=slurm-resume ;;",
            "*-suspend) command=slurm-suspend ;;",
            "*-fail) command=slurm-fail ;;",
            "*) exit 64 ;;",
            "esac",
            "# One a line: VGPUCTL_DATABASE_URL=@/etc/vgpuctl/database-url, VGPUCTL_KEY_FILE=/etc/vgpuctl/key.",
            "if [ -r /etc/vgpuctl/slurm.env ]; then set -a; . /etc/vgpuctl/slurm.env; set +a; fi",
            "# A log that cannot be written must not keep a node from coming.",
            "log=${VGPUCTL_SLURM_LOG:-/var/log/vgpuctl-slurm.log}",
            "umask 077",
            '( : >>"$log" ) 2>/dev/null || log=/dev/null',
            f'exec {shlex.join(vgpuctl)} --log-file "$log" "$command" {shlex.join(rest)} -- "$1"',
            "",
        ]
    )


def resume_timeout_s(pool: NodePool) -> int:
    """How long Slurm waits for a node: until vgpuctl itself gives it up."""
    return int(pool.join_timeout_s) + CREATION_S


def _node_line(pool: NodePool) -> str:
    request = pool.request
    fields = [
        f"NodeName={_nodes(pool)}",
        f"CPUs={request.vcpus}",
        f"RealMemory={_real_memory_mib(request.memory_mib)}",
    ]
    gres = _gres(pool)
    if gres:
        fields.append("Gres=" + ",".join(f"gpu:{f'{kind}:' if kind else ''}{count}" for kind, count in gres))
    features = list(dict.fromkeys([kind for kind, _ in gres if kind] + [_feature(label) for label in pool.labels]))
    if features:
        fields.append(f"Feature={','.join(features)}")
    return " ".join([*fields, f"Weight={_weight(pool)}", "State=CLOUD"])


def _nodes(pool: NodePool) -> str:
    return compress(pool.node_names)


def _real_memory_mib(memory_mib: int) -> int:
    return max(memory_mib // 2, memory_mib - max(_GUEST_RESERVE_MIB, memory_mib // 20))


def _gres(pool: NodePool) -> list[tuple[str, int]]:
    """The types of a node's GPUs with their counts, in the order of the devices in the guest; equal ones together."""
    counted: dict[str, int] = {}
    for one in placed_gpus(pool.request.gpus):
        kind = _type_of(one)
        counted[kind] = counted.get(kind, 0) + 1
    return list(counted.items())


def _type_of(gpu: GpuRequest) -> str:
    """A type for Gres, a feature too: `a40-8q`, `h100`; "" where the request leaves open what it gets."""
    name = gpu.profile or gpu.board or (str(gpu.sharing) if gpu.sharing is not None else "")
    return _TYPE.sub("_", name.lower()).strip("_")


def _feature(label: tuple[str, str]) -> str:
    """A label as a feature: `KEY=VALUE`, for `--constraint KEY=VALUE`; `KEY` where it has no value."""
    key, value = label
    return f"{key}={value}" if value else key


def _weight(pool: NodePool) -> int:
    """Slurm takes the node with the lowest weight: the one with the least GPU memory. In GiB, plus 1."""
    return 1 + sum(map(_memory_mib, placed_gpus(pool.request.gpus))) // 1024


def _memory_mib(gpu: GpuRequest) -> int:
    if gpu.profile is not None:
        types = [type_by_name(board, gpu.profile) for board in boards_with_type(gpu.profile)]
        return next((one.fb_mib for one in types if one is not None), 0)
    if gpu.board is not None and asks_for_card(gpu):
        return max((one.memory_mib for one in boards_named(gpu.board)), default=0)
    return gpu.exact_memory_mib or gpu.minimum_memory_mib or 0
