# SPDX-License-Identifier: Apache-2.0
"""restore-store: restore the store from a backup."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, say

if TYPE_CHECKING:
    from vgpuctl.store.restore import Restored


_JSON: "JsonOutput[Restored]" = JsonOutput()


@click.command("restore-store")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Replace the store that is there, after a backup of it was written.")
@click.option(
    "--keep",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="File for that backup.  [default: STORE.before-restore-TIME, with SQLite]",
)
@options.yes
@options.dry_run
@options.database
@options.as_json
def command(
    file: Path, replace: bool, keep: Path | None, yes: bool, dry_run: bool, database: str | None, as_json: bool
) -> None:
    """Restore the store from a backup. FILE is of backup-store; it goes into an empty place, or with --replace.

    It is refused while a process uses the store. The restored store is older than the hosts: until `reconcile-store`
    is done, commands read it, and every change of a host or of the store is refused.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.store.restore_store import restore_store

    with services(database=database) as opened:
        if replace and not dry_run and not yes:
            checked = restore_store(opened, file, replace=True, keep=keep, dry_run=True)
            confirm(f"Replace {checked.store} by the backup {file}?")
        done = restore_store(opened, file, replace=replace, keep=keep, dry_run=dry_run)
    if as_json:
        _JSON.print(done)
        return
    say(f"{done.store}: {'would be restored' if dry_run else 'restored'} from {file}")
    if done.kept is not None:
        say(f"the store that was there {'would be' if dry_run else 'is'} kept in {done.kept}")
    say(f"key file: {done.key}")
    if not dry_run:
        say("the store is older than the hosts: run `vgpuctl reconcile-store` next")
