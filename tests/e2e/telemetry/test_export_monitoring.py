# SPDX-License-Identifier: Apache-2.0
"""export monitoring: files that promtool and amtool accept, kept up to date, never written over someone's work."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.e2e.operator import Operator
from tests.prometheus_fixture import need, promtool
from vgpuctl.usecases.telemetry.export_monitoring import RECORD


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """An operator without any inventory."""
    return Operator(tmp_path, tmp_path / "none.yml", f"sqlite:///{tmp_path}/store.db")


@pytest.fixture
def folder(operator: Operator, tmp_path: Path) -> Path:
    """A folder that was just written."""
    made = tmp_path / "monitoring: files"
    operator.does("export", "monitoring", str(made))
    return made


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_promtool_accepts_configuration_and_rules(folder: Path) -> None:
    code, said = promtool("check", "config", "prometheus.yml", folder=folder)
    assert code == 0, said
    assert said.count(" rules found") == len(list((folder / "rules").iterdir())), said


def test_the_rules_tests_pass_where_they_were_written(operator: Operator, tmp_path: Path) -> None:
    made = tmp_path / "made"
    operator.does("export", "monitoring", str(made), "--runbooks", "https://wiki.example/gpus")
    code, said = promtool("test", "rules", "vgpuctl-hosts.test.yml", folder=made / "rule-tests")
    assert code == 0, said
    assert "https://wiki.example/gpus#host-unreachable" in (made / "rules" / "vgpuctl-hosts.yml").read_text()


def test_amtool_accepts_the_example_for_alertmanager(folder: Path) -> None:
    need("amtool")
    done = subprocess.run(
        ["amtool", "check-config", "alertmanager.yml"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_is_pointed_at_the_dashboards(folder: Path) -> None:
    provider = yaml.safe_load((folder / "grafana/provisioning/dashboards/vgpuctl.yml").read_text())["providers"][0]
    assert provider["options"]["path"] == str(folder / "grafana" / "dashboards")
    assert len(list(Path(provider["options"]["path"]).glob("*.json"))) == 5


def test_addresses_are_where_they_belong(operator: Operator, tmp_path: Path) -> None:
    made = tmp_path / "made"
    operator.does(
        "export", "monitoring", str(made), "--exporter", "gpu-admin:9700", "--alertmanager", "[::1]:9094",
        "--prometheus", "https://prometheus.example/x",
    )  # fmt: skip
    config = yaml.safe_load((made / "prometheus.yml").read_text())
    assert config["scrape_configs"][0]["static_configs"] == [{"targets": ["gpu-admin:9700"]}]
    assert config["alerting"]["alertmanagers"][0]["static_configs"] == [{"targets": ["[::1]:9094"]}]
    source = yaml.safe_load((made / "grafana/provisioning/datasources/vgpuctl.yml").read_text())["datasources"][0]
    assert source["url"] == "https://prometheus.example/x"
    assert "--listen gpu-admin:9700" in (made / "systemd/vgpuctl-exporter.service").read_text()


def test_a_second_run_changes_nothing(operator: Operator, folder: Path) -> None:
    before = _tree(folder)
    assert "no change" in operator.does("export", "monitoring", str(folder)).err
    assert operator.json("export", "monitoring", str(folder))["changed"] is False
    assert _tree(folder) == before


def test_a_file_changed_by_hand_is_kept_until_told_otherwise(operator: Operator, folder: Path) -> None:
    rules = folder / "rules" / "vgpuctl-hosts.yml"
    written = rules.read_text()
    rules.write_text(written + "# ours\n")
    (folder / "rules" / "ours.yml").write_text("groups: []\n")
    (folder / "alertmanager.yml").unlink()
    error = operator.is_refused("export", "monitoring", str(folder))
    assert (error["reference"], error["context"]) == ("state", ["rules/vgpuctl-hosts.yml"])
    assert rules.read_text().endswith("# ours\n")
    assert not (folder / "alertmanager.yml").exists()

    done = operator.json("export", "monitoring", str(folder), "--overwrite")
    assert {one["path"]: one["outcome"] for one in done["files"] if one["outcome"] != "unchanged"} == {
        "rules/vgpuctl-hosts.yml": "overwritten",
        "alertmanager.yml": "added",
    }
    assert rules.read_text() == written
    assert (folder / "rules" / "ours.yml").exists()


def test_files_of_an_older_version_are_updated_and_removed(operator: Operator, folder: Path) -> None:
    import hashlib

    record = json.loads((folder / RECORD).read_text())
    for path in ("rules/vgpuctl-hosts.yml", "rules/vgpuctl-old.yml"):
        (folder / path).write_text("groups: []\n")
        record[path] = hashlib.sha256(b"groups: []\n").hexdigest()
    (folder / RECORD).write_text(json.dumps(record))
    dry = operator.does("export", "monitoring", str(folder), "--dry-run")
    assert "would change 2 files" in dry.err
    assert (folder / "rules/vgpuctl-old.yml").exists()
    done = operator.json("export", "monitoring", str(folder))
    assert {one["path"]: one["outcome"] for one in done["files"] if one["outcome"] != "unchanged"} == {
        "rules/vgpuctl-hosts.yml": "updated",
        "rules/vgpuctl-old.yml": "removed",
    }
    assert not (folder / "rules/vgpuctl-old.yml").exists()
    assert "no change" in operator.does("export", "monitoring", str(folder)).err


def test_a_dry_run_writes_nothing(operator: Operator, tmp_path: Path) -> None:
    done = operator.json("export", "monitoring", str(tmp_path / "new"), "--dry-run")
    assert {one["outcome"] for one in done["files"]} == {"added"}
    assert not (tmp_path / "new").exists()


def test_a_record_that_names_paths_outside_removes_nothing(operator: Operator, folder: Path) -> None:
    import hashlib

    other = folder.parent / "other"
    other.write_text("x")
    record = json.loads((folder / RECORD).read_text())
    record |= dict.fromkeys(("../other", str(other)), hashlib.sha256(b"x").hexdigest())
    (folder / RECORD).write_text(json.dumps(record))
    operator.does("export", "monitoring", str(folder))
    assert other.read_text() == "x"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--exporter", "a b:1"), "'a b:1' is not ADDRESS:PORT"),
        (("--prometheus", 'http://a"b'), "is not a URL without spaces and quotes"),
        (("--runbooks", "x\ny"), r"'x\ny' is not a URL"),
    ],
)
def test_an_address_that_would_break_a_file_is_refused(
    operator: Operator, tmp_path: Path, arguments: tuple[str, str], said: str
) -> None:
    error = operator.is_refused("export", "monitoring", str(tmp_path / "new"), *arguments)
    assert error["exit_code"] == 2
    assert said in error["message"]
    assert not (tmp_path / "new").exists()


def test_what_is_no_file_or_no_record_is_told(operator: Operator, folder: Path, tmp_path: Path) -> None:
    (folder / RECORD).write_text("[1]")
    assert (
        "is not the record of export monitoring" in operator.is_refused("export", "monitoring", str(folder))["message"]
    )
    (tmp_path / "new" / "prometheus.yml").mkdir(parents=True)
    assert (
        "is no file of export monitoring"
        in operator.is_refused("export", "monitoring", str(tmp_path / "new"))["message"]
    )
