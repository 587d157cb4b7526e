# SPDX-License-Identifier: Apache-2.0
"""The files of a disk as the store records them: overlays in their order, without those that do not count."""

from dataclasses import replace

from vgpuctl.model.disk_chain import DiskChain, chains, overlay_on, snapshots_of
from vgpuctl.model.volume import Volume, VolumeKind, VolumeState

DISK = Volume("u", "acme", "web", "gpu1", VolumeKind.DISK, "default", "u.qcow2", VolumeState.MADE, 64, path="/u.qcow2")
DATA = replace(DISK, kind=VolumeKind.DATA, name="u-data-d.qcow2", path="/u-data-d.qcow2", label="d")
OTHER = replace(DATA, name="u-data-e.qcow2", path="/u-data-e.qcow2", label="e")


def _on(below: Volume, disk: Volume, snapshot: str) -> Volume:
    """The made overlay of a snapshot on a disk."""
    wanted = overlay_on(DiskChain(disk), snapshot, 64)
    return replace(wanted, state=VolumeState.MADE, path=f"/{wanted.name}", backing_path=below.path)


FIRST, FIRST_DATA = _on(DISK, DISK, "a"), _on(DATA, DATA, "a")
SECOND, SECOND_DATA = _on(FIRST, DISK, "b"), _on(FIRST_DATA, DATA, "b")
ALL = (SECOND_DATA, OTHER, FIRST, DATA, SECOND, FIRST_DATA, DISK)


def _labels(volumes: tuple[Volume, ...], used: set[str] | None = None) -> list[list[str]]:
    return [[one.label for one in chain.overlays] for chain in chains(volumes, used)]


def test_each_disk_has_its_own_overlays_lowest_first() -> None:
    assert FIRST.name == "u.a.qcow2" and SECOND_DATA.label == "b/d"
    assert _labels(ALL) == [["a/", "b/"], ["a/d", "b/d"], []]
    assert snapshots_of(ALL) == ["a", "b"]
    chain = chains(ALL)[0]
    assert (chain.active, chain.below(SECOND), chain.below(FIRST)) == (SECOND, FIRST, DISK)
    assert chain.overlay_of("a") == FIRST and chain.overlay_of("c") is None


def test_a_merging_overlay_counts_while_its_domain_has_it() -> None:
    merging = tuple(replace(one, state=VolumeState.MERGING) if one == SECOND else one for one in ALL)
    assert _labels(merging)[0] == ["a/", "b/"]
    assert _labels(merging, {SECOND.path or ""})[0] == ["a/", "b/"]
    assert _labels(merging, {FIRST.path or ""})[0] == ["a/"]
    assert snapshots_of(merging) == ["a", "b"]


def test_a_snapshot_of_which_one_overlay_was_not_made_counts_for_no_disk() -> None:
    unmade = replace(SECOND_DATA, state=VolumeState.INTENDED, path=None, backing_path=None)
    left = tuple(unmade if one == SECOND_DATA else one for one in ALL)
    assert _labels(left) == [["a/"], ["a/d"], []]
    assert snapshots_of(left) == ["a", "b"], "the next run of the command finds what is left of it"


def test_a_dropped_overlay_is_in_no_chain() -> None:
    dropped = tuple(replace(one, state=VolumeState.DETACHING) if one == SECOND else one for one in ALL)
    assert _labels(dropped) == [["a/"], ["a/d", "b/d"], []]
