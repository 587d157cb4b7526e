# SPDX-License-Identifier: Apache-2.0
"""support-bundle: one file about hosts that answer, hosts that are off, and a command that was logged."""

import json
import tarfile
from pathlib import Path

from tests.e2e.operator import Operator
from vgpuctl_lab.folder import LabFolder


def _read(file: Path) -> dict[str, str]:
    found = {}
    with tarfile.open(file) as archive:
        for entry in archive:
            content = archive.extractfile(entry)
            assert content is not None
            found[entry.name.removeprefix("support-bundle/")] = content.read().decode()
    return found


def test_hosts_are_asked_and_the_one_that_is_off_is_named(
    fleet_operator: Operator, fleet: LabFolder, tmp_path: Path
) -> None:
    log, file = tmp_path / "vgpuctl.log", tmp_path / "bundle.tar.gz"
    fleet_operator.does("list-gpus", "--log-file", str(log))
    fleet_operator.does("lab", "--folder", str(fleet.path), "fault", "sim-002", "power-off")
    asked = ("--refresh", "--checks", "--log", str(log), "--connect-timeout", "1")
    done = fleet_operator.json("support-bundle", "sim-001", "sim-002", "--to", str(file), *asked)
    fleet_operator.does("lab", "--folder", str(fleet.path), "fault", "sim-002", "power-off", "--clear")
    assert [one.split(":")[0] for one in done["problems"]] == ["sim-002"]
    found = _read(file)
    assert sorted(found) == sorted(done["parts"])
    assert json.loads(found["hosts/sim-001/facts.json"])["gpus"]
    assert json.loads(found["hosts/sim-001/checks.json"]) == []
    assert "cached_at" in json.loads(found["hosts/sim-002/facts.json"])
    assert "hosts/sim-003/facts.json" not in found
    assert "texts/logs/1.log" not in found
    assert "sim-002: host-unreachable" in found["README.txt"]
    again = ("support-bundle", "sim-001", "--to", str(file), "--log", str(log), "--with-texts")
    assert "is there already" in fleet_operator.is_refused(*again)["message"]
    assert _read(file) == found
    fleet_operator.does(*again, "--force")
    assert "event=agent-call" in _read(file)["texts/logs/1.log"]


def test_an_anonymous_bundle_names_no_host_and_no_tenant(fleet_operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    fleet_operator.does("create-tenant", "initrode")
    fleet_operator.does("list-gpus")
    shown = fleet_operator.does("support-bundle", "--to", str(file), "--anonymous")
    found = _read(file)
    text = "".join([*found, *found.values()])
    assert not any(name in text for name in ("sim-001", "initrode"))
    assert "hosts/host-001/facts.json" in shown.out
    assert "read it before you send it" in shown.err
