# SPDX-License-Identifier: Apache-2.0
"""The command's entry: finds the subcommand's module by name, and is the only place that ends the process on an error.

Importing this module imports click, and of ours errors, output and signal handling: `vgpuctl --help` stays quick.
"""

import contextlib
import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from vgpuctl import __version__
from vgpuctl.cli import plugins
from vgpuctl.cli.contents import COMMANDS, DAILY, FOLDERS, MADE_BY, SECTIONS
from vgpuctl.cli.support import rehearsal
from vgpuctl.cli.support.configuration import ConfiguredDefaults, forget_configuration
from vgpuctl.cli.support.conventions import apply_conventions
from vgpuctl.cli.support.examples import Example, examples_text
from vgpuctl.cli.support.log_options import accept_log_options
from vgpuctl.cli.support.output import Styled, be_quiet, drop_output, print_document, print_json_error, print_line
from vgpuctl.cli.support.output_format import OutputFormat, choose, chosen
from vgpuctl.errors import FileNotWritten, Interrupted, Unexpected, UsageError, VgpuctlError
from vgpuctl.local_files import is_out_of_room, not_written
from vgpuctl.usecases.support import interruptions

_LOGGER = logging.getLogger("vgpuctl")
_SILENT = logging.NullHandler()
_LONGEST_LINE = 4000
_LOGGER.addHandler(logging.NullHandler())


class _LazyGroup(click.Group):
    """A group whose commands are modules, imported only when run or asked for help."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted({*COMMANDS, *plugins.installed()})

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            maker = MADE_BY.get(name)
            module = importlib.import_module(f"vgpuctl.cli.{FOLDERS[name]}.{maker or name.replace('-', '_')}")
            command = module.make(name, COMMANDS[name]) if maker else module.command
        elif (plugin := plugins.installed().get(name)) is not None:
            command = plugin.load()
        else:
            return None
        assert isinstance(command, click.Command)
        apply_conventions(command)
        command.epilog = command.epilog or examples_text(examples_of(name))
        return command

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            import difflib

            if (package := plugins.PACKAGES.get(args[0])) is not None:
                missing = f"The command {args[0]} is in the package {package}, which is not installed."
                raise click.UsageError(f"{missing} Install it with `pip install {package}`.", context) from None
            near = _in_two_words(args, self.list_commands(context))
            near = near or difflib.get_close_matches(args[0], self.list_commands(context), n=3)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {' or '.join(near)}?", context) from None

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Daily commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in DAILY])
        with formatter.section("Subjects"):
            formatter.write_dl([(one.subject, one.title) for one in SECTIONS])
        added = plugins.installed()
        if added:
            with formatter.section("From other packages"):
                formatter.write_dl([(name, plugin.text) for name, plugin in added.items()])


def examples_of(name: str) -> Sequence[Example]:
    """The examples of a command, in the table of its folder."""
    if name not in FOLDERS:
        return ()
    table: dict[str, Sequence[Example]] = importlib.import_module(f"vgpuctl.cli.{FOLDERS[name]}.examples").EXAMPLES
    return table.get(name, ())


def _in_two_words(words: Sequence[str], commands: Sequence[str]) -> list[str]:
    """The command that `list vms`, `vm list` or `vms` stands for, as other tools write it."""
    parts = [one for one in words[:2] if not one.startswith("-")]
    both = [one for one in ("-".join(parts), "-".join(parts[::-1])) if one in commands]
    return both or [one for one in (f"list-{parts[0]}", f"show-{parts[0]}") if one in commands]


class _EveryDefaults(dict[str, Any]):
    """click's `default_map` of the group: the defaults of each command, made when the command is run."""

    def __init__(self, context: click.Context) -> None:
        super().__init__()
        self._context = context

    def get(self, name: str, default: Any = None) -> Any:
        group = self._context.command
        command = group.get_command(self._context, name) if isinstance(group, click.Group) else None
        return default if command is None else ConfiguredDefaults(command)


