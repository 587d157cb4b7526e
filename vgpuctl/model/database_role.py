# SPDX-License-Identifier: Apache-2.0
"""The rights that a role of the database has on the store."""

import enum
from dataclasses import dataclass

from vgpuctl.errors import UsageError
from vgpuctl.model.vm import check_name


class Access(enum.StrEnum):
    """The rights of a role.

    operator: run every command; add events and never change them. read-only: read everything. tenant: read the rows of
    one tenant. none: nothing any more.
    """

    OPERATOR = "operator"
    READ_ONLY = "read-only"
    TENANT = "tenant"
    NONE = "none"


@dataclass(frozen=True)
class Rights:
    """The rights of one role. tenant: whose rows it reads, for Access.TENANT."""

    access: Access
    tenant: str | None = None

    def __str__(self) -> str:
        return str(self.access) if self.tenant is None else f"{self.access}:{self.tenant}"


def parse_rights(text: str) -> Rights:
    """Read `operator`, `read-only`, `tenant:NAME` or `none`. Raises UsageError."""
    word, colon, tenant = text.partition(":")
    if word == Access.TENANT and tenant:
        return Rights(Access.TENANT, check_name(tenant, what="tenant"))
    if colon or word not in (Access.OPERATOR, Access.READ_ONLY, Access.NONE):
        raise UsageError(
            f"{text[:80]!r} is nothing that a role can be",
            hint="give operator, read-only, tenant:NAME or none",
        )
    return Rights(Access(word))
