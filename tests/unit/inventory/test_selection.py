# SPDX-License-Identifier: Apache-2.0
"""Host ranges and `--limit` patterns."""

import re
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.errors import InventoryError
from vgpuctl.inventory import Inventory, host_names, load_inventory
from vgpuctl.specs.origin import Origin

FLEET = Path(__file__).parents[2] / "data" / "inventory" / "limit_exclude_and_intersect" / "hosts.yml"
HERE = Origin("test")
few = settings(max_examples=40, deadline=None)


@pytest.fixture(scope="module")
def fleet() -> Inventory:
    return load_inventory([FLEET])


GPUS = [f"gpu{number}" for number in range(1, 7)]


@pytest.mark.parametrize(
    ("limit", "chosen"),
    [
        (None, ["stray", *GPUS, "web1"]),
        ("all", ["stray", *GPUS, "web1"]),
        ("*", ["stray", *GPUS, "web1"]),
        ("gpu3", ["gpu3"]),
        ("gpu_hosts", GPUS),
        ("gpu_hosts:!gpu3:&rack1", ["gpu1", "gpu2"]),
        ("&rack1:gpu_hosts:!gpu3", ["gpu1", "gpu2"]),
        ("gpu_hosts,!rack1", ["gpu4", "gpu5", "gpu6"]),
        ("gpu6, gpu1 ,", ["gpu1", "gpu6"]),
        ("!gpu_hosts", ["stray", "web1"]),
        ("&rack1", ["gpu1", "gpu2", "gpu3", "web1"]),
        ("gpu[12]*", ["gpu1", "gpu2"]),
        ("rack?:!gpu*", ["web1"]),
        ("ungrouped", ["stray"]),
        ("~(gpu|web)1", ["gpu1", "web1"]),
        ("gpu_hosts[0]", ["gpu1"]),
        ("gpu_hosts[-1]", ["gpu6"]),
        ("gpu_hosts[0:2]", ["gpu1", "gpu2", "gpu3"]),
        ("gpu_hosts[4:]", ["gpu5", "gpu6"]),
        ("gpu_hosts[4:99]", ["gpu5", "gpu6"]),
        ("both[0:1]:gpu_hosts[5]", ["gpu1", "gpu2", "gpu6"]),
        ("gpu[12]", ["gpu1", "gpu2"]),
        ("gpu[2-4],!gpu[3]", ["gpu2", "gpu4"]),
        ("gpu[2:4]:web1", ["gpu2", "gpu3", "gpu4", "web1"]),
        ("gpu[5:9]", ["gpu5", "gpu6"]),
        ("gpu[1:6:2]", ["gpu1", "gpu3", "gpu5"]),
        ("gpu[1:3]*", ["gpu1", "gpu2", "gpu3"]),
        ("gpu_hosts:!gpu[1:6:2]", ["gpu2", "gpu4", "gpu6"]),
        ("gpu[4:999]", ["gpu4", "gpu5", "gpu6"]),
    ],
)
def test_limit_chooses_hosts_in_the_order_of_the_inventory(
    fleet: Inventory, limit: str | None, chosen: list[str]
) -> None:
    assert fleet.select(limit) == chosen


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("gpu9", "did you mean gpu6 or gpu5 or gpu4?"),
        ("gpu_host", "did you mean gpu_hosts"),
        ("gpu_hosts:!gpu33", "did you mean gpu3"),
        ("nothing_like_it", "the inventory has gpu_hosts"),
        ("localhost", "no host or group of the inventory fits"),
        ("~gpu(", "not a regular expression"),
        ("gpu_hosts[6]", "has 6 hosts, counted from 0"),
        ("gpu1:&rack2", "leaves no host"),
        ("gpu_hosts[7:9]", "leaves no host"),
        ("gpu[78]", "no host or group of the inventory fits"),
        ("gpu[7:9]", "no host or group of the inventory fits"),
        ("gpu[2:]", "the range has no end"),
        ("", "--limit is empty"),
        (" , ", "--limit is empty"),
        ("@absent.txt", "No such file or directory"),
    ],
)
def test_limit_that_fits_nothing_is_refused(fleet: Inventory, limit: str, words: str) -> None:
    with pytest.raises(InventoryError) as refused:
        fleet.select(limit)
    assert words in f"{refused.value.message}\n{refused.value.hint}"


@pytest.mark.parametrize(("pattern", "words"), [("", "--hosts is empty"), ("gpu9", "--hosts gpu9: no host or group")])
def test_errors_name_the_option(fleet: Inventory, pattern: str, words: str) -> None:
    with pytest.raises(InventoryError) as refused:
        fleet.select(pattern, option="--hosts")
    assert refused.value.message.startswith(words)


