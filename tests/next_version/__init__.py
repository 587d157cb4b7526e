# SPDX-License-Identifier: Apache-2.0
"""A made-up next vgpuctl, whose store has one schema more than this one's: proofs of upgrades need something newer.

It is this version's code with the migration in versions/. `python -m tests.next_version COMMAND` runs a command of it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.store.samples import host_facts, lease, reserve, vm
from vgpuctl.model.lease import LeaseState
from vgpuctl.store import migrations, upgrade
from vgpuctl.store.schema import SCHEMA_VERSION
from vgpuctl.store.store import open_store

if TYPE_CHECKING:
    from alembic.config import Config

VERSION = "0.2.1"
SCHEMA = f"{int(SCHEMA_VERSION) + 1:04}"
_FOLDERS = (f"{migrations.__path__[0]}/versions", str(Path(__file__).parent / "versions"))
_config = upgrade.config


def become(patch: Callable[[str, Any], object]) -> None:
    """Let this process be the next version. patch: sets what has a dotted name, as monkeypatch does."""
    patch("vgpuctl.__version__", VERSION)
    patch("vgpuctl.store.upgrade.config", _config_with_made_up)
    for module in ("backup", "restore", "upgrade"):
        patch(f"vgpuctl.store.{module}.SCHEMA_VERSION", SCHEMA)


def fill_store(url: str) -> list[str]:
    """Make a store of this version with two tenants, a VM of each, and a row of the ledger. Returns `TENANT/VM`."""
    tenants = ("a.b", "acme")
    with open_store(url) as store, store.transaction() as session:
        session.save_facts("gpu1", host_facts(), 1.0)
        for tenant in tenants:
            session.add_tenant(tenant)
            session.add_vm(vm(tenant=tenant))
        held = lease()
        reserve(session, held)
        session.set_lease_state(held.id, LeaseState.RUNNING)
    return [f"{tenant}/web-1" for tenant in tenants]


def _config_with_made_up(*arguments: Any) -> "Config":
    made = _config(*arguments)
    made.set_main_option("version_locations", os.pathsep.join(_FOLDERS))
    return made
