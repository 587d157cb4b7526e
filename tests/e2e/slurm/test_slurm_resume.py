# SPDX-License-Identifier: Apache-2.0
"""slurm-resume wants the nodes that slurmctld names, and only writes the store: no host is needed for that."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.operator import Operator
from tests.e2e.slurm.slurm_lab import run_without_environment
from tests.e2e.small_vms import ACME, SIZE


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    """An operator without hosts, with two pools of a cluster and one of another."""
    made = Operator(tmp_path, tmp_path / "inventory.yml", f"sqlite:///{tmp_path}/store.db")
    made.does("create-tenant", "acme")
    slurm = (*ACME, *SIZE, "--role", "slurm")
    made.does("create-node-pool", "gpu", *slurm, "--gpu", "A40-8Q", "--max", "8")
    made.does("create-node-pool", "big", *slurm, "--gpu", "A40-48Q", "--max", "2")
    made.does("create-node-pool", "other", *slurm, "--gpu", "A40-8Q", "--max", "2", "--cluster", "west")
    made.does("create-node-pool", "kube", *ACME, *SIZE, "--role", "k3s", "--gpu", "A40-8Q", "--max", "2")
    yield made


def nodes(operator: Operator) -> dict[str, list[str]]:
    """The jobs of each wanted node."""
    found: list[Any] = operator.json("list-node-pools", "gpu", "big", "other", "kube", *ACME)
    return {one["node"]["name"]: one["node"]["jobs"] for pool in found for one in pool["nodes"]}


def document(folder: Path, *jobs: tuple[int, str]) -> str:
    path = folder / "resume.json"
    path.write_text(json.dumps({"jobs": [{"job_id": job, "nodes": names} for job, names in jobs]}))
    return str(path)


def test_nodes_are_wanted_with_their_jobs_and_a_second_call_changes_nothing(operator: Operator, tmp_path: Path) -> None:
    file = document(tmp_path, (7, "gpu-[001-002]"), (8, "gpu-002,big-001"), (9, "gpu-005"))
    resume = ("slurm-resume", "gpu-[001-002],big-001", *ACME, "--resume-file", file)
    assert operator.json(*resume) == [
        {"node": name, "outcome": "wanted", "error": None} for name in ("gpu-001", "gpu-002", "big-001")
    ]
    assert nodes(operator) == {"big-001": ["8"], "gpu-001": ["7"], "gpu-002": ["7", "8"]}
    assert {one["outcome"] for one in operator.json(*resume)} == {"already wanted"}
    events = [one for one in operator.json("list-events") if one["kind"] == "node-wanted"]
    assert {one["subject"]: one["after"]["jobs"] for one in events} == {
        "acme/gpu-001": ["7"],
        "acme/gpu-002": ["7", "8"],
        "acme/big-001": ["8"],
    }
    assert len(events) == 3


def test_a_node_above_a_lowered_maximum_is_suspended_and_no_other_is_resumed_there(operator: Operator) -> None:
    operator.does("slurm-resume", "gpu-[006-007]", *ACME)
    operator.does("set-node-pool", "gpu", *ACME, "--max", "2")
    assert "gpu-006, gpu-007 of pool gpu are above its maximum" in operator.does("export", "slurm", "acme", "main").err
    resumed = operator.run("slurm-resume", "gpu-[006,008]", *ACME)
    assert "gpu-006: already wanted" in resumed.err
    assert "gpu-008: refused: gpu-008: no node of pool acme/gpu" in resumed.err
    assert [one["outcome"] for one in operator.json("slurm-suspend", "gpu-[006-008]", *ACME)] == [
        "let go",
        "let go",
        "nothing to do",
    ]
    assert nodes(operator) == {}


def test_another_job_is_added_to_a_wanted_node(operator: Operator, tmp_path: Path) -> None:
    for job in (1, 2):
        operator.does("slurm-resume", "gpu-001", *ACME, "--resume-file", document(tmp_path, (job, "gpu-001")))
    assert nodes(operator) == {"gpu-001": ["1", "2"]}


def test_names_that_are_not_ours_are_refused_by_name_and_the_others_go_on(operator: Operator) -> None:
    done = operator.run("slurm-resume", "gpu-[008-009],GPU_1,other-001,kube-001,gpu-1,gpu-0001,x", *ACME)
    assert done.code == 10
    assert nodes(operator) == {"gpu-008": []}
    assert "gpu-009: no node of pool acme/gpu" in done.err
    for name in ("GPU_1", "other-001", "kube-001", "gpu-1", "gpu-0001", "x"):
        assert f"{name} is no node of a pool of cluster main" in done.err
    assert "its nodes are gpu-001 to gpu-008" in done.err
    refused = operator.is_refused("slurm-resume", "GPU_1", *ACME)
    assert (refused["reference"], refused["message"]) == ("usage", "GPU_1 is no node of a pool of cluster main")


def test_a_node_whose_name_a_vm_has_is_refused_and_the_others_go_on(operator: Operator) -> None:
    operator.does("slurm-resume", "gpu-001", *ACME)
    assert nodes(operator) == {"gpu-001": []}
    found = operator.run("slurm-resume", "gpu-[001-003]", *ACME, "--json")
    assert [one["outcome"] for one in json.loads(found.out)] == ["already wanted", "wanted", "wanted"]


@pytest.mark.parametrize("text", ["gpu-[001", "gpu-[1-99999]", "a b", "gpu-[3-1]", "gpu-001\x1b[2J"])
def test_what_is_no_hostlist_wants_nothing(operator: Operator, text: str) -> None:
    refused = operator.is_refused("slurm-resume", text, *ACME)
    assert "is no hostlist" in refused["message"] and "\x1b" not in refused["message"]
    assert nodes(operator) == {}


@pytest.mark.parametrize("content", [b"", b"\xff", b'{"jobs":' + b"[" * 5000, b'{"jobs":[{"job_id":"\x1b[2J"}]}'])
def test_a_document_that_cannot_be_read_costs_the_jobs_alone(
    operator: Operator, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "resume.json").write_bytes(content)
    done = operator.does("slurm-resume", "gpu-001", *ACME, "--resume-file", str(tmp_path / "resume.json"))
    assert "warning: the jobs of the nodes are not known" in done.err and "\x1b" not in done.err
    assert nodes(operator) == {"gpu-001": []}


def test_a_missing_document_costs_the_jobs_alone(operator: Operator) -> None:
    done = operator.does("slurm-resume", "gpu-001", *ACME, "--resume-file", "/proc/1/fd/99999")
    assert "warning: the jobs of the nodes are not known" in done.err
    assert nodes(operator) == {"gpu-001": []}


def test_it_runs_without_path_home_and_user(operator: Operator) -> None:
    done = run_without_environment(operator, "slurm-resume", "gpu-001", *ACME)
    assert (done.returncode, done.stderr) == (0, "gpu-001: wanted\n")
    assert nodes(operator) == {"gpu-001": []}


def test_it_runs_with_closed_standard_streams(operator: Operator, tmp_path: Path) -> None:
    """As slurmctld starts it."""
    line = 'exec "$0" "$@" <&- >&- 2>&-'
    program = [sys.executable, "-m", "vgpuctl", "--log-file", str(tmp_path / "log")]
    for expression, code in (("gpu-001", 0), ("gpu-002,x", 10)):
        done = subprocess.run(
            ["sh", "-c", line, *program, "slurm-resume", expression, *ACME],
            env=operator.environment, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == code, (tmp_path / "log").read_text()
    assert nodes(operator) == {"gpu-001": [], "gpu-002": []}
    log = (tmp_path / "log").read_text()
    assert "gpu-001: wanted" in log and "level=error" not in log
    assert "x is no node of a pool of cluster main" in log


def test_the_document_may_come_by_a_pipe(operator: Operator, tmp_path: Path) -> None:
    """As over SSH, where the file of slurmctld's machine is not ours."""
    content = Path(document(tmp_path, (5, "gpu-001"))).read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "vgpuctl", "slurm-resume", "gpu-001", *ACME, "--resume-file", "-"],
        env=operator.environment, input=content, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert nodes(operator) == {"gpu-001": ["5"]}


def test_a_cluster_that_is_not_there_is_named(operator: Operator) -> None:
    refused = operator.is_refused("slurm-resume", "gpu-001", *ACME, "--cluster", "east")
    assert refused["message"] == "tenant acme has no node pool for Slurm in cluster east"
    assert refused["hint"] == "its Slurm clusters are main, west"
