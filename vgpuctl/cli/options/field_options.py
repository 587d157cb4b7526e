# SPDX-License-Identifier: Apache-2.0
"""The options of a command, made from a table of fields (vgpuctl/specs/field.py)."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.specs.field import Choice, Field, Table, Truth, Type, Whole

_SHORT = {"--tenant": ("-t", "VGPUCTL_TENANT")}
"""Short flags of fields, and the variables of the environment that stand for them."""

Command = TypeVar("Command", bound=Callable[..., Any])


def field_options(table: Table[Any], *, are_required: bool = False) -> Callable[[Command], Command]:
    """Add one option per field that has a flag. A flag that is not given is passed as None, or as () for one that
    may be given several times.

    are_required: demand the flags of required fields, where no file can hold them instead.
    """

    def decorate(function: Command) -> Command:
        for option in reversed(list(_options(table, are_required=are_required))):
            function = option(function)
        return function

    return decorate


def _options(table: Table[Any], *, are_required: bool) -> Iterator[Callable[[Command], Command]]:
    for field in table.fields:
        if field.flag is not None:
            is_required = are_required and field.is_required
            yield field_option(field, default=table.written_default(field), is_required=is_required)


def field_option(field: Field, *, default: str | None, is_required: bool = False) -> Callable[[Command], Command]:
    """Make the option of one field that has a flag. default: for --help; without the flag, the
    command gets None.
    """
    assert field.flag is not None
    short, variable = _SHORT.get(field.flag, (None, None))
    text = (
        field.help + "; may be given several times" * field.is_several + f"; default: {default}" * bool(default) + "."
    )
    if isinstance(field.type, Truth):
        return click.option(field.flag, field.parameter, is_flag=True, default=None, help=text)
    return click.option(
        *filter(None, (short, field.flag)),
        field.parameter,
        envvar=variable,
        type=_click_type(field.type),
        multiple=field.is_several,
        required=is_required,
        metavar=field.metavar,
        help=text,
    )


def _click_type(kind: Type) -> Any:
    if isinstance(kind, Whole):
        return WholeRange(kind.lowest, kind.highest)
    if isinstance(kind, Choice):
        return click.Choice([member.value for member in kind.members], case_sensitive=False)
    return str