def test_limit_reads_patterns_from_a_file(fleet: Inventory, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    chosen.write_text("# the first rack\nrack1\n\n  !web1 \n")
    assert fleet.select(f"@{chosen}") == ["gpu1", "gpu2", "gpu3"]
    assert fleet.select(f"@{chosen},gpu6") == ["gpu1", "gpu2", "gpu3", "gpu6"]
    chosen.write_text("\n")
    with pytest.raises(InventoryError, match="names no host"):
        fleet.select(f"@{chosen}")


def test_groups_hold_the_hosts_of_their_children(fleet: Inventory) -> None:
    assert fleet.groups["both"] == ("gpu1", "gpu2", "gpu3", "web1", "gpu4", "gpu5", "gpu6")
    assert fleet.groups_of("gpu5") == ("both", "gpu_hosts", "rack2")


def test_skipped_keys_are_told() -> None:
    inventory = load_inventory([FLEET.parents[1] / "yaml_skipped_keys" / "hosts.yml"])
    told = "\n".join(inventory.warnings)
    assert "hosts.yml:5: 'ansible_user' in group 'all' is skipped" in told
    assert "hosts.yml:3: key 'a' is written twice" in told
    assert "hosts.yml:11: key 'hosts' is written twice" in told


@few
@given(
    begin=st.integers(0, 300),
    count=st.integers(1, 60),
    step=st.integers(1, 7),
    width=st.integers(0, 5),
    tail=st.sampled_from(["", ".lab"]),
)
def test_numeric_range_names_every_step_once(begin: int, count: int, step: int, width: int, tail: str) -> None:
    end = begin + count - 1
    first, last = str(begin).zfill(width), str(end).zfill(width)
    if first.startswith("0") and len(first) > 1 and len(first) != len(last):
        with pytest.raises(InventoryError):
            host_names.expand(f"gpu[{first}:{last}:{step}]{tail}", HERE)
        return
    names = host_names.expand(f"gpu[{first}:{last}:{step}]{tail}", HERE)
    numbers = [re.fullmatch(rf"gpu(\d+){re.escape(tail)}", name) for name in names]
    assert [int(match[1]) for match in numbers if match] == list(range(begin, end + 1, step))
    if first.startswith("0") and len(first) > 1:
        assert {len(match[1]) for match in numbers if match} == {len(first)}


@few
@given(bounds=st.lists(st.sampled_from(string.ascii_letters), min_size=2, max_size=2), step=st.integers(1, 5))
def test_alphabetic_range_runs_from_a_to_z_then_capitals(bounds: list[str], step: int) -> None:
    first, last = sorted(bounds, key=string.ascii_letters.index)
    names = host_names.expand(f"[{first}:{last}:{step}]x", HERE)
    letters = string.ascii_letters
    assert names == [f"{letter}x" for letter in letters[letters.index(first) : letters.index(last) + 1 : step]]
    if first != last:
        with pytest.raises(InventoryError):
            host_names.expand(f"[{last}:{first}]", HERE)


@few
@given(st.text(alphabet="ab1:[]-.", max_size=14))
def test_any_host_name_is_expanded_or_refused(text: str) -> None:
    try:
        address, port = host_names.split_port(text, HERE)
        names = host_names.expand(address, HERE)
    except InventoryError:
        return
    assert names
    assert port is None or 1 <= port <= 65535


names_of_the_fleet = st.sampled_from([*GPUS, "web1", "stray", "gpu_hosts", "rack1", "rack2", "both", "all", "gpu*"])


@few
@given(
    st.lists(names_of_the_fleet, min_size=1, max_size=3),
    st.lists(names_of_the_fleet, max_size=2),
    st.lists(names_of_the_fleet, max_size=2),
    st.randoms(use_true_random=False),
)
def test_limit_is_union_then_intersection_then_difference(
    fleet: Inventory, joined: list[str], kept: list[str], taken: list[str], random: st.DataObject
) -> None:
    def hosts(name: str) -> set[str]:
        return {host for host in fleet.hosts() if host.startswith("gpu")} if name == "gpu*" else set(fleet.select(name))

    expected = set().union(*(hosts(name) for name in joined))
    for name in kept:
        expected &= hosts(name)
    for name in taken:
        expected -= hosts(name)
    parts = [*joined, *(f"&{name}" for name in kept), *(f"!{name}" for name in taken)]
    random.shuffle(parts)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    if expected:
        assert set(fleet.select(":".join(parts))) == expected
    else:
        with pytest.raises(InventoryError, match="leaves no host"):
            fleet.select(":".join(parts))


@few
@given(st.text(max_size=12))
def test_any_limit_chooses_known_hosts_or_is_refused(fleet: Inventory, limit: str) -> None:
    if limit.lstrip(" ,:").startswith("@"):
        return
    try:
        chosen = fleet.select(limit)
    except InventoryError:
        return
    assert chosen
    assert set(chosen) <= set(fleet.hosts())


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("gpu[3:1]", "--limit host range 'gpu[3:1]': the range runs backwards, from 3 to 1"),
        ("gpu[1:99999999999]", "--limit 'gpu[1:99999999999]' names more than 100000 hosts"),
        ("gpu[1:6:0]", "--limit host range 'gpu[1:6:0]': the step is 0"),
        ("gpu[7:9]", "--limit"),
        ("[", "--limit"),
    ],
)
def test_a_range_that_names_no_host_is_refused_and_not_taken_for_characters(
    fleet: Inventory, limit: str, told: str
) -> None:
    with pytest.raises(InventoryError) as refused:
        fleet.select(limit)
    assert refused.value.message.startswith(told) and "is empty" not in refused.value.message
