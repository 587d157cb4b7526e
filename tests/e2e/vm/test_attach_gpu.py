# SPDX-License-Identifier: Apache-2.0
"""GPUs come to a VM and leave it; the others keep their place, and a share in use is never given back."""

from collections.abc import Iterator

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SEEDED, operator
from tests.e2e.witness import FleetWitness
from vgpuctl.guests.xml_reader import read_xml

__all__ = ["operator"]

FLEET = (1, "a40+t4+rtx-3090")
"""A host with an A40, a T4 and a card for passthrough."""
WEB = ("web", *ACME)
STOP = ("stop-vm", *WEB, "--timeout", "0")


@pytest.fixture(autouse=True)
def nothing_is_left(operator: Operator, fleet_witness: FleetWitness) -> Iterator[None]:
    """Every test ends with nothing to repair, and the machine is then as it was."""
    before = fleet_witness.state()
    yield
    assert operator.json("repair") == []
    operator.does("delete-vm", *WEB, "--yes", "--timeout", "0", "--if-exists")
    assert fleet_witness.state() == before


def _leases(operator: Operator) -> list[tuple[int, str, str]]:
    (found,) = operator.json("list-vms")
    return [(one["index"], one["share"]["profile"], one["state"]) for one in found["leases"]]


def _buses(operator: Operator) -> dict[str, str]:
    """The guest's bus of each GPU by its alias, as the domain was defined."""
    with libvirt_of(operator.inventory, "sim-001") as there:
        xml = there.xml("acme.web")
    assert xml is not None
    found = {}
    for device in read_xml(xml).iterfind("devices/hostdev"):
        alias, address = device.find("alias"), device.find("address")
        assert alias is not None
        assert address is not None
        found[alias.get("name", "")] = address.get("bus", "")
    return found


def test_a_vgpu_comes_and_goes_at_the_next_start_and_the_others_keep_their_place(operator: Operator) -> None:
    operator.does("create-vm", *WEB, "--gpu", "A40-8Q", *SEEDED)
    attached = operator.json("attach-gpu", "web", "T4-2Q", *ACME)
    assert (attached["position"], attached["when"]) == (1, "at the next start")
    assert attached["reason"] == "NVIDIA documents no hot-plug of vGPUs for KVM; --live tries it"
    assert _leases(operator) == [(0, "A40-8Q", "running"), (1, "T4-2Q", "reserved")]
    assert operator.json("repair") == [], "it is not to be repaired"
    operator.does(*STOP)
    operator.does("start-vm", *WEB)
    assert _leases(operator) == [(0, "A40-8Q", "running"), (1, "T4-2Q", "running")]
    assert _buses(operator) == {"ua-gpu0": "0x05", "ua-gpu1": "0x06"}
    detached = operator.json("detach-gpu", "web", "0", *ACME)
    assert (detached["state"], detached["lease"]["share"]["profile"]) == ("pending", "A40-8Q")
    assert _leases(operator)[0] == (0, "A40-8Q", "releasing")
    assert operator.json("repair") == [], "it waits for the stop"
    assert operator.json("detach-gpu", "web", "0", *ACME)["state"] == "pending", "the same again"
    operator.does(*STOP)
    assert _leases(operator) == [(1, "T4-2Q", "built")]
    operator.does("start-vm", *WEB)
    assert (_leases(operator), _buses(operator)) == ([(1, "T4-2Q", "running")], {"ua-gpu1": "0x06"})
    operator.does(*STOP, "--hold", "release")
    assert operator.json("attach-gpu", "web", "A40-8Q", *ACME, "--dry-run")["when"] == "at the next start"
    operator.does("start-vm", *WEB)
    assert (_leases(operator), _buses(operator)) == ([(1, "T4-2Q", "running")], {"ua-gpu1": "0x06"}), "placed again"
    said = operator.does("attach-gpu", "web", "A40-8Q", *ACME).out
    assert "acme/web: gets A40-8Q as GPU 0, at the next start: " in said
    assert [one[:2] for one in _leases(operator)] == [(0, "A40-8Q"), (1, "T4-2Q")], "the free place is taken"
    kinds = [one["kind"] for one in operator.json("list-events") if one["kind"].startswith("gpu-")]
    assert sorted(kinds) == ["gpu-attached", "gpu-attached", "gpu-detached"]


_KEPT = pytest.mark.long("tests/e2e/vm/test_attach_gpu.py::test_a_stopped_vm_gets_a_whole_card_and_gives_it_back")


