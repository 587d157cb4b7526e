# SPDX-License-Identifier: Apache-2.0
"""The options of attach-gpu and detach-gpu that say when."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.errors import UsageError

if TYPE_CHECKING:
    from vgpuctl.usecases.vm.plug_wish import PlugWish

Command = Callable[..., Any]


def plug_flags(function: Command) -> Command:
    """`--live` and `--next-start`."""
    live = click.option("--live", is_flag=True, help="Also try it for a vGPU while the guest runs.")
    later = click.option("--next-start", is_flag=True, help="Wait for the VM's next start.")
    return live(later(function))


def wish_of(*, live: bool, next_start: bool) -> "PlugWish":
    """The wish of the options. Raises UsageError when both are given."""
    from vgpuctl.usecases.vm.plug_wish import PlugWish

    if live and next_start:
        raise UsageError("--live and --next-start exclude each other")
    return PlugWish.NOW if live else PlugWish.AT_NEXT_START if next_start else PlugWish.AS_IT_GOES
