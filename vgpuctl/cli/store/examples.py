# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "list-events": (
        Example("list-events acme/web-1 --since 1d", "what happened to a VM today"),
        Example("list-events --kind 'vm-*' --follow", "VMs as they change, until interrupted"),
    ),
    "prune-events": (
        Example("prune-events --older-than 365d --dry-run", "how many would go"),
        Example("prune-events --older-than 365d --yes", "events of more than a year ago"),
    ),
    "grant-store": (
        Example("grant-store --role reader --as read-only --dry-run", "the statements for PostgreSQL"),
        Example("grant-store --role ops --as operator", "a role that may change things"),
    ),
    "backup-store": (
        Example("backup-store store.backup", "a consistent copy, while commands run"),
        Example("backup-store full.backup --with-key", "with the key of its secrets"),
    ),
    "restore-store": (
        Example("restore-store store.backup --replace --dry-run", "what would change"),
        Example("restore-store store.backup --replace --yes", "in place of the present store"),
    ),
    "reconcile-store": (
        Example("reconcile-store", "compare a restored store with the hosts"),
        Example("reconcile-store --done", "all is settled: take changes again"),
    ),
}
