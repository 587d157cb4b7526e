# SPDX-License-Identifier: Apache-2.0
"""show-config: where each setting comes from."""

import os
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.forms.configuration import configuration
from vgpuctl.cli.lists.listing import Column, Listing, ListOutput

if TYPE_CHECKING:
    from vgpuctl.usecases.operate.show_config import ShownSetting


def _value(one: "ShownSetting") -> object:
    return tuple(one.value) if isinstance(one.value, list | tuple) else one.value


_LISTING: "Listing[ShownSetting, ShownSetting]" = Listing(
    columns=(
        Column("SETTING", lambda one: one.setting),
        Column("VALUE", _value),
        Column("FROM", lambda one: one.origin, drops=1),
        Column("VARIABLE", lambda one: one.variable, is_wide=True),
        Column("MEANING", lambda one: one.meaning, is_wide=True),
    ),
    name=lambda one: one.setting,
    in_order=True,
    json=lambda one: one,
    empty="no setting",
)


@click.command("show-config")
@_LISTING.options
def command(output: ListOutput) -> None:
    """Show each setting, its value, and the file or variable that set it.

    Files count in this order: vgpuctl.yaml of this folder or of the nearest one above, the chosen context, the user's
    configuration file, /etc/vgpuctl/config.yaml. Variables of the environment count more, and options most.
    """
    from vgpuctl.usecases.operate.show_config import show_config

    _LISTING.show(output, lambda: show_config(configuration(), os.environ))
