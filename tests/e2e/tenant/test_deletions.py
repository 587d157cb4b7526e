# SPDX-License-Identifier: Apache-2.0
"""Deleting several things of the store by one command: globs, names that are missing, one that cannot go, dry runs."""

from pathlib import Path

import pytest

from tests.e2e.operator import Operator


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """An operator with images and licence pools in the store, and no host."""
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("all: {hosts: {}}\n")
    made = Operator(tmp_path, inventory, f"sqlite:///{tmp_path}/store.db")
    for name in ("debian-12", "debian-13", "fedora"):
        place = ("--path", f"/images/{name}.qcow2", "--format", "qcow2")
        made.does("register-image", name, *place, "--checksum", f"sha256:{'0' * 64}")
    for name in ("a-1", "a-2", "b-1"):
        made.does("create-licence-pool", name, "--edition", "vws", "--seats", "2")
    return made


def test_globs_and_names_are_found_before_anything_is_deleted(operator: Operator) -> None:
    refused = operator.is_refused("delete-image", "debian-*", "arch", "--yes")
    assert (refused["reference"], refused["exit_code"]) == ("not-found", 6)
    refused = operator.is_refused("delete-image", "arch-*", "--yes")
    assert (refused["message"], refused["exit_code"]) == ("no image fits arch-*", 6)
    assert operator.json("delete-image", "debian-*", "--dry-run") == {
        "deleted": [],
        "would_delete": ["debian-12", "debian-13"],
        "dry_run": True,
    }
    assert len(operator.json("list-images")) == 3
    done = operator.does("delete-image", "debian-*", "debian-12", "arch", "--if-exists", "--yes", "--json")
    assert "there is no image 'arch', nothing to delete" in done.err
    assert "image debian-12: deleted; /images/debian-12.qcow2 stays on the hosts" in done.err
    assert [one["image"]["name"] for one in operator.json("list-images")] == ["fedora"]
    assert operator.json("delete-image", "*", "--yes") == {"deleted": ["fedora"], "would_delete": [], "dry_run": False}
    assert operator.json("delete-image", "*", "--if-exists", "--yes") == {
        "deleted": [],
        "would_delete": [],
        "dry_run": False,
    }


def test_the_question_names_what_goes_and_how_many(operator: Operator) -> None:
    asked = operator.run("delete-licence-pool", "a-*")
    assert asked.code != 0
    assert "Delete 2 licence pools, with the tokens?" in asked.err
    assert len(operator.json("list-licence-pools")) == 3
    done = operator.does("delete-licence-pool", "a-*", "--yes")
    assert "licence pool a-1: 2 seats of vws" in done.err and "licence pool a-2: deleted" in done.err
