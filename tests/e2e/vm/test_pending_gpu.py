# SPDX-License-Identifier: Apache-2.0
"""A running guest does not release a GPU: how that is shown, and which commands still work.

libvirt's test driver detaches nothing from a domain that runs, as a guest that never lets go.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator, trust_network
from tests.e2e.witness import FleetWitness
from vgpuctl.usecases.vm.pending_gpus import AT_START, BY_GUEST

__all__ = ["operator"]

FLEET = (2, "a40+t4")
"""Two equal hosts with an A40 and a T4."""
WEB = ("web", *ACME)
DETACH = ("detach-gpu", "web", "1", *ACME, "--live", "--timeout", "0")
NOW = ("--shutdown-timeout", "0")
PENDING = (1, "T4-2Q", "releasing")


@pytest.fixture(autouse=True)
def pending(operator: Operator, fleet_witness: FleetWitness) -> Iterator[None]:
    """The VM `web` on sim-001, whose guest was asked for its second GPU. At the end all is as before."""
    before = fleet_witness.state()
    operator.does("create-vm", *WEB, "--gpu", "A40-8Q", "--gpu", "T4-2Q", *SIZE)
    assert operator.json(*DETACH)["state"] == "pending"
    yield
    operator.does("delete-vm", *WEB, "--yes", "--timeout", "0", "--if-exists")
    assert operator.json("list-reservations") == operator.json("repair") == []
    assert fleet_witness.state() == before


def _leases(operator: Operator) -> list[tuple[int, str, str]]:
    (found,) = operator.json("list-vms")
    return [(one["index"], one["share"]["profile"], one["state"]) for one in found["leases"]]


def test_it_is_seen_and_asked_for_again_and_others_come_beside_it(operator: Operator) -> None:
    lines = operator.does("show-vm", *WEB).out.splitlines()
    (line,) = [one for one in lines if "T4-2Q" in one]
    assert line.endswith(f"lease releasing, {BY_GUEST}")
    assert {one["subject"] for one in operator.json("check-vm", *WEB)["findings"] if one["row"].startswith("gpu-")} == {
        "A40-8Q"
    }
    assert operator.json(*DETACH)["state"] == "pending"
    (again,) = operator.json("repair")
    assert (again["found"], again["outcome"]) == ("1 GPU to be detached", "pending: the guest was asked again")
    assert operator.json("gc", "--dry-run") == []

    attached = operator.json("attach-gpu", "web", "T4-2Q", *ACME)
    assert (attached["position"], attached["when"]) == (2, "at the next start")
    assert operator.json("attach-nic", "web", "default", *ACME)["outcome"] == "next start"
    assert _leases(operator) == [(0, "A40-8Q", "running"), PENDING, (2, "T4-2Q", "reserved")]
    shown = operator.does("show-vm", *WEB).out
    assert f"lease reserved, {AT_START}" in shown and "not made yet" in shown
    operator.does("restart-vm", *WEB, "--timeout", "0")
    assert _leases(operator) == [(0, "A40-8Q", "running"), (2, "T4-2Q", "running")]


RESIZES = {"--vcpus 2": "A40-8Q", "--gpu A40-12Q": "A40-12Q", "--gpu A40-8Q --gpu T4-2Q": "A40-8Q T4-2Q"}


_OTHER_SIZES = pytest.mark.long("tests/e2e/vm/test_pending_gpu.py::test_a_resize_ends_it")


@pytest.mark.parametrize("size", [pytest.param(one, marks=_OTHER_SIZES if "--gpu" in one else ()) for one in RESIZES])
def test_a_resize_ends_it(operator: Operator, size: str) -> None:
    operator.does("resize-vm", *WEB, *size.split(), "--restart", *NOW)
    found = _leases(operator)
    assert (" ".join(one[1] for one in found), {one[2] for one in found}) == (RESIZES[size], {"running"})


def test_a_move_and_a_drain_take_the_other_gpus_alone(operator: Operator) -> None:
    trust_network(operator)
    (found,) = operator.json("move-vm", *WEB, "--check")["verdicts"]
    assert (found["verdict"]["kind"], found["verdict"]["limits"][0]["code"]) == ("cold", "gpu-pending")
    assert "T4-2Q" in found["verdict"]["limits"][0]["limit"] and "other-device" not in str(found)
    assert operator.json("move-vm", *WEB, "--to", "sim-002", *NOW)["way"] == "cold"
    assert _leases(operator) == [(0, "A40-8Q", "running")]
    operator.does("attach-gpu", "web", "T4-2Q", *ACME)
    operator.does("restart-vm", *WEB, "--timeout", "0")
    assert operator.json(*DETACH)["state"] == "pending"
    operator.does("drain-host", "sim-002", "--reason", "disks", "--yes", *NOW)
    operator.does("uncordon-host", "sim-002", "--force")
    (moved,) = operator.json("list-vms")
    assert (moved["vm"]["host"], _leases(operator)) == ("sim-001", [(0, "A40-8Q", "running")])


_REPAIRED = pytest.mark.long("tests/e2e/vm/test_pending_gpu.py::test_a_guest_that_ended_by_itself_starts_without_it")


@pytest.mark.parametrize("is_repaired", [False, pytest.param(True, marks=_REPAIRED)])
def test_a_guest_that_ended_by_itself_starts_without_it(operator: Operator, *, is_repaired: bool) -> None:
    with libvirt_of(operator.inventory, "sim-001") as there:
        there.destroy("acme.web")
    if is_repaired:
        operator.does("repair")
    operator.does("start-vm", *WEB)
    assert _leases(operator) == [(0, "A40-8Q", "running")]
