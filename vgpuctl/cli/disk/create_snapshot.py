# SPDX-License-Identifier: Apache-2.0
"""create-snapshot: take a snapshot of all disks of a VM."""

from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.output import say

if TYPE_CHECKING:
    from vgpuctl.usecases.disk.snapshots import SnapshotChange


_JSON: "JsonOutput[SnapshotChange]" = JsonOutput()


@click.command("create-snapshot")
@click.argument("name")
@click.argument("snapshot")
@click.option("--quiesce", is_flag=True, help="Let the guest's agent freeze its file systems meanwhile.")
@options.tenant
@options.one_host
@options.as_json
def command(name: str, snapshot: str, quiesce: bool, tenant: str, as_json: bool, **where: Any) -> None:
    """Take the snapshot SNAPSHOT of all disks of the VM NAME at one moment, running or not.

    It leaves out memory, devices, UEFI variables and the TPM. Until it is deleted, the VM cannot be moved.
    """
    from vgpuctl.cli.support.services import services
    from vgpuctl.model.disk_chain import check_snapshot_name
    from vgpuctl.usecases.disk.create_snapshot import create_snapshot
    from vgpuctl.usecases.support.find_vm import find_vm

    check_snapshot_name(snapshot)
    with services(**where) as opened:
        vm, _ = find_vm(opened, tenant, name)
        done = create_snapshot(opened, vm, snapshot, quiesce=quiesce)
    if as_json:
        _JSON.print(done)
    else:
        say(f"{done.vm}: snapshot {snapshot} " + ("taken" if done.changed else "no change, it is there"))
