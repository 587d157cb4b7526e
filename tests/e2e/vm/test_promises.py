# SPDX-License-Identifier: Apache-2.0
"""If others change a running VM, check-vm and the controller name the broken row, and report when it is kept again."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vgpuctl_lab as lab
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operate.test_watched_hosts import controller, soon
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import simulated_fleet
from vgpuctl.guests.libvirtd.hypervisor import Hypervisor
from vgpuctl_lab.simulated.layout import simulated_folder

HOST, WEB = "sim-001", "acme/web"


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator with one running VM in a network of its tenant's."""
    home = tmp_path_factory.mktemp("promises")
    with simulated_fleet(home, 1, "a40") as folder:
        made = Operator(home, _inventory(folder), f"sqlite:///{home}/store.db")
        made.does("create-tenant", "acme")
        made.does("create-network", "front", "--tenant", "acme", "--cidr", "10.9.0.0/24", "--host", HOST)
        made.does(
            *("create-vm", "web", "--tenant", "acme", "--gpu", "A40-8Q", "--network", "front", "--disk", "64MiB"),
            *("--vcpus", "2", "--memory", "96MiB"),
        )
        yield made


def _inventory(folder: lab.LabFolder) -> Path:
    return simulated_folder(folder).inventory


def _broken(operator: Operator) -> list[str]:
    checked = operator.run("check-vm", WEB, "--json")
    findings: list[dict[str, Any]] = json.loads(checked.out)["findings"]
    rows = {f"{one['row']} {one['subject']}".strip() for one in findings if one["verdict"] == "broken"}
    assert checked.code == (1 if rows else 0), checked
    return sorted(rows)


def _network(there: Hypervisor, *, active: bool) -> None:
    network = there.connection.networkLookupByName("acme.front")
    _ = network.create() if active else network.destroy()


def _vcpus(there: Hypervisor, *, active: bool) -> None:
    there.connection.lookupByName("acme.web").setVcpusFlags(2 if active else 1, 1)


def _memory(there: Hypervisor, *, active: bool) -> None:
    there.connection.lookupByName("acme.web").setMemoryFlags((96 if active else 48) * 1024, 1)


TAMPER: dict[str, Callable[..., None]] = {"interfaces front": _network, "vcpus": _vcpus, "memory": _memory}


_OF_LIBVIRT = pytest.mark.long(
    "tests/e2e/vm/test_promises.py::test_what_is_taken_from_a_running_vm_breaks_its_row_until_it_is_there_again",
    "tests/unit/promises/test_domain_rows.py::test_each_difference_breaks_its_own_row",
)


@pytest.mark.parametrize(
    "row", ["interfaces front", *(pytest.param(one, marks=_OF_LIBVIRT) for one in ("vcpus", "memory"))]
)
def test_what_is_taken_from_a_running_vm_breaks_its_row_until_it_is_there_again(operator: Operator, row: str) -> None:
    assert _broken(operator) == []
    with libvirt_of(operator.inventory, HOST) as there:
        TAMPER[row](there, active=False)
        assert _broken(operator) == [row]
        assert "broken since " in operator.does("show-vm", WEB).out
        TAMPER[row](there, active=True)
    assert _broken(operator) == []
    events = operator.json("list-events", "--kind", "promise-observed")[-2:]
    assert [one["after"]["state"] for one in events] == ["broken", "kept"]
    assert {one["evidence"]["row"] for one in events} == {row}


_PAUSED = pytest.mark.long("tests/e2e/vm/test_promises.py::test_nothing_of_a_domain_that_does_not_run_is_kept")


@pytest.mark.parametrize("state", [pytest.param("paused", marks=_PAUSED), "shut off"])
def test_nothing_of_a_domain_that_does_not_run_is_kept(operator: Operator, state: str) -> None:
    with libvirt_of(operator.inventory, HOST) as there:
        domain = there.connection.lookupByName("acme.web")
        _ = domain.suspend() if state == "paused" else domain.destroy()
        checked = json.loads(operator.run("check-vm", WEB, "--json").out)
        by_libvirt = [one for one in checked["findings"] if one["witness"] == "libvirt"]
        assert checked["verdict"] == "broken"
        assert {(one["verdict"], one["seen"]) for one in by_libvirt if "is active" not in one["promised"]} == {
            ("broken", f"the domain is {state}")
        }
        assert {one["row"] for one in by_libvirt} == {"vcpus", "memory", "disks", "interfaces"}
        _ = domain.resume() if state == "paused" else domain.create()
    assert _broken(operator) == []


def test_a_volume_that_its_pool_does_not_have_is_broken(operator: Operator) -> None:
    operator.does(
        *("create-vm", "stores", "--tenant", "acme", "--network", "none", "--disk", "64MiB"),
        *("--data-disk", "data,size=32MiB", "--vcpus", "1", "--memory", "96MiB"),
    )
    with libvirt_of(operator.inventory, HOST) as there:
        (disk,) = [one for one in operator.json("list-disks") if "data" in one["volume"]]
        there.connection.storagePoolLookupByName(disk["pool"]).storageVolLookupByName(disk["volume"]).delete()
    checked = json.loads(operator.run("check-vm", "acme/stores", "--json").out)
    rows = [(one["verdict"], one["seen"]) for one in checked["findings"] if one["subject"] == "data"]
    assert rows == [("broken", f"pool {disk['pool']} has no such volume")]
    operator.does("delete-vm", "acme/stores", "--yes", "--timeout", "0")


def test_the_controller_sees_it_without_being_asked(operator: Operator) -> None:
    def known() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = operator.json("list-events", "--kind", "promise-observed")
        return found

    before = len(known())
    with controller(operator), libvirt_of(operator.inventory, HOST) as there:
        _network(there, active=False)
        soon(lambda: len(known()) == before + 1)
        _network(there, active=True)
        soon(lambda: len(known()) == before + 2)
    broken, kept = known()[-2:]
    assert (broken["subject"], broken["evidence"]["finding"]) == (WEB, "promise-broken")
    assert "network acme.front is not active" in broken["detail"] and kept["after"]["state"] == "kept"


def test_a_start_looks_at_every_row_that_can_be_looked_at_then(operator: Operator) -> None:
    operator.does("stop-vm", WEB, "--timeout", "0")
    operator.does("start-vm", WEB)
    shown = operator.json("show-vm", WEB)
    rows = [one["finding"]["row"] for one in shown["promises"]]
    assert rows == ["gpu-type", "gpu-held", "vcpus", "memory", "disks", "interfaces"]
    assert {one["finding"]["verdict"] for one in shown["promises"]} == {"kept"}