@click.group(
    cls=_LazyGroup,
    epilog="`vgpuctl help SUBJECT` shows the commands of a subject, `vgpuctl help all` every command.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="vgpuctl")
@click.pass_context
def command(context: click.Context) -> None:
    """Share GPUs of KVM hosts among tenants' VMs.

    Hosts come from an Ansible-style inventory (-i, or VGPUCTL_INVENTORY) and are reached over SSH.
    Data goes to stdout, everything else to stderr; every command has --json.
    """
    context.default_map = _EveryDefaults(context)
    context.obj = SECTIONS


accept_log_options(command, hidden=False)


def main() -> None:
    """Run the command line and end the process with a documented exit code."""
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    leave(run(sys.argv[1:]))


def _open_standard_streams() -> None:
    """Give a process without stdin, stdout or stderr the null device there, as slurmctld starts its programs.

    Else the next file that is opened, such as the store, would be what a library writes its messages to.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
        if getattr(sys, name) is None:
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def leave(code: int) -> NoReturn:
    """End the process with the exit code of `run`.

    After an interrupt, threads and locks of paramiko and libvirt may be in any state, and the end of the interpreter
    would wait for them. Open connections end with the process, as after kill -9.
    """
    if code == Interrupted.exit_code:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    sys.exit(code)


def forget() -> None:
    """Forget what the options of a command line set in this process."""
    choose(OutputFormat.TEXT)
    be_quiet(is_quiet=False)
    forget_configuration()
    rehearsal.begin(None)


def run(arguments: list[str]) -> int:
    """Run one command line. Returns its exit code (docs/errors.md)."""
    interruptions.install()
    forget()
    # Without a handler, Python writes what libraries log to stderr, tracebacks and control characters too.
    logging.getLogger().addHandler(_SILENT)
    try:
        try:
            code = _run(arguments)
            interruptions.end()
        except KeyboardInterrupt:
            code = _interrupted(arguments)
        _LOGGER.info("ended", extra={"fields": {"exit_code": code}})
        return code
    finally:
        if "vgpuctl.logs" in sys.modules:
            sys.modules["vgpuctl.logs"].stop()


def _run(arguments: list[str]) -> int:
    try:
        result: Any = command.main(args=arguments, prog_name="vgpuctl", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.Abort as stopped:
        if isinstance(stopped.__cause__, KeyboardInterrupt):
            return _interrupted(arguments)
        if isinstance(stopped.__context__, EOFError):
            return _report(
                UsageError("a yes is needed, and nobody can answer here", hint="give --yes to go on without it"),
                arguments,
            )
        return _report(Interrupted("stopped: no answer was given, or Ctrl-C was pressed"), arguments)
    except KeyboardInterrupt:
        return _interrupted(arguments)
    except click.ClickException as error:
        written = io.StringIO()
        error.show(written)
        print_document(written.getvalue(), nl=False, err=True)
        return error.exit_code
    except VgpuctlError as error:
        return _report(error, arguments)
    except BrokenPipeError:
        drop_output(sys.stdout)
        return 0
    except Exception as error:
        if isinstance(error, OSError) and is_out_of_room(error):
            return _report(
                not_written(error, "the output" if error.filename is None else "a file", error.filename), arguments
            )
        _LOGGER.error("unexpected error", exc_info=True)
        return _report(Unexpected.of(error), arguments)


def _interrupted(arguments: list[str]) -> int:
    """Report an interrupt; what can be rolled back is by now."""
    hint = "`vgpuctl repair` shows what an interrupted run left, and finishes it"
    return _report(Interrupted("interrupted", hint=hint), arguments)


def _report(error: VgpuctlError, arguments: list[str]) -> int:
    if isinstance(error, FileNotWritten):
        _drop_full_output()
    _LOGGER.debug("error", extra={"fields": {"reference": error.reference, "message": error.message}}, exc_info=error)
    if chosen().is_for_programs():
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
