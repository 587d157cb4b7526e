# SPDX-License-Identifier: Apache-2.0
"""allow-config: let the configuration file of a folder count."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, print_document, say

if TYPE_CHECKING:
    from vgpuctl.usecases.operate.allow_config import AllowedConfig


_JSON: "JsonOutput[AllowedConfig]" = JsonOutput()


@click.command("allow-config")
@click.argument("file", required=False, metavar="[FILE]", type=click.Path(path_type=Path))
@click.option("--forget", is_flag=True, help="Use the file no longer.")
@options.dry_run
@options.yes
@options.as_json
def command(file: Path | None, forget: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Let the vgpuctl.yaml of a folder count, after its content was shown.

    FILE is the file or its folder; without it, the file of the working folder, or of the nearest folder above.

    Such a file can name programs that run as you and servers that get your passwords. It counts for commands that are
    typed in its folder or below it. When its content changes, it has to be allowed again.
    """
    from vgpuctl.usecases.operate.allow_config import allow_config, forget_config, read_config
    from vgpuctl.user_folders import working_folder

    if forget:
        done = forget_config(file, working_folder(), dry_run=dry_run)
    else:
        found = read_config(file, working_folder())
        if found.reason is not None:
            project = found.project
            leads = "" if project.path == project.entry else f", a link to {project.path}"
            say(f"{project.entry}{leads}:")
            print_document(found.project.content.decode(errors="replace"), err=True)
            if not dry_run and not yes:
                confirm("Use this file here and in the folders below?")
        done = allow_config(found, dry_run=dry_run)
    if as_json:
        _JSON.print(done)
        return
    if done.changed:
        now = "used from now on" if done.is_allowed else "used any more"
        negated = "" if done.is_allowed else "not "
        say(f"{done.file}: {f'would {negated}be ' if dry_run else negated}{now}")
    else:
        say(f"{done.file}: no change, it is {'allowed' if done.is_allowed else 'not allowed'}")
