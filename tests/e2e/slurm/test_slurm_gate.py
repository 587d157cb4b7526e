# SPDX-License-Identifier: Apache-2.0
"""The gate of docs/slurm.md: over SSH a tenant's slurmctld runs the three programs for its cluster, nothing else."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import SIZE

PAGE = Path(__file__).parents[3] / "docs" / "slurm.md"


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator with a pool each of two tenants, and `vgpuctl` and the gate on PATH."""
    home = tmp_path_factory.mktemp("operator")
    made = Operator(home, home / "inventory.yml", f"sqlite:///{home}/store.db")
    for tenant in ("acme", "globex"):
        made.does("create-tenant", tenant)
        made.does("create-node-pool", "gpu", "--tenant", tenant, *SIZE, "--role", "slurm", "--max", "8")
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (home / "gate").write_text(script)
    (home / "vgpuctl").write_text(f'#!/bin/sh\nexec {sys.executable} -m vgpuctl "$@"\n')
    for name in ("gate", "vgpuctl"):
        (home / name).chmod(0o755)
    yield made


def send(operator: Operator, command: str, content: bytes = b"") -> int:
    """Run the gate as sshd does, with a command that the other side chose."""
    environment = {
        **operator.environment,
        "PATH": f"{operator.home}:{os.environ['PATH']}",
        "SSH_ORIGINAL_COMMAND": command,
    }
    return subprocess.run(
        [operator.home / "gate", "acme", "main"], env=environment, input=content, check=False, timeout=120,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ).returncode  # fmt: skip


def nodes(operator: Operator, tenant: str = "acme") -> dict[str, list[str]]:
    (found,) = operator.json("list-node-pools", "gpu", "--tenant", tenant)
    return {one["node"]["name"]: one["node"]["jobs"] for one in found["nodes"]}


def test_the_programs_run_for_the_cluster_of_the_key(operator: Operator) -> None:
    document = b'{"jobs":[{"job_id":4,"nodes":"gpu-[001-003]"}]}'
    assert send(operator, "slurm-resume gpu-[001-003]", document) == 0
    assert nodes(operator) == {"gpu-001": ["4"], "gpu-002": ["4"], "gpu-003": ["4"]}
    assert send(operator, "slurm-suspend gpu-[001-002]") == 0
    assert send(operator, "slurm-fail gpu-003") == 0
    assert nodes(operator) == {}


@pytest.mark.parametrize(
    "command",
    [
        "",
        "slurm-resume",
        "slurm-resume gpu-001 --tenant globex",
        "slurm-resume --tenant=globex",
        "slurm-resume --database=sqlite:////tmp/other.db",
        "slurm-resume gpu-001;id",
        "slurm-resume $(id)",
        "slurm-resume *",
        "delete-tenant acme",
        "list-vms --json",
        "--help slurm-resume",
        "sh -c",
    ],
)
def test_nothing_else_is_run(operator: Operator, command: str) -> None:
    assert send(operator, command) != 0
    assert nodes(operator) == {} == nodes(operator, "globex")


def test_the_tenant_is_the_keys(operator: Operator) -> None:
    assert send(operator, "slurm-resume gpu-001") == 0
    assert (list(nodes(operator)), nodes(operator, "globex")) == (["gpu-001"], {})
    assert send(operator, "slurm-suspend gpu-001") == 0
