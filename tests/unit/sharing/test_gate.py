# SPDX-License-Identifier: Apache-2.0
"""The gate for shares that need no placing: what stops a new VM, and what also stops one that starts again."""

from dataclasses import replace

import pytest

from tests.unit.fleet_factory import a40_host, vm
from vgpuctl.model.host_constraints import GpuConstraints, HostConstraints, HostRules
from vgpuctl.model.lease import Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.restriction import WHOLE_HOST, Restriction, RestrictionKind
from vgpuctl.planner.plan import check_kept, check_share
from vgpuctl.scheduler.explain import explain
from vgpuctl.scheduler.place import place


def share_of(text: str, capacity: HostCapacity) -> Share:
    return place(vm(text), [capacity], []).shares[0]


GPU = "0000:41:00.0"
HOST = a40_host("gpu1")
SHARE = share_of("A40-8Q", HOST)


def restricted(kind: RestrictionKind, device: str = WHOLE_HOST, gpu_uuid: str | None = None) -> HostRules:
    return HostRules("gpu1", restrictions=(Restriction("gpu1", device, kind, "a reason", gpu_uuid=gpu_uuid),))


@pytest.mark.parametrize(
    ("rules", "stops_residents"),
    [
        (restricted(RestrictionKind.CORDON), False),
        (restricted(RestrictionKind.CORDON, GPU), False),
        (HostRules("gpu1", HostConstraints(maintenance="a reason")), False),
        (restricted(RestrictionKind.DRAIN), True),
        (restricted(RestrictionKind.FENCE), True),
        (restricted(RestrictionKind.QUARANTINE, GPU), True),
        (restricted(RestrictionKind.QUARANTINE, SHARE.function), True),
        (HostRules("gpu1", HostConstraints(gpus=(GpuConstraints(quarantine="a reason"),))), True),
    ],
)
def test_cordons_keep_new_vms_away_and_everything_else_every_vm(rules: HostRules, stops_residents: bool) -> None:
    assert check_share(SHARE, HOST.facts) is None
    assert "a reason" in (check_share(SHARE, HOST.facts, rules) or "")
    kept = check_kept(SHARE, HOST.facts, rules)
    assert ("a reason" in (kept or "")) is stops_residents


def test_a_restriction_elsewhere_stops_nothing() -> None:
    for other in (
        Restriction("gpu2", WHOLE_HOST, RestrictionKind.FENCE, "a reason"),
        Restriction("gpu1", "0000:ff:00.0", RestrictionKind.QUARANTINE, "a reason"),
    ):
        assert check_share(SHARE, HOST.facts, HostRules("gpu1", restrictions=(other,))) is None


def test_a_quarantine_follows_the_card_to_another_slot() -> None:
    named = replace(HOST.facts, gpus=tuple(replace(gpu, uuid="GPU-1") for gpu in HOST.facts.gpus))
    followed = (Restriction("gpu9", "0000:01:00.0", RestrictionKind.QUARANTINE, "a reason", gpu_uuid="GPU-1"),)
    assert "a reason" in (check_share(SHARE, named, HostRules("gpu1", restrictions=followed)) or "")
    exchanged = restricted(RestrictionKind.QUARANTINE, GPU, "GPU-2")
    assert check_share(SHARE, named, exchanged) is None, "another card is in the slot now"


def test_placing_takes_another_vf_than_the_one_in_quarantine() -> None:
    rules = restricted(RestrictionKind.QUARANTINE, SHARE.function)
    again = share_of("A40-8Q", replace(HOST, restrictions=rules.restrictions))
    assert again.gpu == SHARE.gpu
    assert again.function != SHARE.function


@pytest.mark.parametrize(
    ("kind", "device", "code"),
    [
        (RestrictionKind.CORDON, WHOLE_HOST, "host-cordoned"),
        (RestrictionKind.DRAIN, WHOLE_HOST, "host-drained"),
        (RestrictionKind.FENCE, WHOLE_HOST, "host-fenced"),
        (RestrictionKind.CORDON, GPU, "gpu-cordoned"),
        (RestrictionKind.QUARANTINE, GPU, "gpu-quarantine"),
    ],
)
def test_placing_refuses_by_a_code_of_its_own_with_the_command_that_ends_it(
    kind: RestrictionKind, device: str, code: str
) -> None:
    closed = replace(HOST, restrictions=restricted(kind, device).restrictions)
    answer = explain(vm("A40-8Q"), [closed], [])
    assert isinstance(answer, list)
    assert [(one.code, "a reason" in one.reason) for one in answer] == [(code, True)]
    assert "vgpuctl " in (answer[0].remedy or "")
