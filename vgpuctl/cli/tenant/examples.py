# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "onboard": (
        Example("onboard initech.yml --dry-run", "what would change"),
        Example("onboard initech.yml", "create or change a tenant from its file"),
    ),
    "offboard-tenant": (
        Example("offboard-tenant initech --dry-run", "what would be removed"),
        Example("offboard-tenant initech --yes", "with all its objects"),
    ),
    "create-tenant": (
        Example("create-tenant globex", "without limits"),
        Example("create-tenant wayne --quota vms=10 --quota memory=64GiB", "with quotas"),
    ),
    "show-tenant": (
        Example("show-tenant acme", "all that it may use and has"),
        Example("show-tenant acme -o json", "for a program"),
    ),
    "show-host-pool": (
        Example("show-host-pool research", "who may use it, and what is free"),
        Example("show-host-pool research --refresh", "after reading its hosts"),
    ),
    "list-tenants": (
        Example("list-tenants", "quotas and what is used"),
        Example("list-tenants -o name", "names alone"),
    ),
    "set-quota": (
        Example("set-quota acme vms=20 shares:A40-8Q=8", "limits"),
        Example("set-quota acme --guaranteed memory=64GiB", "an amount that it always gets"),
    ),
    "show-usage": (
        Example("show-usage -t acme", "since the first of the month"),
        Example("show-usage --month 2026-10 -o csv", "a past month, for a spreadsheet"),
    ),
    "report": (
        Example("report", "this month of all tenants"),
        Example("report -t acme --html acme.html", "as a page"),
    ),
    "create-host-pool": (
        Example("create-host-pool research --hosts gpu3", "a pool of one host"),
        Example("create-host-pool films --hosts 'gpu4' --dry-run", "what would change"),
    ),
    "grant-host-pool": (
        Example("grant-host-pool research acme", "let a tenant use it"),
        Example("grant-host-pool research acme --revoke", "and no longer"),
    ),
    "list-host-pools": (
        Example("list-host-pools", "pools, hosts, tenants"),
        Example("list-host-pools -o json", "for a program"),
    ),
    "delete-host-pool": (
        Example("delete-host-pool research --dry-run", "what would change"),
        Example("delete-host-pool research --yes", "its hosts serve every tenant again"),
    ),
}
