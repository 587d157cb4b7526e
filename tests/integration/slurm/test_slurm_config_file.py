# SPDX-License-Identifier: Apache-2.0
"""A slurm.conf is used only where nobody but the operator can have written it."""

import os
from pathlib import Path

import pytest

from vgpuctl.clusters.slurm.config_file import SlurmConfig
from vgpuctl.errors import ClusterRefused, ClusterUnreachable, FileNotTrusted, UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "slurm"
    (made / "acme" / "main").mkdir(parents=True)
    (made / "acme" / "main" / "slurm.conf").write_text("ClusterName=x\n")
    for path in (made, *made.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return made


def test_the_operators_file_is_found(folder: Path) -> None:
    assert SlurmConfig(folder, "acme", "main").checked() == folder / "acme" / "main" / "slurm.conf"


@pytest.mark.parametrize("part", [".", "acme", "acme/main", "acme/main/slurm.conf"])
def test_what_others_may_write_is_refused(folder: Path, part: str) -> None:
    path = folder / part
    path.chmod(path.stat().st_mode | 0o002)
    with pytest.raises(FileNotTrusted, match="may be written to by every user"):
        SlurmConfig(folder, "acme", "main").checked()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_the_file_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder / "acme" / "main" / "slurm.conf", 65534, 65534)
    with pytest.raises(FileNotTrusted, match="belongs to nobody"):
        SlurmConfig(folder, "acme", "main").checked()


@pytest.mark.parametrize("part", ["acme", "acme/main", "acme/main/slurm.conf"])
def test_a_link_leads_to_what_only_the_operator_may_write(folder: Path, tmp_path: Path, part: str) -> None:
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    (folder / part).rename(moved)
    (folder / part).symlink_to(moved)
    assert SlurmConfig(folder, "acme", "main").checked() == folder / "acme" / "main" / "slurm.conf"
    moved.parent.chmod(0o777)
    with pytest.raises(FileNotTrusted, match="elsewhere, on the way to it, may be written to by every user"):
        SlurmConfig(folder, "acme", "main").checked()


def test_a_pipe_is_no_slurm_conf(folder: Path) -> None:
    path = folder / "acme" / "main" / "slurm.conf"
    path.unlink()
    os.mkfifo(path, 0o644)
    with pytest.raises(FileNotTrusted, match="pipe"):
        SlurmConfig(folder, "acme", "main").checked()


def test_a_cluster_without_a_file_is_unreachable(folder: Path) -> None:
    with pytest.raises(ClusterUnreachable, match=r"acme/gpu has no slurm\.conf") as missing:
        SlurmConfig(folder, "acme", "gpu").checked()
    assert str(folder / "acme" / "gpu" / "slurm.conf") in str(missing.value.hint)


@pytest.mark.parametrize("cluster", ["..", "a/b", "", "A", "main\n"])
def test_a_name_that_leads_elsewhere_is_refused(folder: Path, cluster: str) -> None:
    with pytest.raises(UsageError):
        SlurmConfig(folder, "acme", cluster).checked()


@pytest.mark.parametrize("tenant", ["..", ".", "", "a/b"])
def test_a_tenant_that_leads_elsewhere_is_refused(folder: Path, tenant: str) -> None:
    with pytest.raises(ClusterRefused):
        SlurmConfig(folder, tenant, "main").checked()
