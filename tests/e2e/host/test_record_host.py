# SPDX-License-Identifier: Apache-2.0
"""record-host: a capture that the lab replays as a host that answers alike."""

import json
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.agent.captures import without_clocks
from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness, Witness
from vgpuctl_lab.simulated.layout import simulated_folder

_VM = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
_FILE = "replayed.capture.json.gz"


@contextmanager
def _replay(operator: Operator, home: Path) -> Iterator[Operator]:
    """An operator of a host that replays the capture in a folder, with a new store."""
    folder = lab.LabFolder(home / "lab")
    lab.simulated.replay([home / _FILE], folder=folder)
    try:
        inventory = simulated_folder(folder).inventory
        yield replace(operator, inventory=inventory, database=f"sqlite:///{home}/replay.db")
    finally:
        lab.simulated.down(folder=folder)


def _record(operator: Operator, host: str, home: Path) -> dict[str, Any]:
    recorded: dict[str, Any] = operator.json("record-host", host, "--to", str(home / _FILE), "--show")
    return recorded


def _renamed(value: Any, recorded: dict[str, Any]) -> Any:
    """A host's answer with the replacements that the command listed."""
    text = json.dumps(value)
    for _kind, old, new in sorted(recorded["replacements"], key=lambda one: -len(one[1])):
        text = text.replace(old, new)
    return _sorted(without_clocks(json.loads(text)))


def _sorted(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts with its addresses in one order: replaced ones sort as numbers, not as texts. Each machine has a Python."""
    addresses = facts.get("addresses")
    return facts | {"addresses": sorted(addresses) if addresses else addresses, "interpreter": None}


def _steady(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts without what changes by itself on a real kernel: free memory, and how busy a GPU is."""
    text = json.dumps(facts)
    volatile = ("memory_available_mib", "utilisation_percent")
    found: dict[str, Any] = json.loads(
        text, object_hook=lambda one: {key: item for key, item in one.items() if key not in volatile}
    )
    return found


def test_a_replay_is_inspected_as_the_recorded_host(
    fleet_operator: Operator, fleet_witness: FleetWitness, tmp_path: Path
) -> None:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-vm", "secretvm", *_VM, "--gpu", "A40-8Q", "--host", "sim-001")
    before = fleet_witness.state()
    recorded = _record(fleet_operator, "sim-001", tmp_path)
    assert fleet_witness.state() == before
    assert stat.S_IMODE((tmp_path / _FILE).stat().st_mode) == 0o600
    source = fleet_operator.json("inspect-host", "sim-001")
    with _replay(fleet_operator, tmp_path) as operator:
        shown = operator.json("inspect-host", "replayed")
        assert _sorted(without_clocks(shown)) == _renamed(source, recorded)
        assert operator.json("list-profiles")
        (checked,) = operator.json("check-hosts")
        assert (checked["error"], checked["is_healthy"]) == (None, True)
        operator.does("create-tenant", "acme")
        refused = operator.is_refused("create-vm", "web", *_VM, "--gpu", "A40-8Q")
        assert "takes no change" in refused["message"]
        missing = operator.run("check-hosts", "--prepare")
        assert "not in this capture" in missing.out + missing.err
    content = json.dumps(recorded["manifest"])
    assert not any(name in content for name in ("sim-001", "secretvm", "acme"))
    fleet_operator.delete_all_vms()


def test_a_table_says_what_was_replaced(fleet_operator: Operator, tmp_path: Path) -> None:
    done = fleet_operator.does("record-host", "sim-003", "--to", str(tmp_path / _FILE), "--note", "ask root@sim-003")
    assert "machine-id" in done.out
    assert "2 GPUs; read it before you send it" in done.err


def test_another_kind_of_host_and_a_wrong_file_are_refused(fleet_operator: Operator, tmp_path: Path) -> None:
    (tmp_path / _FILE).write_bytes(b"no gzip")
    refused = fleet_operator.is_refused("lab", "--folder", str(tmp_path / "lab"), "up", "--from", str(tmp_path / _FILE))
    assert "is not a capture" in refused["message"]
    refused = fleet_operator.is_refused("lab", "up", "--from", str(tmp_path / _FILE), "--simulated", "2")
    assert "--from with another kind of host" in refused["message"]


@pytest.mark.kernel_lab
@pytest.mark.long("tests/e2e/host/test_record_host.py::test_a_replay_is_inspected_as_the_recorded_host")
def test_a_host_with_a_real_kernel_is_replayed(operator: Operator, witness: Witness, tmp_path: Path) -> None:
    before = witness.state()
    recorded = _record(operator, "gpu1", tmp_path)
    assert witness.state() == before
    source = operator.json("inspect-host", "gpu1")
    with _replay(operator, tmp_path) as replayed:
        shown = replayed.json("inspect-host", "replayed")
    assert _steady(_sorted(without_clocks(shown))) == _steady(_renamed(source, recorded))
    kinds = {kind for one in recorded["manifest"]["boards"] for kind in one["sharing"]}
    assert kinds >= {"vf-profile", "mdev-vf", "mdev", "vf", "passthrough"}
