# SPDX-License-Identifier: Apache-2.0
"""A host with two pairs of cards at NVLink bridges: inspect-host shows them, and the policy topology takes a pair."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import simulated_fleet
from vgpuctl_lab.simulated.layout import simulated_folder

TENANT = ("--tenant", "acme")
CARDS = [f"0000:{bus}:00.0" for bus in ("41", "43", "45", "47")]


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    home: Path = tmp_path_factory.mktemp("near")
    with simulated_fleet(home, 1, "a40/passthrough~bridged~switched*4") as folder:
        found = Operator(home, simulated_folder(folder).inventory, f"sqlite:///{home}/store.db")
        found.does("create-tenant", "acme")
        found.does("list-gpus", "--refresh")
        yield found


def test_inspect_host_shows_the_links_and_how_near_the_gpus_are(operator: Operator) -> None:
    seen = operator.json("inspect-host", "sim-001")
    links = {"numbers": [0, 1, 2, 3], "is_active": True, "peer": CARDS[1], "peer_kind": "gpu", "version": 3}
    assert seen["gpus"][0]["topology"] == {
        "root": "pci0000:10",
        "bridges": ["0000:10:01.0", "0000:20:00.0", "0000:30:00.0"],
        "nvlinks": [links],
        "fabric": None,
        "module": None,
    }
    assert seen["topology"]["nvlink_domains"] == [CARDS[:2], CARDS[2:]]
    assert seen["topology"]["nearness"][CARDS[0]] == dict(
        zip(CARDS, ("same", "nvlink", "switch", "switch"), strict=True)
    )
    lines = operator.does("inspect-host", "sim-001").out.splitlines()
    assert " 0 41:00.0  -       nvlink  switch  switch" in lines
    assert "  PCIe          pci0000:10 > 0000:10:01.0 > 0000:20:00.0 > 0000:30:00.0" in lines
    assert f"  NVLink        0,1,2,3 to gpu {CARDS[1]}, version 3" in lines


def cards_of(operator: Operator, name: str, *arguments: str) -> list[str]:
    """The cards that a VM gets, or would get."""
    [created] = operator.json("create-vm", name, *TENANT, "--network", "none", *arguments)
    return [lease["share"]["gpu"] for lease in created["leases"]]


def test_two_cards_of_one_vm_are_a_pair_where_the_policy_says_so(operator: Operator) -> None:
    assert cards_of(operator, "one", "--gpu", "passthrough:A40") == CARDS[:1]
    assert cards_of(operator, "two", "--gpu", "passthrough:A40*2", "--dry-run") == CARDS[1:3]
    assert cards_of(operator, "two", "--gpu", "passthrough:A40*2", "--policy", "topology") == CARDS[2:]
    # The cards of running VMs are on vfio-pci, where NVML does not show them; the PCIe switch is still known.
    topology = operator.json("inspect-host", "sim-001")["topology"]
    assert topology["nearness"][CARDS[2]][CARDS[3]] == "switch"
