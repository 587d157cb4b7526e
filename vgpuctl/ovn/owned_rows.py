# SPDX-License-Identifier: Apache-2.0
"""Owners of the rows of the northbound database, kept while the database reports changes.

Looking through every row for each tenant's would make one more network cost more with every network there is.
"""

import errno
from typing import Any

from ovs.db.idl import ROW_DELETE
from ovsdbapp.backend.ovs_idl.connection import OvsdbIdl

from vgpuctl.byte_budget import ByteBudget

OWNER, KEY = "vgpuctl-owner", "vgpuctl-key"
Place = tuple[str, str, str]


class OwnedRowsIdl(OvsdbIdl):  # type: ignore[misc]  # ovsdbapp has no types
    """The copy of the database that also keeps its rows by owner. owned: owner → (owner, table, key) → row.

    budget: of the bytes that the database may send.
    """

    budget: ByteBudget | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.owned: dict[str, dict[Place, Any]] = {}
        self._places: dict[Any, Place] = {}
        super().__init__(*arguments, **options)

    def run(self) -> bool:
        """Take what came, as `Idl.run`. Raises OSError while connecting to a database that sends too much."""
        if self.budget is not None and self.budget.refusal is not None and not self.has_ever_connected():
            raise OSError(errno.EMSGSIZE, self.budget.refusal)
        return bool(super().run())

    def notify(self, event: str, row: Any, updates: Any = None) -> None:
        """Take note of one row that came, changed or went."""
        before = self._places.pop(row.uuid, None)
        if before is not None:
            rows = self.owned[before[0]]
            rows.pop(before, None)
            if not rows:
                del self.owned[before[0]]
        owner = None if event == ROW_DELETE else row.external_ids.get(OWNER)
        if owner is not None:
            place = (owner, row._table.name, row.external_ids.get(KEY, ""))
            self._places[row.uuid] = place
            self.owned.setdefault(owner, {})[place] = row
