# SPDX-License-Identifier: Apache-2.0
"""show-schema: the JSON schema of what users write, for editors, and of what commands print, for programs."""

from collections.abc import Mapping

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.errors import UsageError
from vgpuctl.specs.schema import SCHEMAS

_JSON: "JsonOutput[Mapping[str, object]]" = JsonOutput()


@click.command("show-schema")
@click.argument("kind", type=click.Choice(list(SCHEMAS)), required=False)
@click.option("--output-of", metavar="COMMAND", help="Schema of what this command prints with --json.")
@options.as_json
@click.pass_context
def command(context: click.Context, kind: str | None, output_of: str | None, as_json: bool) -> None:
    """Show the JSON schema of VM files, tenants' files or host variables. Editors complete and check these files by it.

    The output is JSON, also without --json. `vgpuctl show-schema vm > vm.json`, then begin a VM file with
    `# yaml-language-server: $schema=vm.json`. The schema `layout` is for files of host_vars and group_vars, with the
    variables `vgpu`, `vgpu_placing` and `vgpu_health`.
    """
    from vgpuctl.usecases.operate.show_schema import show_schema

    if (kind is None) == (output_of is None):
        raise UsageError("give either a kind of file or --output-of COMMAND", hint=f"kinds: {', '.join(SCHEMAS)}")
    _JSON.print(_schema_of_output(context, output_of) if kind is None else show_schema(kind))


def _schema_of_output(context: click.Context, name: str | None) -> Mapping[str, object]:
    from vgpuctl.cli.forms.json_schema import output_schema

    root = context.find_root()
    named = root.command.get_command(root, name or "") if isinstance(root.command, click.Group) else None
    if named is None:
        raise UsageError(f"--output-of: there is no command {name!a}", hint="`vgpuctl help all` lists the commands")
    schema = output_schema(named)
    if schema is None:
        raise UsageError(f"--output-of: the output of {named.name} has no schema")
    return schema
