# SPDX-License-Identifier: Apache-2.0
"""Every list is in natural order of its names; the few with an order of their own are named here with the reason."""

import dataclasses
import importlib
import pkgutil
import random
from collections.abc import Iterator
from typing import Any

import pytest

import vgpuctl.cli
from vgpuctl.cli.lists.listing import Column, Listing, ListOutput
from vgpuctl.model.natural_order import natural, natural_path

OWN_ORDER = {
    "vgpuctl.cli.disk.snapshots": "as they lie on one another",
    "vgpuctl.cli.host.list_profiles": "of a GPU, the smallest first",
    "vgpuctl.cli.operate.show_config": "the groups of settings",
    "vgpuctl.cli.placement.queue": "the order in which the queue is served",
    "vgpuctl.cli.placement.reservations": "by their next begin",
    "vgpuctl.cli.lists.event_output": "by time",
    "vgpuctl.cli.network.list_security_rules": "of a group, as they decide",
    "vgpuctl.cli.telemetry.list_targets": "hosts before guests",
    "vgpuctl.cli.tenant.show_usage": "intervals by time",
}
NAMES = ["acme/web-1", "acme/web-2", "acme/web-10", "acme-2/a", "acme-10/a", "Bob/9", "bob/11"]


def _listings() -> Iterator[tuple[str, Listing[Any, Any]]]:
    for module in pkgutil.walk_packages(vgpuctl.cli.__path__, "vgpuctl.cli."):
        found = importlib.import_module(module.name)
        yield from ((module.name, one) for one in vars(found).values() if isinstance(one, Listing))


def test_every_list_is_in_natural_order_of_its_names() -> None:
    every = [(module, one) for module, one in _listings() if getattr(one.name, "__module__", "") == module]
    assert len(every) > 20
    assert {module for module, one in every if one.in_order} == OWN_ORDER.keys()
    for module, one in every:
        if not one.in_order:
            named = dataclasses.replace(one, name=str)
            shuffled = random.Random(module).sample(NAMES, len(NAMES))
            assert list(named.wanted(shuffled, ListOutput())) == NAMES, module


def test_an_order_of_its_own_stays() -> None:
    listing: Listing[str, str] = Listing((Column("NAME", str),), str, str, "none", in_order=True)
    assert list(listing.wanted(["b", "a"], ListOutput())) == ["b", "a"]
    assert list(listing.wanted(["b", "a"], ListOutput(sort_by=("name",)))) == ["a", "b"]


@pytest.mark.parametrize(
    "names",
    [
        NAMES,
        ["0000:0a:00.0", "0000:17:00.0", "0000:1f:00.0", "0001:01:00.0"],
        ["gpu1/0000:0a:00.0", "gpu2/0000:01:00.0", "gpu10/0000:01:00.0"],
        ["10.0.0.9:9400", "10.0.0.10:9400"],
        ["", "1", "a", "a1", "a1b", "a02", "b"],
    ],
)
def test_numbers_are_compared_by_size_and_addresses_as_text(names: list[str]) -> None:
    for seed in range(5):
        assert sorted(random.Random(seed).sample(names, len(names)), key=natural_path) == names


def test_keys_of_any_two_texts_can_be_compared() -> None:
    texts = ["1a", "a1", "0000:0a:00.0", "x0000:0a:00.0", "9" * 40, "-", "é1"]
    assert len(sorted(texts, key=natural)) == len(texts)
