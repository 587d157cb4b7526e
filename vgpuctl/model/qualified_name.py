# SPDX-License-Identifier: Apache-2.0
"""Names of tenants' objects as people write them: `NAME` or `TENANT/NAME`."""

from vgpuctl.errors import UsageError

_TENANT_HINT = "write TENANT/NAME, or give -t TENANT, VGPUCTL_TENANT or a default tenant in the configuration"


def split_name(written: str) -> tuple[str | None, str]:
    """The tenant of `TENANT/NAME`, None for a plain name, and the plain name."""
    tenant, slash, name = written.rpartition("/")
    return tenant if slash else None, name


def without_tenant(what: str, *, more: str = "") -> UsageError:
    """The error of a name whose tenant nothing gives. more: appended to the hint."""
    return UsageError(f"the tenant of {what} is not given", hint=_TENANT_HINT + more)
