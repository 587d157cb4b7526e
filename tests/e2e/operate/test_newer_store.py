# SPDX-License-Identifier: Apache-2.0
"""Commands that run for long end when a newer vgpuctl has upgraded the store meanwhile."""

import re
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import SIZE
from vgpuctl.store.schema import SCHEMA_VERSION, VERSION_TABLE
from vgpuctl.usecases.operate.division import BEAT_S

FLEET = (1, "a40")
HERE = ("--listen", "127.0.0.1:0")
LONG = {
    "controller": ("--interval", "3600"),
    "exporter": ("--store-only", *HERE),
    "web": ("--cached", *HERE),
    "serve-autoscaler": ("--tenant", "acme", *HERE),
}
BEGUN = re.compile(r"watching the hosts|serving ")


@contextmanager
def _begun(operator: Operator, name: str) -> Iterator["subprocess.Popen[str]"]:
    """A command that has said that it serves."""
    process = operator.start(name, *LONG[name])
    try:
        assert process.stderr is not None
        assert any(BEGUN.match(line) for line in process.stderr), f"{name} ended"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def operator(fleet_operator: Operator) -> Operator:
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("create-node-pool", "gpu", "--tenant", "acme", "--role", "k3s", "--max", "3", *SIZE)
    return fleet_operator


def test_what_runs_for_long_ends_when_a_newer_vgpuctl_has_upgraded_the_store(operator: Operator) -> None:
    with ExitStack() as ends:
        running = {name: ends.enter_context(_begun(operator, name)) for name in LONG}
        with sqlite3.connect(operator.database.removeprefix("sqlite:///"), timeout=30) as store:
            store.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        for name, process in running.items():
            _, err = process.communicate(timeout=60 + 4 * BEAT_S)
            assert process.returncode == 6, f"{name}: {err}"
            assert f"has schema version 9999, this vgpuctl knows up to {SCHEMA_VERSION}" in err, name
    once = operator.run("controller", "--once", "--json")
    assert (once.code, "store-too-new" in once.err) == (6, True), once.err
