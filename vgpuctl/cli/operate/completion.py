# SPDX-License-Identifier: Apache-2.0
"""completion: the script that lets a shell complete commands, options and names."""

import click
from click.shell_completion import get_completion_class

from vgpuctl.cli.shown.output import print_document


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options and names in a shell. The names are those in the store.

    \b
    bash: eval "$(vgpuctl completion bash)" in ~/.bashrc
    zsh:  eval "$(vgpuctl completion zsh)" in ~/.zshrc
    fish: vgpuctl completion fish >~/.config/fish/completions/vgpuctl.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    root = context.find_root().command
    print_document(made(root, {}, "vgpuctl", "_VGPUCTL_COMPLETE").source())
