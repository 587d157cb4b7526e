# SPDX-License-Identifier: Apache-2.0
"""A store that vgpuctl 0.1.0 filled on simulated hosts (tests/release/first_release.py) opens, and says the same."""

import re
import sqlite3
from pathlib import Path

import pytest

from tests.postgres_fixture import LocalPostgres
from vgpuctl.model.vm import VmState
from vgpuctl.quota.limits import Quota
from vgpuctl.store.store import open_store

DUMPS = Path(__file__).parents[2] / "data" / "stores"


def _load(url: str, request: pytest.FixtureRequest) -> None:
    """Make the store of the dump at `url`."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as opened:
            opened.executescript((DUMPS / "0.1.0-sqlite.sql").read_text())
        opened.close()
        return
    server: LocalPostgres = request.getfixturevalue("postgres")
    # Lines that begin with a backslash are psql's own.
    text = re.sub(r"^\\.*$", "", (DUMPS / "0.1.0-postgresql.sql").read_text(), flags=re.MULTILINE)
    server.execute(text, database=url.rpartition("/")[2])


def test_a_store_of_the_first_release_says_the_same_after_its_upgrade(url: str, request: pytest.FixtureRequest) -> None:
    _load(url, request)
    with open_store(url) as store, store.reading() as session:
        assert {(vm.request.tenant, vm.request.name): vm.state for vm in session.vms()} == {
            ("acme", "web-1"): VmState.RUNNING,
            ("acme", "web-2"): VmState.RUNNING,
            ("umbrella", "idle"): VmState.STOPPED,
        }
        assert [one.name for one in session.tenants()] == ["acme", "umbrella"]
        assert session.quotas("acme") == [Quota("shares:A40-8Q", 6), Quota("vms", 9)]
        assert [one.share.profile for one in session.leases()] == ["A40-24Q"] * 3
        (queued,) = session.queue()
        assert (queued.request.tenant, queued.request.name, queued.may_preempt) == ("umbrella", "nightly", False)
        assert [(one.tenant, one.name) for one in session.reservations()] == [("acme", "batch")]
        assert len(session.events(None)) >= 8
