# SPDX-License-Identifier: Apache-2.0
"""list-events and show-vm --history as an operator and a collector meet them, on simulated hosts."""

import json
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.operator import Operator

VM = ("--tenant", "acme", "--memory", "96MiB", "--vcpus", "1", "--network", "none")


@pytest.fixture
def shop(tmp_path: Path) -> Operator:
    """An operator with a new store and a host that is never contacted."""
    inventory = tmp_path / "inventory.yml"
    inventory.write_text("all: {hosts: {gpu1: {}}}\n")
    return Operator(tmp_path, inventory, f"sqlite:///{tmp_path}/store.db")


def _line(follower: Any) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(follower.stdout.readline())
    return read


def test_events_are_filtered_by_what_an_operator_knows(shop: Operator) -> None:
    shop.does("create-tenant", "acme")
    shop.does("create-tenant", "umbrella")
    shop.does("set-quota", "acme", "vms=4")
    found = shop.json("list-events", "acme")
    assert [one["kind"] for one in found] == ["tenant-created", "quota-set"]
    assert found[1]["actor"]["command"] == "set-quota"
    assert found[0]["time"].endswith("Z")
    assert [one["subject"] for one in shop.json("list-events", "--command", "create-tenant")] == ["acme", "umbrella"]
    assert [one["kind"] for one in shop.json("list-events", "--limit", "1")] == ["quota-set"]
    assert shop.json("list-events", "--user", "nobody-else") == []
    assert len(shop.json("list-events", "--since", "1h", "--kind", "tenant-*")) == 2
    assert shop.json("list-events", "--until", "1h") == []
    table = shop.does("list-events").out
    assert "set-quota" in table
    refused = shop.is_refused("list-events", "--since", "tomorrow")
    assert refused["reference"] == "usage"
    assert "2h for 2 hours ago" in refused["hint"]


def test_a_filter_that_can_find_nothing_is_refused_or_warned_of(shop: Operator) -> None:
    shop.does("create-tenant", "acme")
    assert "did you mean tenant-created" in shop.does("list-events", "--kind", "tenant-create").err
    assert "docs/events.md lists them" in shop.does("list-events", "--kind", "[a-z]*").err
    assert shop.does("list-events", "--kind", "tenant-*", "--kind", "*-set").err == ""
    assert "not after --since" in shop.is_refused("list-events", "--since", "2h", "--until", "3h")["message"]
    ended = shop.does("list-events", "--follow", "--json", "--since", "1h", "--until", "0.001s")
    assert json.loads(ended.out)["subject"] == "acme", "a period that is over is not followed"


def test_a_follower_prints_each_event_once_and_ends_on_ctrl_c(shop: Operator) -> None:
    shop.does("create-tenant", "acme")
    with shop.start("list-events", "--follow", "--json", "--interval", "0.1") as follower:
        assert _line(follower)["subject"] == "acme"
        shop.does("create-tenant", "umbrella")
        second = _line(follower)
        assert (second["kind"], second["subject"]) == ("tenant-created", "umbrella")
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=60)
    assert (follower.returncode, out, err) == (0, "", "")
    with shop.start("list-events", "--follow", "--json", "--after", str(second["id"] - 1), "--limit", "0") as again:
        assert _line(again) == second
        again.send_signal(signal.SIGTERM)
        out, _err = again.communicate(timeout=60)
    assert (again.returncode, out) == (0, "")


def test_text_of_a_guest_does_not_act_on_the_terminal(shop: Operator) -> None:
    shop.does("create-tenant", "acme")
    with sqlite3.connect(shop.home / "store.db") as database:
        database.execute(
            "INSERT INTO events (at, kind, subject, detail) VALUES (1, 'vm-crashed', 'acme.web', ?)",
            ("guest said \x1b]0;owned\x07\n\u202e",),
        )
    shown = shop.does("list-events", "acme.web").out
    assert "\x1b" not in shown
    assert r"\x1b]0;owned\x07\n\u202e" in shown
    raw = shop.does("list-events", "acme.web", "--json").out
    assert "\x1b" not in raw
    assert json.loads(raw)[0]["detail"] == "guest said \x1b]0;owned\x07\n\u202e"


def test_events_are_kept_as_long_as_the_operator_says(shop: Operator) -> None:
    shop.does("create-tenant", "acme")
    assert shop.json("prune-events", "--older-than", "1d")["count"] == 0
    assert shop.json("prune-events", "--older-than", "0.001s", "--dry-run")["count"] == 1
    assert shop.is_refused("prune-events", "--older-than", "0.001s")["reference"] == "usage", "nobody said yes"
    shop.does("prune-events", "--older-than", "0.001s", "--yes")
    assert [one["kind"] for one in shop.json("list-events")] == ["events-pruned"]


def test_the_history_of_a_vm_outlives_it(fleet_operator: Operator) -> None:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-vm", "web-1", "--gpu", "A40-8Q", *VM)
    fleet_operator.does("delete-vm", "web-1", "--tenant", "acme", "--yes", "--timeout", "0")
    history = fleet_operator.json("show-vm", "web-1", "--tenant", "acme", "--history")
    kinds = [one["kind"] for one in history]
    assert (kinds[0], kinds[-1]) == ("lease-reserved", "vm-deleted")
    assert {"vm-created", "share-checked", "lease-released"} < set(kinds)
    (checked,) = [one for one in history if one["kind"] == "share-checked"]
    assert checked["evidence"]["reset"], "how the GPU was given back"
    assert "vm-deleted" in fleet_operator.does("show-vm", "web-1", "--tenant", "acme", "--history").out
    other = fleet_operator.does("show-vm", "web-2", "--tenant", "acme", "--history")
    assert "no event of acme/web-2" in other.err