@pytest.mark.parametrize("hold", [pytest.param("keep", marks=_KEPT), "release"])
def test_a_stopped_vm_gets_a_whole_card_and_gives_it_back(operator: Operator, hold: str) -> None:
    operator.does("create-vm", *WEB, "--gpu", "A40-8Q", *SEEDED)
    operator.does(*STOP, "--hold", hold)
    operator.does("attach-gpu", "web", "passthrough:RTX-3090", *ACME)
    assert len(_leases(operator)) == (2 if hold == "keep" else 0)
    operator.does("start-vm", *WEB)
    assert _leases(operator) == [(0, "A40-8Q", "running"), (1, "passthrough", "running")]
    waits = operator.json("detach-gpu", "web", "1", *ACME, "--next-start")
    assert (waits["state"], waits["reason"]) == ("pending", "--next-start was given")
    operator.does(*STOP, "--hold", hold)
    assert len(_leases(operator)) == (1 if hold == "keep" else 0)
    (checked, *_) = [one for one in operator.json("list-events") if one["kind"] == "share-checked"]
    assert checked["evidence"]["profile"] in ("passthrough", "A40-8Q")


def test_a_gpu_that_never_came_leaves_at_once_and_bad_asks_are_refused(operator: Operator) -> None:
    operator.does("create-vm", *WEB, "--gpu", "A40-8Q", *SEEDED, "--spare-ports", "0")
    operator.does("attach-gpu", "web", "T4-2Q", *ACME)
    assert operator.json("detach-gpu", "web", "1", *ACME)["state"] == "detached"
    assert _leases(operator) == [(0, "A40-8Q", "running")]
    assert operator.is_refused("detach-gpu", "web", "1", *ACME)["reference"] == "not-found"
    assert operator.is_refused("attach-gpu", "web", "2*T4-2Q", *ACME)["reference"] == "usage"
    refused = operator.is_refused("attach-gpu", "web", "A40-12Q", *ACME)
    assert (refused["reference"], "A40-8Q" in " ".join(refused["context"])) == ("no-capacity", True), refused
    no_port = operator.is_refused("attach-gpu", "web", "T4-2Q", *ACME, "--live")
    assert "no free port" in no_port["message"]
    planned = operator.json("attach-gpu", "web", "T4-2Q", *ACME, "--dry-run")
    assert (planned["changed"], planned["position"]) == (False, 1)
    assert _leases(operator) == [(0, "A40-8Q", "running")]
    operator.does("set-quota", "acme", "framebuffer=9GiB")
    try:
        assert operator.is_refused("attach-gpu", "web", "T4-2Q", *ACME)["reference"] == "quota-exceeded"
    finally:
        operator.does("set-quota", "acme", "framebuffer=none")


def test_a_card_whose_only_gpu_leaves_at_the_stop_takes_the_next_size(operator: Operator) -> None:
    operator.does("create-vm", *WEB, "--gpu", "A40-8Q", *SEEDED)
    assert operator.json("detach-gpu", "web", "0", *ACME)["state"] == "pending"
    operator.does("resize-vm", *WEB, "--gpu", "A40-12Q", "--restart", "--shutdown-timeout", "0")
    assert _leases(operator) == [(0, "A40-12Q", "running")]


def test_repair_finishes_a_detach_whose_vm_ended_by_itself(operator: Operator) -> None:
    (made,) = operator.json("create-vm", *WEB, "--gpu", "A40-8Q", "--gpu", "T4-2Q", *SEEDED)
    operator.does("detach-gpu", "web", "0", *ACME)
    with libvirt_of(operator.inventory, "sim-001") as there:
        there.destroy("acme.web", uuid=made["vm"]["uuid"])
    operator.does("repair")
    assert [one[:2] for one in _leases(operator)] == [(0, "A40-8Q"), (1, "T4-2Q")]
    operator.does("repair")
    assert _leases(operator) == [(1, "T4-2Q", "built")]


def test_a_type_that_must_be_alone_in_a_vm_gets_no_other_one_by_any_way(
    operator: Operator, fleet: lab.LabFolder
) -> None:
    operator.does("create-vm", *WEB, "--gpu", "A40-8Q", *SEEDED)
    lab.faults.begin("sim-001", "types-alone", 4, card="0000:41:00.0", folder=fleet)
    try:
        for command in (
            ("attach-gpu", "web", "A40-8C", *ACME),
            ("resize-vm", *WEB, "--gpu", "A40-8Q", "--gpu", "A40-8C"),
        ):
            refused = operator.run(*command)
            assert refused.code and "no other type be in a VM with A40-8C" in refused.err, refused
        assert _leases(operator) == [(0, "A40-8Q", "running")]
        operator.does("attach-gpu", "web", "A40-8Q", *ACME)
        lab.faults.clear("sim-001", ["types-alone"], folder=fleet)
        operator.does("attach-gpu", "web", "A40-8C", *ACME)
        lab.faults.begin("sim-001", "types-alone", 4, card="0000:41:00.0", folder=fleet)
        operator.does(*STOP)
        refused = operator.run("start-vm", *WEB)
        assert refused.code and "cannot have its vGPUs of sim-001 together" in refused.err
        assert "vgpuctl resize-vm acme/web --gpu" in refused.err
    finally:
        lab.faults.clear("sim-001", ["types-alone"], folder=fleet)
