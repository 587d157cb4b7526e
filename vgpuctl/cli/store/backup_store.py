# SPDX-License-Identifier: Apache-2.0
"""backup-store: write a backup of the store."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.usecases.store.backup_store import BackedUp


_JSON: "JsonOutput[BackedUp]" = JsonOutput()


@click.command("backup-store")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--with-key", is_flag=True, help="Put the key file into the backup; whoever reads it has all secrets.")
@options.database
@options.as_json
def command(file: Path, with_key: bool, database: str | None, as_json: bool) -> None:
    """Write a checked backup of the store to a file while it is in use. FILE has one state of the store, and mode 0600.
    The backup leaves an event.

    FILE is a tar archive of a manifest and the content: SQLite's own file, or a dump in PostgreSQL's custom format,
    for which pg_dump must be installed here. The key file of queued VMs' secrets is not in it: keep it beside, in
    another place. `restore-store` reads FILE.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.store.backup_store import backup_store

    with services(database=database) as opened:
        done = backup_store(opened, file, with_key=with_key)
    if as_json:
        _JSON.print(done)
        return
    manifest = done.manifest
    say(f"{done.file}: {manifest.size_bytes} bytes, schema {manifest.schema}, SHA-256 {manifest.sha256}")
    if manifest.key == "separate":
        say("the key file of queued VMs' secrets is not in it; back it up in another place")
