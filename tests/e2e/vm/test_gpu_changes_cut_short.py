# SPDX-License-Identifier: Apache-2.0
"""attach-gpu and detach-gpu that are killed: the VM has its GPU or not, quota and leases agree, and nothing leaks."""

import time

import pytest

from tests.bench.day_checks import faults, look
from tests.e2e.kills import kill_after, kill_points, side_effects
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from tests.e2e.witness import FleetWitness
from vgpuctl.store.store import open_store

__all__ = ["operator"]

FLEET = (1, "a40+t4")
"""A host with an A40 and a T4."""
WEB = ("web", *ACME)
STOP = ("stop-vm", *WEB, "--timeout", "0")
DELETE = ("delete-vm", *WEB, "--yes", "--timeout", "0")
CREATE = ("create-vm", *WEB, "--gpu", "A40-8Q", "--spare-ports", "1", *SIZE)
ATTACH = ("attach-gpu", "web", "T4-2Q", *ACME)
DETACH = ("detach-gpu", "web", "1", *ACME)
LIVE = ("--live", "--timeout", "0")
CASES = {
    "attached to a guest that runs": (CREATE, False, (*ATTACH, "--live")),
    "attached to a VM that is off": (CREATE, True, ATTACH),
    "detached from a guest that runs": ((*CREATE, "--gpu", "T4-2Q"), False, (*DETACH, *LIVE)),
    "detached from a VM that is off": ((*CREATE, "--gpu", "T4-2Q"), True, DETACH),
}


pytestmark = pytest.mark.long(
    "tests/e2e/vm/test_attach_gpu.py::test_repair_finishes_a_detach_whose_vm_ended_by_itself",
    "tests/e2e/operate/test_interrupted.py::test_a_run_killed_after_any_side_effect_is_repaired",
)


@pytest.mark.parametrize("case", CASES)
def test_a_change_that_is_killed_leaves_a_whole_vm(operator: Operator, fleet_witness: FleetWitness, case: str) -> None:
    create, is_off, change = CASES[case]

    def make() -> None:
        operator.does(*create)
        if is_off:
            operator.does(*STOP)

    before = fleet_witness.state()
    make()
    effects = side_effects(operator, *change)
    operator.does(*DELETE)
    assert fleet_witness.state() == before
    for point in kill_points(effects, most=3):
        make()
        kill_after(operator, point, *change)
        text = f"{case}: after side effect {point} of {len(effects)}"
        operator.does("repair")
        left = operator.json("repair")
        assert all(one["outcome"] == "pending: the guest was asked again" for one in left), text
        operator.does(*(("start-vm", *WEB) if is_off else ("restart-vm", *WEB, "--timeout", "0")))
        _is_whole(operator, text)
        operator.does(*DELETE)
        assert fleet_witness.state() == before, f"{text} something leaked"
    assert operator.json("repair") == []


def _is_whole(operator: Operator, text: str) -> None:
    """The VM runs with the GPUs that its request names, and the store's ledger and quotas agree with the leases."""
    (found,) = operator.json("list-vms")
    assert found["vm"]["state"] == "running", text
    leases = [(one["share"]["profile"], one["state"]) for one in found["leases"]]
    assert leases == [(one["text"], "running") for one in found["vm"]["request"]["gpus"]], text
    with open_store(operator.database) as store:
        seen = look(store)
    assert list(faults(seen, seen, {}, time.time())) == [], text
