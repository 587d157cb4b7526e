# SPDX-License-Identifier: Apache-2.0
"""Folders of an inventory whose links lead back, or multiply, end in an error and not in a walk without end."""

import itertools
from pathlib import Path

import pytest

from vgpuctl.errors import InventoryError
from vgpuctl.inventory import load_inventory


def _inventory(folder: Path) -> Path:
    (folder / "hosts.yml").write_text("all:\n  hosts:\n    h1:\n")
    return folder


@pytest.mark.parametrize("place", ["host_vars/h1/deep", "more"])
@pytest.mark.parametrize("names", [["loop"], ["one", "two"]])
def test_a_link_that_leads_back_is_named(place: str, names: list[str], tmp_path: Path) -> None:
    folder = _inventory(tmp_path) / place
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).symlink_to(folder.parent)
    with pytest.raises(InventoryError, match=rf"{place}/{names[0]}.*leads back to a folder that it is in"):
        load_inventory([tmp_path]).target("h1")


def test_links_that_multiply_are_bounded(tmp_path: Path) -> None:
    """Each of 20 folders has two links to the next: a million ways."""
    _inventory(tmp_path)
    chain = [tmp_path.parent / f"{tmp_path.name}-{number}" for number in range(20)]
    for folder, after in itertools.pairwise(chain):
        folder.mkdir()
        (folder / "a").symlink_to(after)
        (folder / "b").symlink_to(after)
    chain[-1].mkdir()
    (tmp_path / "more").symlink_to(chain[0])
    with pytest.raises(InventoryError, match="more than 10000 folders"):
        load_inventory([tmp_path])


def test_a_folder_that_is_linked_twice_is_read_twice(tmp_path: Path) -> None:
    folder = _inventory(tmp_path) / "host_vars" / "h1"
    folder.mkdir(parents=True)
    shared = tmp_path.parent / f"{tmp_path.name}-shared"
    shared.mkdir()
    (shared / "a.yml").write_text("ansible_port: 23\n")
    (folder / "one").symlink_to(shared)
    (folder / "two").symlink_to(shared)
    assert load_inventory([tmp_path]).target("h1").port == 23
