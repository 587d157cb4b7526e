# SPDX-License-Identifier: Apache-2.0
"""use-context: choose a context for the following commands."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.forms.configuration import configuration
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import say

if TYPE_CHECKING:
    from vgpuctl.usecases.operate.use_context import ChosenContext


_JSON: "JsonOutput[ChosenContext]" = JsonOutput()


@click.command("use-context")
@click.argument("name")
@options.as_json
def command(name: str, as_json: bool) -> None:
    """Choose the context of the following commands. It is written to the user's configuration file.

    Of that file one line changes. VGPUCTL_CONTEXT and --context go before it.
    """
    from vgpuctl.usecases.operate.use_context import use_context
    from vgpuctl.usecases.running.configuration import user_file

    chosen = use_context(configuration(), name, user_file())
    if as_json:
        _JSON.print(chosen)
    else:
        say(f"{chosen.file}: {'context' if chosen.changed else 'no change, the context is'} {name}")
