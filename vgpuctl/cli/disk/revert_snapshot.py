# SPDX-License-Identifier: Apache-2.0
"""revert-snapshot: bring the disks of a VM back to a snapshot."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support.deletion import SNAPSHOT, end_snapshot, snapshot_options
from vgpuctl.cli.support.json_output import JsonOutput

if TYPE_CHECKING:
    from vgpuctl.usecases.disk.snapshots import SnapshotChange

_JSON: "JsonOutput[SnapshotChange]" = SNAPSHOT


@click.command("revert-snapshot")
@snapshot_options
def command(name: str, snapshot: str, **how: Any) -> None:
    """Bring the disks of the stopped VM NAME back to its newest snapshot, which ends with that.

    Everything that the guest wrote since is lost. Take the snapshot again to keep the state.
    """
    from vgpuctl.usecases.disk.revert_snapshot import revert_snapshot

    question = f"Drop everything that VM {name} wrote since snapshot {snapshot}?"
    end_snapshot(revert_snapshot, name, snapshot, question=question, outcome="reverted", **how)
