# SPDX-License-Identifier: Apache-2.0
"""A tenant's Slurm cluster over simulated hosts: slurmctld calls our commands, and slurmd stands in for the guests.

The commands run as slurmctld starts them, by the script that export slurm writes. A node's slurmd is started when its
VM runs and ended with it, since a simulated VM has no guest.
"""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME
from tests.slurm_fixture import SlurmCluster, short_folder, wait_until

ONCE = ("controller", "--once", "--shutdown-timeout", "0")
_LIMIT_S = 200.0
_PAUSE_S = 0.5
"""Between rounds; slurmctld looks at its nodes once a second."""

_PROLOG = """\
#!/bin/sh
# Ends when the nodes of the job are up, or when the job does not wait for them any more.
[ "$SLURM_CONF" ] || exec env PATH=/usr/bin:/bin SLURM_CONF={folder}/slurm.conf "$0"
while [ "$(squeue --noheader --jobs=$SLURM_JOB_ID --format=%T)" = CONFIGURING ]; do
    sinfo --noheader --nodes=$SLURM_JOB_NODELIST --Format=StateComplete:200 | grep -Eiq 'power|not_resp' || exit 0
    sleep 0.2
done
"""


class SlurmLab:
    """The cluster, its operator and the guests."""

    def __init__(self, operator: Operator, cluster: SlurmCluster) -> None:
        self.operator = operator
        self.cluster = cluster
        self._guests: dict[str, str] = {}
        self._before = max((one["id"] for one in operator.json("list-events")), default=0)

    def vms(self) -> dict[str, Any]:
        """The VMs of acme, by name."""
        return {one["vm"]["request"]["name"]: one["vm"] for one in self.operator.json("list-vms") if one["vm"]}

    def nodes(self) -> dict[str, str]:
        """The state of each node of all pools."""
        pools = self.operator.json("list-node-pools")
        names = [one["pool"]["name"] for one in pools]
        return {
            one["node"]["name"]: one["state"]
            for pool in (self.operator.json("list-node-pools", *names, *ACME) if names else [])
            for one in pool["nodes"]
        }

    def round(self) -> None:
        """One round of the controller, then of the guests: those of new VMs boot, those of ended VMs are gone."""
        self.operator.does(*ONCE)
        self.follow_vms()

    def follow_vms(self) -> None:
        """Start slurmd for each VM that runs now, and end it for each that does not."""
        there = {name: vm["uuid"] for name, vm in self.vms().items() if vm["state"] == "running"}
        for name, uuid in list(self._guests.items()):
            if there.get(name) != uuid:
                self.cluster.power_off(name)
                del self._guests[name]
        for name, uuid in there.items():
            if name not in self._guests and name in self.cluster.names:
                self.cluster.boot(name)
                self._guests[name] = uuid

    def until(self, is_so: Callable[[], object], what: str, *, boots: bool = True, limit_s: float = _LIMIT_S) -> None:
        """Let the controller and the guests go on until a condition holds. boots: whether guests come up."""
        give_up = time.monotonic() + limit_s
        while not is_so():
            assert time.monotonic() < give_up, f"{what}\n{self.nodes()}\n{self.log()}\n{self.cluster.log()}"
            if boots:
                self.round()
            else:
                self.operator.does(*ONCE)
            time.sleep(_PAUSE_S)

    def wait_for_resume(self) -> None:
        """Wait until slurm-resume has wanted a node."""
        wait_until(self.nodes, f"slurm-resume was not called: {self.log()}\n{self.cluster.log()}")

    def events(self, subject: str, kind: str) -> list[dict[str, Any]]:
        """The events of one kind of a node, since this cluster began."""
        found: list[dict[str, Any]] = self.operator.json("list-events", subject)
        return [one for one in found if one["kind"] == kind and one["id"] > self._before]

    def log(self) -> str:
        """The log of the programs that slurmctld ran."""
        path = self.cluster.folder / "programs.log"
        return path.read_text() if path.exists() else ""


