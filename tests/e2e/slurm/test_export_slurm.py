# SPDX-License-Identifier: Apache-2.0
"""A real slurmctld starts with the output of export slurm."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.slurm_fixture import SlurmCluster, short_folder
from vgpuctl.model.hostlist import expand


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator without hosts: pools need none."""
    home: Path = tmp_path_factory.mktemp("operator")
    made = Operator(home, home / "inventory.yml", f"sqlite:///{home}/store.db")
    for tenant in ("acme", "globex", "bare"):
        made.does("create-tenant", tenant)
    size = ("--memory", "31GiB", "--vcpus", "8", "--network", "none", "--role", "slurm", "--tenant")
    made.does("create-node-pool", "gpu", *size, "acme", "--max", "64", "--gpu", "A40-8Q", "--label", "team=vision")
    made.does("create-node-pool", "big", *size, "acme", "--max", "8", "--gpu", "2*A40-48Q", "--min", "1")
    made.does("create-node-pool", "cpu", *size, "acme", "--max", "1", "--cluster", "main")
    made.does("create-node-pool", "one", *size, "globex", "--max", "1", "--cluster", "east")
    made.does("create-node-pool", "two", *size, "globex", "--max", "1", "--cluster", "west")
    yield made


def test_slurmctld_starts_with_exactly_these_lines(operator: Operator) -> None:
    """The rest of the configuration is the site's own: names, ports, folders and authentication."""
    text = operator.does("export", "slurm", "acme").out
    gres = operator.does("export", "slurm", "acme", "main", "--file", "gres.conf").out
    names = [*expand("big-[001-008]"), "cpu-001", *expand("gpu-[001-064]")]
    with short_folder() as folder:
        cluster = SlurmCluster(folder, names, "", gres=gres, power=text.replace("{", "{{").replace("}", "}}"))
        for what in ("resume", "suspend", "fail"):
            assert f"Program=/usr/local/sbin/vgpuctl-slurm-{what}\n" in text
        try:
            cluster.start()
            shown = cluster.run("sinfo", "-h", "-N", "-o", "%N|%f|%G|%w|%c|%m|%T|%R").split()
            assert len(shown) == 73
            assert "gpu-064|a40-8q,team=vision|gpu:a40-8q:1|9|8|30157|idle~|vgpu" in shown
            assert "big-001|a40-48q|gpu:a40-48q:2|97|8|30157|idle~|vgpu" in shown
            assert "cpu-001|(null)|(null)|1|8|30157|idle~|vgpu" in shown
            settings = cluster.run("scontrol", "show", "config")
            for line in ("ResumeTimeout           = 1200 sec", "SuspendTime             = 600 sec",
                         "SuspendTimeout          = 120 sec", "SuspendExcNodes         = big-[001-008]:1"):  # fmt: skip
                assert line in settings
            job = cluster.submit("--partition=vgpu", "--gres=gpu:1", "--constraint=team=vision", "--hold")
            assert cluster.job(job)["Features"] == "team=vision"
            refused = cluster.run("sbatch", "-p", "vgpu", "--constraint=a16-4q", "--wrap=true", must=False)
            assert "Invalid feature specification" in refused
            log = cluster.log()
            assert "fatal" not in log and "Parse error" not in log and "duplicate" not in log
        finally:
            cluster.stop()


def test_the_answer_has_all_files(operator: Operator) -> None:
    found = operator.json("export", "slurm", "acme")
    assert (found["cluster"], found["pools"]) == ("main", ["big", "cpu", "gpu"])
    assert found["program"].startswith("#!/bin/sh\n")
    assert operator.does("export", "slurm", "acme", "--file", "program").out == found["program"]


def test_a_tenant_with_several_clusters_names_one(operator: Operator) -> None:
    refused = operator.is_refused("export", "slurm", "globex")
    assert refused["message"] == "tenant globex has several Slurm clusters: east, west"
    assert operator.json("export", "slurm", "globex", "west")["pools"] == ["two"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bare",), "tenant bare has no node pool for Slurm"),
        (("acme", "east"), "tenant acme has no node pool for Slurm in cluster east"),
        (("nobody",), "no tenant"),
        (("acme", "--programs", "relative"), "is no absolute path for slurm.conf"),
        (("acme", "--programs", "/a b"), "is no absolute path for slurm.conf"),
        (("acme", "--programs", "/a\nSlurmUser=x"), "is no absolute path for slurm.conf"),
        (("acme", "--partition", "x Nodes=ALL"), "is no name of a partition"),
        (("acme", "--suspend-time", "0"), "suspend-time"),
    ],
)
def test_what_cannot_be_written_is_refused(operator: Operator, arguments: tuple[str, ...], message: str) -> None:
    assert message in operator.is_refused("export", "slurm", *arguments)["message"]
