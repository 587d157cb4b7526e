# SPDX-License-Identifier: Apache-2.0
"""A program that writes without end, hangs or lies is ended or refused: it says what a tenant's slurmctld sent."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vgpuctl.clusters.slurm.config_file import SlurmConfig
from vgpuctl.clusters.slurm.link import SlurmLink, reason_text, state_words
from vgpuctl.clusters.slurm.programs import SlurmPrograms, find_program
from vgpuctl.errors import ClusterRefused, ClusterUnreachable


@pytest.fixture(autouse=True)
def programs_are_looked_up_anew() -> Iterator[None]:
    find_program.cache_clear()
    yield
    find_program.cache_clear()


@pytest.fixture
def config(tmp_path: Path) -> SlurmConfig:
    (tmp_path / "acme" / "main").mkdir(parents=True, mode=0o755)
    (tmp_path / "acme" / "main" / "slurm.conf").write_text("ClusterName=x\n")
    return SlurmConfig(tmp_path, "acme", "main")


def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> str:
    """Put a program on PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return name


def test_endless_output_is_cut_and_the_program_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: SlurmConfig
) -> None:
    program = put(tmp_path, monkeypatch, "slurm-endless", "exec yes")
    with pytest.raises(ClusterRefused, match="slurm-endless writes more than 8388608 bytes"):
        SlurmPrograms(config).run(program, [], what="read the nodes")


def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: SlurmConfig) -> None:
    program = put(tmp_path, monkeypatch, "slurm-hangs", "exec sleep 3600")
    with pytest.raises(ClusterUnreachable, match=r"had no answer of slurmctld within 0\.3 s"):
        SlurmPrograms(config, answer_s=0.3).run(program, [], what="read the nodes")


def test_a_program_that_closes_its_output_and_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: SlurmConfig
) -> None:
    program = put(tmp_path, monkeypatch, "slurm-closes", "exec sleep 3600 >&- 2>&-")
    with pytest.raises(ClusterUnreachable, match=r"had no answer of slurmctld within 0\.3 s"):
        SlurmPrograms(config, answer_s=0.3).run(program, [], what="read the nodes")


def test_its_complaint_is_escaped_and_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: SlurmConfig
) -> None:
    text = "printf '\\033]52;c;x\\007no\\n'; head -c 5000 /dev/zero | tr '\\0' x; exit 3"
    program = put(tmp_path, monkeypatch, "slurm-complains", f"( {text} ) >&2; exit 3")
    with pytest.raises(ClusterRefused) as refused:
        SlurmPrograms(config).run(program, [], what="read the nodes")
    assert len(refused.value.message) < 400 and "\x1b" not in refused.value.message


def test_it_gets_slurm_conf_and_nothing_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: SlurmConfig
) -> None:
    program = put(tmp_path, monkeypatch, "slurm-environment", "env; pwd")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "%s")
    monkeypatch.setenv("VGPUCTL_DATABASE_URL", "postgresql://x:secret@y/z")
    said = SlurmPrograms(config).run(program, ["a b", "$(id)"], what="read the nodes").split("\n")
    assert {line.partition("=")[0] for line in said if "=" in line} - {"PWD", "_", "SHLVL", "OLDPWD"} == {
        "LC_ALL",
        "PATH",
        "SLURM_CONF",
    }
    assert f"SLURM_CONF={tmp_path}/acme/main/slurm.conf" in said


def test_a_program_that_is_not_installed_is_named(config: SlurmConfig) -> None:
    with pytest.raises(ClusterUnreachable, match="slurm-missing is not installed on this machine"):
        SlurmPrograms(config).run("slurm-missing", [], what="read the nodes")


def _line(name: str, state: str, reason: str = "none") -> str:
    return f"{name:<70}{state:<200}{reason:<300}"


@pytest.mark.parametrize("text", ["x", "a" * 69, " " * 300, _line("", "idle"), _line("a", ""), "\x1b" * 400])
def test_a_line_that_is_no_node_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: SlurmConfig, text: str
) -> None:
    link = _link_that_reads(tmp_path, monkeypatch, config, text)
    with pytest.raises(ClusterRefused, match="cannot read the nodes in acme/main: sinfo says") as refused:
        link.members()
    assert "\x1b" not in refused.value.message


def test_states_of_every_version_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: SlurmConfig) -> None:
    lines = [
        _line("a", "idle+cloud"),
        _line("b", "ALLOCATED+CLOUD+NOT_RESPONDING+POWERING_UP"),
        _line("c", "idle~+cloud+powered_down"),
        _line("d", "down*", "Not responding"),
        _line("e", "MIXED+DRAIN+CLOUD", "vgpuctl: +powered_down"),
        _line("f", "idle+planned+cloud"),
        _line("", "n/a"),
    ]
    members = _link_that_reads(tmp_path, monkeypatch, config, "\n".join(lines)).members()
    assert [(one.name, one.is_ready, one.is_cordoned, one.is_off, one.reason) for one in members] == [
        ("a", True, False, False, ""),
        ("b", False, False, False, ""),
        ("c", False, False, True, ""),
        ("d", False, False, False, "Not responding"),
        ("e", True, True, False, "vgpuctl: +powered_down"),
        ("f", True, False, False, ""),
    ]


def test_words_and_reasons_have_one_form() -> None:
    assert state_words("idle~") == {"IDLE"}
    assert state_words("MIXED+DRAIN") == {"MIXED", "DRAIN"}
    assert reason_text("vgpuctl: x") == "vgpuctl: x"
    assert reason_text("a\n\n b\x07") == "vgpuctl: a b\\x07"
    assert len(reason_text("x" * 5000)) == 200


def _link_that_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: SlurmConfig, text: str) -> SlurmLink:
    """A link whose sinfo writes this text."""
    answer = tmp_path / "answer"
    answer.write_text(text)
    put(tmp_path, monkeypatch, "sinfo", f"exec cat {answer}")
    return SlurmLink(config)
