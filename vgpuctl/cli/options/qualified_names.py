# SPDX-License-Identifier: Apache-2.0
"""Objects of tenants named `TENANT/NAME` on the command line, wherever `--tenant TENANT NAME` is taken."""

import functools
from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from vgpuctl.errors import UsageError
from vgpuctl.model.qualified_name import split_name, without_tenant

NAMES = ("name", "names")
TENANT = "tenant"
_PROTOCOL, _PREFIX = "PROTOCOL/", "PREFIX"
"""In the metavar of names that have a slash of their own: `tcp/80`, `10.66.0.0/16`."""


def split_names(command: click.Command) -> None:
    """Let a command with NAME and --tenant take `TENANT/NAME`; the tenant of all its names is one.

    The command itself gets the tenant and plain names.
    """
    arguments = [one for one in command.params if isinstance(one, click.Argument) and one.name in NAMES]
    option = next((one for one in command.params if isinstance(one, click.Option) and one.name == TENANT), None)
    if not arguments or option is None or command.callback is None:
        return
    is_required, option.required = option.required, False
    (argument,) = arguments
    inner = command.callback
    has_slash = any(one in (argument.metavar or "") for one in (_PROTOCOL, _PREFIX))

    @functools.wraps(inner)
    def callback(*args: Any, **given: Any) -> Any:
        assert argument.name is not None
        written = given[argument.name]
        source = click.get_current_context().get_parameter_source(TENANT)
        is_written = source is ParameterSource.COMMANDLINE
        if written:
            names, given[TENANT] = qualified(
                written if argument.nargs != 1 else [written],
                given[TENANT],
                is_written=is_written,
                has_slash=has_slash,
            )
            given[argument.name] = tuple(names) if argument.nargs != 1 else names[0]
        if is_required and given[TENANT] is None:
            raise without_tenant("the object")
        return inner(*args, **given)

    command.callback = callback


def qualified(
    written: Sequence[str], tenant: str | None, *, is_written: bool, has_slash: bool = False
) -> tuple[list[str], str | None]:
    """Split each `TENANT/NAME`. Returns plain names and the tenant of all of them, None where nothing names it.

    tenant: of names without one. is_written: the user gave --tenant, so every name must be of that tenant.
    has_slash: a plain name may be `tcp/80`, as of a port forward, or `10.66.0.0/16`, as of a route. Raises UsageError
    for names of several tenants.
    """
    split = [_split(one, has_slash=has_slash) for one in written]
    pairs = [(tenant if whose is None else whose, name) for whose, name in split]
    tenants = dict.fromkeys(whose for whose, _ in pairs)
    if None in tenants and len(tenants) > 1:
        raise without_tenant(next(name for whose, name in pairs if whose is None))
    if is_written:
        tenants.setdefault(tenant)
    if len(tenants) > 1 and len(written) == 1:
        raise UsageError(
            f"{written[0]} is of another tenant than --tenant {tenant}", hint="leave --tenant out, or the name's tenant"
        )
    if len(tenants) > 1:
        raise UsageError(
            f"the names are of several tenants: {', '.join(filter(None, tenants))}",
            hint="one command changes the objects of one tenant; run it once for each",
        )
    return [name for _, name in pairs], next(iter(tenants))


def _split(written: str, *, has_slash: bool) -> tuple[str | None, str]:
    """The tenant that a name is written with, None without one, and the plain name."""
    whose, name = split_name(written)
    if has_slash and whose is not None:
        from vgpuctl.model.network import is_address
        from vgpuctl.model.vpc import PortProtocol

        before, first = split_name(whose)
        if first in tuple(PortProtocol) or is_address(first):
            return before, f"{first}/{name}"
    return whose, name
