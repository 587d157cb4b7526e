# SPDX-License-Identifier: Apache-2.0
"""The catalogue: up to date, whole, and found by every name and id that hosts and users write."""

import subprocess
import sys

import pytest

from vgpuctl import catalog
from vgpuctl.catalog.build import DATA, build


def test_catalog_json_is_what_the_yaml_files_say() -> None:
    assert (DATA / "catalog.json").read_bytes() == build(), "run `python -m vgpuctl.catalog.build`"


def test_every_board_type_and_mig_profile_is_there() -> None:
    boards = catalog.boards().values()
    own = [board for board in boards if board.types_key == board.key]
    assert (len(boards), sum(len(catalog.types_of(board)) for board in own)) == (94, 1176)
    tables = {table.key: table for board in boards if (table := catalog.mig_table(board))}
    assert sum(len(table.profiles) for table in tables.values()) == 122


@pytest.mark.parametrize(
    ("ids", "key"),
    [
        (("10de", "2235", "10de:145a"), "nvidia-a40"),
        (("0x10de", "0x2235", None), "nvidia-a40"),
        (("10DE", "2235", "10de:ffff"), "nvidia-a40"),
        (("10de", "25b6", "10de:157e"), "nvidia-a2"),
        (("10de", "25b6", "0x10de:0x14a9"), "nvidia-a16"),
        (("10de", "2bb3", "17aa:204d"), "nvidia-rtx-pro-5000-blackwell"),
        (("10de", "2bb3", "17aa:227a"), "nvidia-rtx-pro-5000-72gb-blackwell"),
        (("10de", "31c3", None), "nvidia-gb300"),
        (("1002", "75a3", None), "amd-mi355x"),
        (("8086", "0bd9", None), "intel-max-1100"),
    ],
)
def test_pci_ids_find_the_board(ids: tuple[str, str, str | None], key: str) -> None:
    board = catalog.board_by_pci(*ids)
    assert board is not None
    assert board.key == key


@pytest.mark.parametrize("ids", [("10de", "25b6", None), ("10de", "25b6", "10de:ffff"), ("10de", "ffff", None)])
def test_pci_ids_of_no_board_or_of_several_find_none(ids: tuple[str, str, str | None]) -> None:
    assert catalog.board_by_pci(*ids) is None


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("A40", ["nvidia-a40"]),
        ("a40", ["nvidia-a40"]),
        ("NVIDIA A40", ["nvidia-a40"]),
        ("Tesla T4", ["nvidia-t4"]),
        ("flex-170", ["intel-flex-170"]),
        ("Flex 170", ["intel-flex-170"]),
        ("RTX 6000 Ada", ["nvidia-rtx-6000-ada"]),
        ("A4", []),
        ("", []),
    ],
)
def test_a_board_is_found_as_users_write_it(text: str, keys: list[str]) -> None:
    assert [board.key for board in catalog.boards_named(text)] == keys


def test_a_family_name_means_all_its_boards() -> None:
    keys = {board.key for board in catalog.boards_named("h100")}
    assert {"nvidia-h100-pcie-80gb", "nvidia-h100-nvl", "nvidia-h100-sxm5-80gb"} <= keys


def test_type_ids_are_found_as_both_interfaces_write_them() -> None:
    a40 = catalog.board("nvidia-a40")
    found = [catalog.type_by_id(a40, text) for text in ("562", "nvidia-562", "i915-GVTg_V5_4", "0")]
    assert [one.name if one else None for one in found] == ["A40-8Q", "A40-8Q", None, None]


def test_a_name_tells_series_and_mig_as_the_catalogue_does() -> None:
    for board in catalog.boards().values():
        for one in catalog.types_of(board):
            assert catalog.is_mig_backed(one.name) == one.is_mig_backed, one.name
            assert catalog.series_of(one.name) == one.series, one.name


def test_a_short_name_is_the_full_name_without_vendor_and_board() -> None:
    for board in catalog.boards().values():
        for one in catalog.types_of(board):
            assert one.full_name is None or catalog.short_name(one.full_name) == one.name


def test_a_type_knows_its_boards() -> None:
    assert [board.key for board in catalog.boards_with_type("A40-8Q")] == ["nvidia-a40"]
    assert {board.key for board in catalog.boards_with_type("A30-1-6C")} == {"nvidia-a30", "nvidia-a30x"}
    assert catalog.boards_with_type("a40-8q") == ()


def test_mixed_size_placements_stay_inside_their_region() -> None:
    table = catalog.mixed_size_table(catalog.board("nvidia-a40"))
    assert table is not None
    assert table.sizes[8] == (0, 16, 24, 40)
    assert all(start + size <= table.region_size for size, starts in table.sizes.items() for start in starts)
    assert catalog.mixed_size_table(catalog.board("nvidia-t4")) is None


def test_yaml_is_not_imported_to_read_the_catalogue() -> None:
    program = "import sys; from vgpuctl import catalog; catalog.boards(); print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
