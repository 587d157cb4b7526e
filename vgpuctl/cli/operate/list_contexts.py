# SPDX-License-Identifier: Apache-2.0
"""list-contexts: the contexts of the configuration files."""

from typing import TYPE_CHECKING

import click

from vgpuctl.cli.forms.configuration import configuration
from vgpuctl.cli.lists.listing import Column, Listing, ListOutput

if TYPE_CHECKING:
    from vgpuctl.usecases.operate.list_contexts import ListedContext


def _setting(key: str, one: "ListedContext") -> object:
    value = one.settings.get(key)
    return tuple(value) if isinstance(value, list | tuple) else value


_LISTING: "Listing[ListedContext, ListedContext]" = Listing(
    columns=(
        Column("CONTEXT", lambda one: one.name),
        Column("CHOSEN", lambda one: "yes" if one.is_chosen else None),
        Column("TENANT", lambda one: _setting("tenant", one), drops=1),
        Column("INVENTORY", lambda one: _setting("inventory", one), drops=3),
        Column("DATABASE", lambda one: _setting("database", one), drops=2),
        Column("FILE", lambda one: one.file, drops=4),
    ),
    name=lambda one: one.name,
    json=lambda one: one,
    empty="no context: add one under `contexts:` in ~/.config/vgpuctl/config.yaml (docs/configuration.md)",
)


@click.command("list-contexts")
@_LISTING.options
def command(output: ListOutput) -> None:
    """List the contexts of the configuration files, and the one in use."""
    from vgpuctl.usecases.operate.list_contexts import list_contexts

    _LISTING.show(output, lambda: list_contexts(configuration()))
