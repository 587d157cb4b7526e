# SPDX-License-Identifier: Apache-2.0
"""A wanted row of OVN's northbound database, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """One row. key: unique among its owner's rows of the table. columns: plain values, a sequence for a set.

    references: column → keys of rows of the same owner, with their tables. parent: a row of another owner whose
    column `parent_column` must hold this one, for what tenants share.
    """

    table: str
    key: str
    columns: Mapping[str, object] = field(default_factory=dict)
    references: Mapping[str, tuple["Reference", ...]] = field(default_factory=dict)
    parent: "Reference | None" = None
    parent_column: str = "ports"

    @property
    def reference(self) -> "Reference":
        """How other rows name this one."""
        return Reference(self.table, self.key)


@dataclass(frozen=True)
class Reference:
    """A row by table and key. owner: None for the owner of the row that refers."""

    table: str
    key: str
    owner: str | None = None
