# SPDX-License-Identifier: Apache-2.0
"""The emulated host for the tests of this folder, operations in it, and its cards."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.kernel_cards import SRIOV_MANAGE, Card, Do, read_table
from tests.lab_fixtures import KernelHost, kernel_host, lab_folder

__all__ = ["cards", "do", "kernel_host", "lab_folder", "mdev_pf", "mdev_vf", "plain", "profile"]

_OPERATIONS = (Path(__file__).parent / "operations_in_host.py").read_text()


@pytest.fixture(scope="module")
def without_libvirtd(kernel_host: KernelHost) -> Iterator[None]:
    """The host has no libvirtd during the file."""
    with kernel_host.without_libvirtd():
        yield


@pytest.fixture(scope="module")
def do(kernel_host: KernelHost) -> Do:
    """Delete what vGPUs there are, then run operations of operations_in_host.py, all in one round trip."""

    def run(*operations: list[Any]) -> list[Any]:
        command = ["python3", "-I", "-S", "-c", _OPERATIONS, json.dumps([["clean"], *operations])]
        code, output, errors = kernel_host.run(command)
        assert code == 0, errors
        answers: list[Any] = json.loads(output)
        assert answers.pop(0) == "ok", "every vGPU of the test before could be deleted"
        return answers

    return run


@pytest.fixture(scope="module")
def cards(do: Do) -> Iterator[dict[str, Card]]:
    """The first card of each interface, NVIDIA's with VFs enabled; afterwards as they were found."""
    table = read_table(do(["read", "/proc/vgpulab/cards"])[0])
    found, _ = do(["read", f"{table['vf-profile'].path}/sriov_numvfs"], ["program", SRIOV_MANAGE, "-e", "ALL"])
    yield table
    if found == "0":
        do(["program", SRIOV_MANAGE, "-d", "ALL"])


@pytest.fixture
def profile(cards: dict[str, Card]) -> Card:
    return cards["vf-profile"]


@pytest.fixture
def mdev_vf(cards: dict[str, Card]) -> Card:
    return cards["mdev-vf"]


@pytest.fixture
def mdev_pf(cards: dict[str, Card]) -> Card:
    return cards["mdev-pf"]


@pytest.fixture
def plain(cards: dict[str, Card], do: Do) -> Iterator[Card]:
    """Intel's card without VFs and as the kernel has it at first; afterwards as it was found."""
    card = cards["vf"]
    count, autoprobe = f"{card.path}/sriov_numvfs", f"{card.path}/sriov_drivers_autoprobe"
    found = do(["read", count], ["read", autoprobe], ["write", count, "0"], ["write", autoprobe, "1"])
    assert found[2:] == ["ok", "ok"]
    yield card
    assert do(["write", count, "0"], ["write", autoprobe, found[1]], ["write", count, found[0]]) == ["ok"] * 3
