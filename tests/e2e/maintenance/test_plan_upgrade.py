# SPDX-License-Identifier: Apache-2.0
"""plan-upgrade on simulated hosts: it says what to do, in which order, and does nothing."""

import json
from typing import Any

from tests.e2e.operator import Operator
from tests.e2e.witness import FleetWitness
from vgpuctl_lab.simulated.machine.nvml_vgpu_readings import GUEST_DRIVER

SIZE = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")
NEWER = "595.45.04"


def _brief(vms: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(vm["vm"]["uuid"], vm["vm"]["host"], vm["vm"]["state"]) for vm in vms]


def test_a_plan_names_order_vms_and_guests_and_changes_nothing(
    fleet_operator: Operator, fleet_witness: FleetWitness
) -> None:
    operator = fleet_operator
    operator.does("create-tenant", "acme")
    for name in ("web-1", "web-2"):
        operator.does("create-vm", name, "--gpu", "A40-8Q", "--group", "web", *SIZE)
    before, vms = fleet_witness.state(), operator.json("list-vms")
    plan = operator.json("plan-upgrade", "--driver", NEWER)
    hosts = {one["name"]: one for one in plan["hosts"]}
    assert set(hosts) == {"sim-001", "sim-002", "sim-003"}
    assert plan["without_driver"] == ["sim-004"], "its card is Intel's"
    with_vms = {vm["vm"]["host"] for vm in vms}
    assert len(with_vms) == 2 and len({hosts[name]["batch"] for name in with_vms}) == 2
    first = plan["hosts"][0]
    assert first["batch"] == 1 and first["is_first"] and first["name"] not in with_vms
    planned = {vm["name"]: vm for host in plan["hosts"] for vm in host["vms"]}
    assert set(planned) == {"acme/web-1", "acme/web-2"}
    assert {vm["verdict"] for vm in planned.values()} <= {"move", "stop"}
    assert {vm["guest"]["verdict"] for vm in planned.values()} == {"unknown"}
    assert {one["branch"] for one in plan["branches"] if one["verdict"] == "breaks"} >= {"R535", "R550"}

    named = ("--guest-driver", "acme/web-2=550.54.16")
    read = json.loads(operator.run("plan-upgrade", "--driver", NEWER, "--refresh", *named, "--json").out)
    guests = {vm["name"]: vm["guest_driver"] for host in read["hosts"] for vm in host["vms"]}
    assert guests == {"acme/web-1": GUEST_DRIVER, "acme/web-2": "550.54.16"}

    told = operator.run("plan-upgrade", "--driver", NEWER, "--guest-driver", "acme/web-1=550.54.16")
    assert told.code == 1
    assert "guest driver 550.54.16: breaks (guest up to 0x14.1, host from 0x18.1)" in told.out
    assert "guest drivers: 1 breaks, 1 works" in told.out, "what a guest was seen with is kept"
    assert "first of its kind" in told.out
    assert "no NVIDIA driver runs there, none is planned: sim-004" in told.err
    kernel = operator.does("plan-upgrade", "--kernel", "6.12.0", "--limit", "sim-001")
    assert "dkms status" in kernel.out and "sim-002" not in kernel.out.split("KERNEL")[0]
    assert fleet_witness.state() == before and _brief(operator.json("list-vms")) == _brief(vms)


def test_what_cannot_be_planned_is_refused_in_words(fleet_operator: Operator) -> None:
    assert "nothing to upgrade to" in fleet_operator.is_refused("plan-upgrade")["message"]
    assert "no version" in fleet_operator.is_refused("plan-upgrade", "--driver", "latest")["message"]
    unread = fleet_operator.is_refused("plan-upgrade", "--driver", NEWER, "--guest-driver", "web=1")
    assert unread["exit_code"] == 2 and "TENANT/VM=VERSION" in (unread["hint"] or unread["message"])
    unknown = fleet_operator.is_refused("plan-upgrade", "--driver", NEWER, "--guest-driver", "acme/none=550.54.16")
    assert unknown["reference"] == "not-found"
