# SPDX-License-Identifier: Apache-2.0
"""show-schema: the JSON schema of what users write, for editors."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.output import print_json
from vgpuctl.specs.schema import SCHEMAS


@click.command("show-schema")
@click.argument("kind", type=click.Choice(list(SCHEMAS)))
@options.as_json
def command(kind: str, as_json: bool) -> None:
    """Show the JSON schema of VM files, tenants' files or host variables, for editors to complete and check them.

    The output is JSON, also without --json. `vgpuctl show-schema vm > vm.json`, then begin a VM file with
    `# yaml-language-server: $schema=vm.json`. The schema `layout` is for files of host_vars and group_vars, with the
    variables `vgpu`, `vgpu_placing` and `vgpu_health`.
    """
    from vgpuctl.usecases.operate.show_schema import show_schema

    print_json(show_schema(kind))
