# SPDX-License-Identifier: Apache-2.0
"""Tells the user why a command line failed, and gives the exit code (docs/errors.md)."""

import io
import logging
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
_FOR_PROGRAMS = re.compile(r"(?:^| )(?:--json|(?:-o ?|--output[= ])(?:json|yaml))(?: |$)")


def report(error: BaseException, arguments: Sequence[str]) -> int:
    """Tell the user of what ended a command line. Returns the exit code, 0 for a closed pipe."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.ClickException):
        return _report_usage(error, arguments)
    if isinstance(error, BrokenPipeError):
        drop_output(sys.stdout)
        return 0
    return _report(_translated(error), arguments)


def _report_usage(error: click.ClickException, arguments: Sequence[str]) -> int:
    """Tell what click could not read. The options of the form may stand behind what it read."""
    hint = _usage_hint(error)
    if running().form.is_for_programs() or _FOR_PROGRAMS.search(" ".join(arguments)):
        asked = hint or f"see `{_command_path(error)} --help`"
        described = {"reference": UsageError.reference, "message": error.format_message(), "context": [], "hint": asked}
        print_json_error({"error": described})
        return error.exit_code
    written = io.StringIO()
    error.show(written)
    print_document(written.getvalue(), nl=False, err=True)
    if hint:
        print_line(f"hint: {hint}", err=True)
    return error.exit_code


def _command_path(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return "vgpuctl" if context is None else str(context.command_path)


def _usage_hint(error: click.ClickException) -> str | None:
    """Where hosts belong in a command that takes no names; None where click has said all that is to be said."""
    context = getattr(error, "ctx", None)
    if context is None or not error.format_message().startswith("Got unexpected extra argument"):
        return None
    options = {one.name for one in context.command.params}
    if "limit" not in options or any(isinstance(one, click.Argument) for one in context.command.params):
        return None
    return "hosts are named by -l: `-l gpu1,gpu2`, also groups and globs"


def _translated(error: BaseException) -> VgpuctlError:
    if isinstance(error, VgpuctlError):
        return error
    if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
        # By now everything that can be rolled back is.
        hint = "`vgpuctl repair` shows what an interrupted run left, and finishes it"
        return Interrupted("interrupted", hint=hint)
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
