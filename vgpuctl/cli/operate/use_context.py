# SPDX-License-Identifier: Apache-2.0
"""use-context: choose a context for the following commands."""

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.configuration import configuration
from vgpuctl.cli.support.output import print_json, say


@click.command("use-context")
@click.argument("name")
@options.as_json
def command(name: str, as_json: bool) -> None:
    """Choose the context that the following commands use, in the user's configuration file.

    Of that file one line changes. VGPUCTL_CONTEXT and --context go before it.
    """
    from vgpuctl.usecases.operate.use_context import use_context
    from vgpuctl.usecases.support.configuration import user_file

    chosen = use_context(configuration(), name, user_file())
    if as_json:
        print_json(chosen)
    else:
        say(f"{chosen.file}: {'context' if chosen.changed else 'no change, the context is'} {name}")
