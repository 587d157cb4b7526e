# SPDX-License-Identifier: Apache-2.0
"""A store with two VMs of a tenant, and an empty history."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.fleet_factory import vm
from vgpuctl.model.vm import Vm, VmState
from vgpuctl.store.store import Store, open_store
from vgpuctl.telemetry.history import History

NOW = 1_800_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/store.db", clock=lambda: NOW) as opened:
        with opened.transaction() as session:
            session.add_tenant("acme")
            for name in ("web", "db"):
                session.add_vm(Vm(f"uuid-{name}", vm(name=name), "gpu1", VmState.RUNNING))
        yield opened


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "history") as opened:
        yield opened
