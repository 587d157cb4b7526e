# SPDX-License-Identifier: Apache-2.0
"""The form of a command's data on stdout: `-o FORM`, and `--json`, which is short for `-o json`.

The form counts for the whole process: a command's data, and the error that ends it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from vgpuctl.cli.frame.command_line import OutputFormat, running

Command = TypeVar("Command", bound=Callable[..., Any])


OF_ONE = (OutputFormat.TEXT, OutputFormat.JSON, OutputFormat.YAML)
OF_LIST = (*(form for form in OutputFormat if form is not OutputFormat.TEXT),)


def as_json(function: Command) -> Command:
    """Add `-o text|json|yaml` and `--json`; the command gets `as_json`, true where a program reads the data."""

    def read(context: click.Context, parameter: click.Parameter, given: str | None) -> bool:
        return _read(context, parameter, given, OF_ONE).is_for_programs()

    return _options(OF_ONE, "as_json", read)(function)


def list_format(function: Command) -> Command:
    """Add `-o table|wide|json|yaml|name|csv` and `--json`; the command gets `form`."""

    def read(context: click.Context, parameter: click.Parameter, given: str | None) -> OutputFormat:
        return _read(context, parameter, given, OF_LIST)

    return _options(OF_LIST, "form", read)(function)


def _options(forms: tuple[OutputFormat, ...], name: str, read: Callable[..., Any]) -> Callable[[Command], Command]:
    """Make the two options; --json is read first."""
    output = click.option(
        "-o",
        "--output",
        name,
        envvar="VGPUCTL_OUTPUT",
        callback=read,
        metavar="FORM",
        help=f"Form of the output: {_listed(forms)}.  [default: {forms[0]}]  [env: VGPUCTL_OUTPUT]",
    )
    short = click.option(
        "--json", is_flag=True, is_eager=True, expose_value=False, callback=_read_short, help="Short for -o json."
    )

    def decorate(function: Command) -> Command:
        return output(short(function))

    return decorate


def _listed(forms: tuple[OutputFormat, ...]) -> str:
    *others, last = (str(form) for form in forms)
    return f"{', '.join(others)} or {last}"


def _read_short(_context: click.Context, _parameter: click.Parameter, given: bool) -> None:
    running().form = OutputFormat.JSON if given else OutputFormat.TEXT


def _read(
    context: click.Context, parameter: click.Parameter, given: str | None, forms: tuple[OutputFormat, ...]
) -> OutputFormat:
    """The form that was asked for. A usual form (of the environment, or of a file) that the command lacks is left."""
    is_written = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    if running().form is OutputFormat.JSON:
        if is_written and given != OutputFormat.JSON:
            raise click.UsageError(f"--json and -o {given} exclude each other.")
        return OutputFormat.JSON
    is_known = given in tuple(OutputFormat)
    if given is not None and given not in forms and (is_written or not is_known):
        raise click.BadParameter(f"{given!a} is no form of this output; take {_listed(forms)}.", context, parameter)
    form = OutputFormat(given) if given in forms else forms[0]
    running().form = form
    return form
