# SPDX-License-Identifier: Apache-2.0
"""Every layout of every MIG board of the catalogue: set, read, compare, and back; anything else is refused."""

import random

import pytest

from tests.unit.lab.mig_card import Card, Multiset, all_layouts, tables
from vgpuctl import catalog
from vgpuctl.model.layout import WantedInstance
from vgpuctl.planner.mig_geometry import GeometryPlan, GeometryTable, Impossible, check, plan_geometry, table_of_board

TABLES = tables()
SAMPLE = 150


def _planner_table(key: str) -> GeometryTable:
    board = next(board for board in catalog.boards().values() if board.mig.table == key)
    table = table_of_board(board)
    assert table is not None
    return table


def _wanted(layout: Multiset) -> list[WantedInstance]:
    return [WantedInstance(name) for name, count in layout for _ in range(count)]


def _apply(card: Card, plan: GeometryPlan) -> None:
    """Do as planned, in the plan's order; the card refuses what breaks a rule."""
    for one in plan.destroy:
        card.destroy(one.id)
    for placed in plan.create:
        card.create(placed.profile, placed.start)


def _reach(card: Card, table: GeometryTable, layout: Multiset) -> GeometryPlan:
    plan = plan_geometry(table, _wanted(layout), card.instances)
    assert isinstance(plan, GeometryPlan), plan
    _apply(card, plan)
    assert card.layout() == layout
    return plan


@pytest.mark.parametrize("key", sorted(TABLES))
def test_every_layout_is_reached_from_empty_and_left_again(key: str) -> None:
    table = _planner_table(key)
    layouts = all_layouts(key)
    assert len(layouts) > 3
    for layout in layouts:
        card = Card(TABLES[key])
        _reach(card, table, layout)
        again = plan_geometry(table, _wanted(layout), card.instances)
        assert again == GeometryPlan(keep=tuple(sorted(card.instances, key=lambda one: one.start)))
        _reach(card, table, ())


@pytest.mark.parametrize("key", sorted(TABLES))
def test_one_profile_more_than_any_layout_has_is_refused(key: str) -> None:
    """The edge of the space: no layout is missed, and nothing beside them is let through."""
    table = _planner_table(key)
    layouts = set(all_layouts(key))
    for layout in layouts:
        for name in table.by_name:
            counts = dict(layout)
            counts[name] = counts.get(name, 0) + 1
            more = tuple(sorted(counts.items()))
            assert (check(table, _wanted(more)) is None) == (more in layouts), more


@pytest.mark.parametrize("key", sorted(TABLES))
def test_any_layout_is_reached_from_any_other_without_losing_what_both_have(key: str) -> None:
    table = _planner_table(key)
    layouts = all_layouts(key)
    chosen = random.Random(key)
    for _ in range(SAMPLE):
        before, after = chosen.choice(layouts), chosen.choice(layouts)
        card = Card(TABLES[key])
        _reach(card, table, before)
        plan = _reach(card, table, after)
        if set(before) <= set(after) and not plan.destroy:
            assert len(plan.keep) == sum(count for _, count in before)


@pytest.mark.parametrize("key", sorted(TABLES))
def test_an_instance_in_use_is_kept_or_named_as_the_reason(key: str) -> None:
    table = _planner_table(key)
    layouts = [layout for layout in all_layouts(key) if layout]
    chosen = random.Random(key)
    outcomes = set()
    for _ in range(SAMPLE):
        before, after = chosen.choice(layouts), chosen.choice(layouts)
        card = Card(TABLES[key])
        _reach(card, table, before)
        index = chosen.randrange(len(card.instances))
        held = card.instances[index]
        card.instances[index] = held = type(held)(held.id, held.profile, held.start, held.size, in_use=True)
        plan = plan_geometry(table, _wanted(after), card.instances)
        if isinstance(plan, Impossible):
            assert (plan.code, plan.in_use) == ("mig-in-use", (held,))
            near = plan_geometry(table, plan.nearest, card.instances)
            assert isinstance(near, GeometryPlan)
            plan = near
        assert held in plan.keep
        _apply(card, plan)
        outcomes.add(type(plan))
    assert outcomes == {GeometryPlan}


@pytest.mark.parametrize("key", sorted(TABLES))
def test_the_nearest_of_what_does_not_fit_does_fit(key: str) -> None:
    table = _planner_table(key)
    layouts = set(all_layouts(key))
    chosen = random.Random(key)
    for _ in range(40):
        names = [chosen.choice(sorted(table.by_name)) for _ in range(chosen.randint(1, 9))]
        plan = plan_geometry(table, [WantedInstance(name) for name in names], ())
        near = [one.profile for one in plan.nearest] if isinstance(plan, Impossible) else names
        multiset = tuple(sorted((name, near.count(name)) for name in set(near)))
        assert near
        assert multiset in layouts
