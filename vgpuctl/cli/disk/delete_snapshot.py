# SPDX-License-Identifier: Apache-2.0
"""delete-snapshot: delete a snapshot, and keep what the disks hold."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support.deletion import SNAPSHOT, end_snapshot, snapshot_options
from vgpuctl.cli.support.json_output import JsonOutput

if TYPE_CHECKING:
    from vgpuctl.usecases.disk.snapshots import SnapshotChange

_JSON: "JsonOutput[SnapshotChange]" = SNAPSHOT


@click.command("delete-snapshot")
@snapshot_options
def command(name: str, snapshot: str, **how: Any) -> None:
    """Delete the newest snapshot of the running VM NAME; its disks keep what they hold.

    libvirt writes what changed since into the disks below, which takes a while and does not stop the guest.
    """
    from vgpuctl.usecases.disk.delete_snapshot import delete_snapshot

    question = f"Delete snapshot {snapshot} of VM {name}?"
    end_snapshot(delete_snapshot, name, snapshot, question=question, outcome="deleted", **how)
