# SPDX-License-Identifier: Apache-2.0
"""A running VM moves to another host without a stop: with all it has, verified there, and nothing stays behind."""

import pytest
import yaml

from tests.e2e.kills import kill_after, kill_points, side_effects
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SEEDED, operator
from tests.e2e.witness import FleetWitness

__all__ = ["operator"]

FLEET = (3, "a40")
"""Three equal hosts with one A40 each."""
CREATE = ("create-vm", "web", *ACME, "--gpu", "A40-8Q", *SEEDED)
MOVE = ("move-vm", "web", *ACME, "--live-only")
DELETE = ("delete-vm", "web", *ACME, "--yes", "--timeout", "0")


@pytest.fixture(autouse=True)
def trusted(operator: Operator) -> None:
    """The hosts' inventory trusts their network with moves."""
    folder = operator.inventory.parent / "group_vars"
    folder.mkdir(exist_ok=True)
    (folder / "all.yml").write_text(yaml.safe_dump({"vgpu_moves": {"network": "trusted"}}))


def _domains(operator: Operator, host: str) -> dict[str, str]:
    with libvirt_of(operator.inventory, host) as there:
        return {one.name: str(one.state) for one in there.domains()}


def test_a_running_vm_moves_with_everything_and_is_never_stopped(
    operator: Operator, fleet_witness: FleetWitness
) -> None:
    before = fleet_witness.state()
    (made,) = operator.json(*CREATE)
    uuid, source = made["vm"]["uuid"], made["vm"]["host"]
    planned = operator.json(*MOVE, "--dry-run")
    assert (planned["from"], planned["way"], planned["downtime_s"]) == (source, "live", None)
    moved = operator.json(*MOVE, "--to", planned["to"], "--reason", "new fans")
    target = moved["to"]
    assert (moved["way"], target) == ("live", planned["to"])
    (listed,) = operator.json("list-vms", "--refresh")
    assert (listed["vm"]["host"], listed["vm"]["state"], listed["vm"]["problem"]) == (target, "running", None)
    assert (listed["vm"]["uuid"], listed["observed"]) == (uuid, "running")
    assert [(one["host"], one["share"]["profile"], one["state"]) for one in listed["leases"]] == [
        (target, "A40-8Q", "running")
    ]
    assert (_domains(operator, target), _domains(operator, source)) == ({"acme.web": "running"}, {})
    (told,) = operator.json("list-events", "--kind", "vm-moved-live")
    assert (told["before"]["host"], told["after"]["host"], told["detail"]) == (source, target, "new fans")
    assert operator.json("list-events", "--kind", "vm-stopped") == []
    assert operator.json("list-reservations") == operator.json("repair") == []
    operator.does(*DELETE)
    assert fleet_witness.state() == before


def test_a_move_that_is_killed_anywhere_leaves_one_running_vm(operator: Operator, fleet_witness: FleetWitness) -> None:
    before = fleet_witness.state()
    operator.does(*CREATE)
    effects = side_effects(operator, *MOVE)
    assert "run" in effects

    points: list[int | str] = ["run", *kill_points(effects, most=6)]
    for point in points:
        (was,) = operator.json("list-vms")
        kill_after(operator, point, *MOVE)
        text = f"after side effect {point} of {effects}"
        operator.does("repair")
        (listed,) = operator.json("list-vms", "--refresh")
        host = listed["vm"]["host"]
        assert (listed["vm"]["state"], listed["vm"]["problem"], listed["observed"]) == ("running", None, "running"), (
            text
        )
        assert [(one["host"], one["state"]) for one in listed["leases"]] == [(host, "running")], text
        everywhere = {name: _domains(operator, name) for name in ("sim-001", "sim-002", "sim-003")}
        assert {name: found for name, found in everywhere.items() if found} == {host: {"acme.web": "running"}}, text
        assert operator.json("list-reservations") == operator.json("repair") == [], text
        assert was["vm"]["uuid"] == listed["vm"]["uuid"]
    operator.does(*DELETE)
    operator.does("gc", "--yes")
    assert fleet_witness.state() == before
