# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "attach-disk": (
        Example("attach-disk acme/web-1 data,size=10GiB", "a new data disk"),
        Example("attach-disk acme/web-1 logs,size=5GiB,keep", "one that stays when the VM is deleted"),
    ),
    "detach-disk": (
        Example("detach-disk acme/web-1 logs", "the tenant keeps it"),
        Example("detach-disk acme/web-1 data --timeout 60", "wait a minute for the guest"),
    ),
    "resize-disk": (
        Example("resize-disk acme/web-1 20GiB", "its own disk"),
        Example("resize-disk acme/web-1 12GiB --disk data", "a data disk"),
    ),
    "list-disks": (
        Example("list-disks -t acme", "the data disks of a tenant"),
        Example("list-disks -A -o json", "of all tenants, for a program"),
    ),
    "delete-disk": (
        Example("delete-disk acme/logs --dry-run", "what would be deleted"),
        Example("delete-disk acme/logs --yes", "a disk that no VM has"),
    ),
    "create-snapshot": (
        Example("create-snapshot acme/web-1 before", "of all its disks"),
        Example("create-snapshot acme/web-1 quiet --quiesce", "with its file systems quiet"),
    ),
    "list-snapshots": (
        Example("list-snapshots acme/web-1", "by age"),
        Example("list-snapshots acme/web-1 -o json", "for a program"),
    ),
    "revert-snapshot": (
        Example("revert-snapshot acme/web-1 before --yes", "the VM must be stopped"),
        Example("revert-snapshot -t acme web-1 before --yes", "the same with -t"),
    ),
    "delete-snapshot": (
        Example("delete-snapshot acme/web-1 before --yes", "the disks keep what they hold"),
        Example("delete-snapshot -t acme web-1 before --yes", "the same with -t"),
    ),
    "eject-iso": (
        Example("eject-iso acme/web-1", "after an installation"),
        Example("eject-iso -t acme web-1 -o json", "for a program"),
    ),
}