@contextmanager
def slurm_lab(
    operator: Operator,
    *,
    suspend_s: int = 1,
    resume_timeout_s: int = 120,
    begins_batch_at_once: bool = True,
    edit: Callable[[str], str] = lambda text: text,
) -> Iterator[SlurmLab]:
    """Start slurmctld with what export slurm writes for the pools of acme, and give the controller its slurm.conf.

    slurmctld looks at nodes every second instead of every 10 s, and waits shorter. edit: further changes of the lines.
    begins_batch_at_once: slurmctld looks only every 30 s, a constant of it, whether the nodes of a batch job are up;
    but when a job's prolog ends it looks at once. So a prolog waits for the nodes, with two queries a job in 0.2 s.
    """
    found = operator.json("export", "slurm", "acme", "--suspend-time", str(suspend_s), "--suspend-timeout", "1")
    with short_folder() as folder:
        text = found["slurm_conf"].replace("idle_on_node_suspend", "idle_on_node_suspend,power_save_interval=1")
        text = re.sub(r"ResumeTimeout=\d+", f"ResumeTimeout={resume_timeout_s}", text)
        text = re.sub(r"(Program)=.*/vgpuctl-slurm-", rf"\1={folder}/", text)
        if begins_batch_at_once:
            text += f"PrologSlurmctld={folder}/prolog\n"
        power, lines = _split(edit(text.replace("PartitionName=vgpu", "PartitionName=vgpu Default=YES")))
        names = [one for line in lines.splitlines() if (one := line.partition(" ")[0]).startswith("NodeName=")]
        nodes = [name for one in names for name in _expand(one.partition("=")[2])]
        # The guests' device files: a simulated VM has none.
        gres = re.sub(r"File=/dev/nvidia\S+", "File=/dev/null", found["gres_conf"])
        cluster = SlurmCluster(folder, nodes, lines, gres=gres, power=power)
        kept = folder / "kept"
        made = replace(operator, variables={**operator.variables, "VGPUCTL_SLURM_FOLDER": str(kept)})
        cluster.set_program("prolog", _PROLOG.format(folder=folder))
        for what in ("resume", "suspend", "fail"):
            cluster.set_program(what, _program(found["program"], made, folder, what))
        try:
            cluster.start()
            (kept / "acme" / "main").mkdir(parents=True)
            for name in ("slurm.conf", "gres.conf"):
                shutil.copy(folder / name, kept / "acme" / "main" / name)
            yield SlurmLab(made, cluster)
        finally:
            cluster.stop()


def _program(text: str, operator: Operator, folder: Path, what: str) -> str:
    """The script of export slurm, with this test's settings, and called by the name that its slurm.conf gives it."""
    settings = folder / "slurm.env"
    environment = {**operator.environment, "VGPUCTL_SLURM_LOG": str(folder / "programs.log")}
    wanted = ("VGPUCTL_DATABASE_URL", "VGPUCTL_KEY_FILE", "VGPUCTL_SLURM_LOG")
    settings.write_text("".join(f"{key}='{environment[key]}'\n" for key in wanted if key in environment))
    text = text.replace("/etc/vgpuctl/slurm.env", str(settings))
    text = re.sub(r"(\*)-(resume|suspend|fail)\)", r"\1/\2)", text)
    text = re.sub(r"exec .* --log-file", f"exec {sys.executable} -I -m vgpuctl --log-file", text)
    return re.sub(r"-I -m vgpuctl", "-m vgpuctl", text).replace("exec ", f"cd {Path.cwd()}; exec ", 1)


def _expand(expression: str) -> Sequence[str]:
    from vgpuctl.model.hostlist import expand

    return expand(expression)


def _split(text: str) -> tuple[str, str]:
    """The parameters, and the lines of nodes and partitions. Lines of the fixture's own file are left out."""
    lines = [
        line for line in text.splitlines() if not line.startswith(("#", "SelectType=", "CommunicationParameters="))
    ]
    of_nodes = [line for line in lines if line.startswith(("NodeName=", "PartitionName="))]
    return "\n".join(line for line in lines if line not in of_nodes) + "\n", "\n".join(of_nodes)


def run_without_environment(operator: Operator, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as slurmctld does: with nothing but the store's address in its environment."""
    return subprocess.run(
        [sys.executable, "-m", "vgpuctl", *arguments],
        env={"VGPUCTL_DATABASE_URL": operator.database}, capture_output=True, text=True, check=False, timeout=120,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
