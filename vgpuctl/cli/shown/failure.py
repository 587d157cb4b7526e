# SPDX-License-Identifier: Apache-2.0
"""Tells the user why a command line failed, and gives the exit code (docs/errors.md)."""

import difflib
import io
import itertools
import logging
import os
import re
import sys
from collections.abc import Sequence

import click

from vgpuctl.cli.frame.command_line import running
from vgpuctl.cli.shown.output import Declined, Styled, drop_output, print_document, print_json_error, print_line
from vgpuctl.errors import FileNotWritten, Interrupted, Unexpected, UsageError, VgpuctlError
from vgpuctl.local_files import is_out_of_room, not_written

_LOGGER = logging.getLogger("vgpuctl")
_LONGEST_LINE = 4000
_FORMS = ("json", "yaml")


def report(error: BaseException, arguments: Sequence[str]) -> int:
    """Tell the user of what ended a command line. Returns the exit code, 0 for a closed pipe."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.ClickException):
        return _report_usage(_helped(error), arguments)
    if isinstance(error, BrokenPipeError):
        drop_output(sys.stdout)
        return 0
    return _report(_translated(error), arguments)


def _report_usage(error: click.ClickException, arguments: Sequence[str]) -> int:
    """Tell what click could not read. The options of the form may stand behind what it read."""
    is_help = isinstance(error, click.exceptions.NoArgsIsHelpError)
    if not is_help and (running().form.is_for_programs() or _wants_json(arguments)):
        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = f"see `{'vgpuctl' if context is None else context.command_path} --help`"
        described = {"reference": UsageError.reference, "message": error.format_message(), "context": [], "hint": hint}
        print_json_error({"error": described})
        return error.exit_code
    written = io.StringIO()
    error.show(written)
    print_document(written.getvalue(), nl=False, err=True)
    return error.exit_code


def _wants_json(arguments: Sequence[str]) -> bool:
    """True if options that were not read any more, the environment or the configuration ask for JSON or YAML."""
    options = list(itertools.takewhile(lambda one: one != "--", arguments))
    for one, following in itertools.pairwise((*options, "")):
        if one == "--json":
            return True
        if one.startswith("--output") or re.fullmatch(r"-[A-Za-z]*o.*", one):
            value = one.partition("=")[2] if one.startswith("--") else one.partition("o")[2]
            return (value or following) in _FORMS
    return _usual_form() in _FORMS


def _usual_form() -> object:
    """The form of the environment, or of a configuration file that was read."""
    known = running().configuration
    found = None if known is None else known.settings.get("output")
    return os.environ.get("VGPUCTL_OUTPUT") or (None if found is None else found.value)


def _helped(error: click.ClickException) -> click.ClickException:
    """A wrong command line with what was meant: click finds `--output` near `--gpu` because of the two dashes."""
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        names = {one.lstrip("-"): one for one in error.possibilities}
        near = [names[one] for one in difflib.get_close_matches(error.option_name.lstrip("-"), names)]
        return click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    context = error.ctx if isinstance(error, click.UsageError) else None
    takes_hosts = context is not None and any("--limit" in one.opts for one in context.command.params)
    if takes_hosts and error.message.startswith("Got unexpected extra argument"):
        return click.UsageError(f"{error.message}; hosts are named by -l", ctx=context)
    return error


def _translated(error: BaseException) -> VgpuctlError:
    if isinstance(error, VgpuctlError):
        return error
    if any(isinstance(one, KeyboardInterrupt) for one in (error, error.__cause__, error.__context__)):
        # By now everything that can be rolled back is.
        hint = "`vgpuctl repair` shows what an interrupted run left, and finishes it"
        return Interrupted("interrupted", hint=hint if running().may_have_changed else None)
    if isinstance(error, Declined):
        return Interrupted("stopped: the answer was no")
    if isinstance(error, click.Abort):
        if isinstance(error.__context__, EOFError):
            return UsageError("a yes is needed, and nobody can answer here", hint="give --yes to go on without it")
        return Interrupted("stopped: no answer was given, or Ctrl-C was pressed")
    if isinstance(error, OSError) and is_out_of_room(error):
        return not_written(error, "the output" if error.filename is None else "a file", error.filename)
    _LOGGER.error("unexpected error", exc_info=error)
    return Unexpected.of(error)


def _report(error: VgpuctlError, arguments: Sequence[str]) -> int:
    if isinstance(error, FileNotWritten):
        _drop_full_output()
    _LOGGER.debug("error", extra={"fields": {"reference": error.reference, "message": error.message}}, exc_info=error)
    if running().form.is_for_programs():
        described = {
            "reference": error.reference,
            "message": error.message,
            "context": list(error.context),
            "hint": error.hint,
        }
        print_json_error({"error": described})
        return error.exit_code
    first, *others = [_cut(line) for line in error.message.split("\n")]
    print_line(Styled("error", "red", is_bold=True), f": {first}", err=True)
    brief = None if "--all-refusals" in arguments else getattr(error, "brief", None)
    for line in (*others, *(error.context if brief is None else brief)):
        print_line(f"  {_cut(line)}", err=True)
    if error.hint:
        print_line(f"hint: {error.hint}", err=True)
    return error.exit_code


def _drop_full_output() -> None:
    """Forget what stdout still holds when it takes nothing."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_output(sys.stdout)


def _cut(line: str) -> str:
    """A host's answer may be of any length; a line for a person is not."""
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}… ({len(line)} characters)"
