# SPDX-License-Identifier: Apache-2.0
"""A step of a plan puts the VM on the GPU that the plan names, on hosts with two equal ones."""

from dataclasses import replace

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator, trust_network
from vgpuctl.model.placement import Placement
from vgpuctl.scheduler.defrag.plan import DefragStep, WayKind
from vgpuctl.usecases.maintenance.planned_moves import MoveRules, carry_out
from vgpuctl.wiring import Settings, open_services

__all__ = ["operator"]

FLEET = (2, "a40*2")


_COLD = pytest.mark.long(
    "tests/e2e/placement/test_defrag_gpus.py::test_the_gpu_of_the_plan_is_had_and_not_the_one_that_placing_prefers",
    "tests/unit/scheduler/defrag/test_fleet_plans.py::test_a_place_on_one_gpu_of_a_host_is_that_gpu_or_none",
)


@pytest.mark.parametrize("way", [WayKind.LIVE, pytest.param(WayKind.COLD, marks=_COLD)])
def test_the_gpu_of_the_plan_is_had_and_not_the_one_that_placing_prefers(operator: Operator, way: WayKind) -> None:
    if way is WayKind.LIVE:
        trust_network(operator)
    else:
        (operator.inventory.parent / "group_vars/all.yml").unlink(missing_ok=True)
    (made,) = operator.json("create-vm", "web", *ACME, *SIZE, "--gpu", "A40-24Q")
    target = {"sim-001": "sim-002", "sim-002": "sim-001"}[made["vm"]["host"]]
    planned = operator.json("move-vm", "web", *ACME, "--dry-run")["plan"]["placement"]["shares"][0]["gpu"]
    with open_services(Settings([str(operator.inventory)], operator.database), lambda _text: None) as services:
        with services.store.reading() as session:
            (lease,) = session.leases()
            facts = session.facts(target)
        assert facts is not None
        (free,) = [one for one in facts.facts.gpus if one.address != planned]
        there = Placement(target, (replace(lease.share, gpu=free.address),))
        step = DefragStep(lease.vm_uuid, "acme/web", way, 120.0, lease.host, (lease.share.gpu,), there)
        (done,) = carry_out(services, "defrag", [step], MoveRules("a test", timeout_s=0))
        assert (done.outcome, done.way) == ("moved", way), done.reason
        with services.store.reading() as session:
            assert [(one.host, one.share.gpu) for one in session.leases()] == [(target, free.address)]
    operator.does("delete-vm", "web", *ACME, "--yes", "--timeout", "0")
