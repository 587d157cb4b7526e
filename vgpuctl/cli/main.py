# SPDX-License-Identifier: Apache-2.0
"""The command's entry: finds the subcommand's module by name, and is the only place that ends the process on an error.

`vgpuctl --help` imports little more than click: what only a command or an error needs is imported there.
tests/unit/cli/test_imports.py has the list.
"""

import contextlib
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import click

from vgpuctl import __version__
from vgpuctl.cli import plugins
from vgpuctl.cli.contents import COMMANDS, DAILY, FAMILIES, FOLDERS, MADE_BY, SECTIONS, SELDOM
from vgpuctl.cli.frame import command_line
from vgpuctl.cli.options.log_options import accept_log_options

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from vgpuctl.cli.frame.examples import Example

_INTERRUPTED = 130
"""The exit code of `Interrupted`."""
_NEW_OBJECTS = 100_000
"""How many new objects let Python look for circles among them: more than a short command makes.

By default 700, and the looking is a tenth of a short command.
"""


_INVENTORIES = "vgpuctl.inventories"
"""Inventories that are named before the command, in the context's `meta`."""


def _keep_inventories(context: click.Context, _parameter: click.Parameter, paths: tuple[str, ...]) -> None:
    context.meta[_INVENTORIES] = paths


_DELETING = ("delete", "remove", "destroy")
_OTHER_ENDS = ("offboard", "forget", "detach", "cancel", "leave")
"""What the end of a thing is called that has no `delete-`: `offboard-tenant`."""


class _LazyGroup(click.Group):
    """A group whose commands are modules, imported only when run or asked for help."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted({*COMMANDS, *plugins.installed()})

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name in COMMANDS:
            own = name.replace("-", "_").replace(" ", "_")
            module = importlib.import_module(f"vgpuctl.cli.{FOLDERS[name]}.{MADE_BY.get(name, own)}")
            if hasattr(module, "make"):
                command = module.make(name, COMMANDS[name])
            else:
                command = getattr(module, own if name in MADE_BY else "command")
        elif name in FAMILIES:
            return _Family(name)
        elif (plugin := plugins.installed().get(name)) is not None:
            command = plugin.load()
        else:
            return None
        from vgpuctl.cli.forms.conventions import apply_conventions
        from vgpuctl.cli.frame.examples import examples_text

        assert isinstance(command, click.Command)
        apply_conventions(command)
        command.epilog = command.epilog or examples_text(examples_of(name))
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. After an interrupt click would write to a terminal that may be closed, below a status."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            from vgpuctl.cli.shown.progress import end_line

            end_line()
            raise click.Abort from interrupt

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not context.resilient_parsing:  # as where a shell completes
            _prepare_command()
        if (both := " ".join(args[:2])) in COMMANDS:
            args = [both, *args[2:]]
        try:
            name, found, rest = super().resolve_command(context, args)
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
        if found is not None and any(one.name == "inventories" for one in found.params):
            rest = [*(word for path in context.meta.get(_INVENTORIES, ()) for word in ("--inventory", path)), *rest]
        return name, found, rest

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """The commands that begin so, with their lines of the table of contents: none is imported for it."""
        from click.shell_completion import CompletionItem

        lines = {name: text for name, (_word, text) in FAMILIES.items()}
        lines |= {name: text for name, text in COMMANDS.items() if " " not in name}
        lines |= {name: plugin.text for name, plugin in plugins.installed().items()}
        hidden = () if incomplete else SELDOM
        names = sorted(name for name in lines if name.startswith(incomplete) and name not in hidden)
        found = [CompletionItem(name, help=lines[name]) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Daily commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in DAILY])
        with formatter.section("Subjects"):
            formatter.write_dl([(one.subject, one.title) for one in SECTIONS])
        added = plugins.installed()
        if added:
            with formatter.section("From other packages"):
                formatter.write_dl([(name, plugin.text) for name, plugin in added.items()])


class _Family(click.Group):
    """What the commands `NAME WORD` have in common: their list, for people, shells, and whoever mistypes the word.

    They themselves are commands of the group above it, so that each has one name everywhere.
    """

    def __init__(self, name: str) -> None:
        self._word, text = FAMILIES[name]
        super().__init__(
            name,
            help=text,
            no_args_is_help=True,
            options_metavar="",
            subcommand_metavar=f"{self._word} [OPTIONS] [ARGS]...",
            epilog=f"`vgpuctl {name} {self._word} --help` is the page of each.",
        )
        self._lines = {one.partition(" ")[2]: COMMANDS[one] for one in COMMANDS if one.startswith(f"{name} ")}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            where = f"Options stand behind the {self._word}, as in `vgpuctl {self.name} {next(iter(self._lines))} …`."
            raise click.UsageError(f"{error.format_message()} {where}", ctx) from None

    def resolve_command(self, context: click.Context, args: list[str]) -> tuple[None, None, list[str]]:
        import difflib

        if context.resilient_parsing:  # as where a shell completes
            return None, None, args[1:]
        if args[0] in self._lines:
            raise click.UsageError(f"Write it right behind `{self.name}`: `vgpuctl {self.name} {args[0]} …`.", context)
        near = difflib.get_close_matches(args[0], self._lines, n=3) or list(self._lines)
        raise click.UsageError(f"After `{self.name}` comes a {self._word}: {' or '.join(near)}.", context)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        found = [CompletionItem(one, help=text) for one, text in self._lines.items() if one.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section(f"{self._word.capitalize()}s"):
            formatter.write_dl(list(self._lines.items()))


def examples_of(name: str) -> "Sequence[Example]":
    """The examples of a command, in the table of its folder."""
    if name not in FOLDERS:
        return ()
    table: dict[str, Sequence[Example]] = importlib.import_module(f"vgpuctl.cli.{FOLDERS[name]}.examples").EXAMPLES
    return table.get(name, ())


def _in_two_words(words: Sequence[str], commands: Sequence[str]) -> list[str]:
    """The command that `list vms`, `vm list`, `vms` or `export-nova` stands for, as other tools write it."""
    parts = [one for one in words[:2] if not one.startswith("-")]
    ways = (
        "-".join(parts),
        "-".join(parts[::-1]),
        " ".join(parts[::-1]),
        words[0].replace("-", " "),
        f"serve {words[0]}",
    )
    both = [one for one in ways if one in commands]
    verb, _, noun = parts[0].partition("-") if parts else ("", "", "")
    if verb in _DELETING and f"delete-{noun}" not in commands:
        both = [f"{other}-{noun}" for other in _OTHER_ENDS if f"{other}-{noun}" in commands]
    elif verb in _DELETING:
        both = [f"delete-{noun}"]
    return both or [one for one in (f"list-{parts[0]}", f"show-{parts[0]}") if one in commands]


class _EveryDefaults(dict[str, Any]):
    """click's `default_map` of the group: the defaults of each command, made when the command is run."""

    def __init__(self, context: click.Context) -> None:
        super().__init__()
        self._context = context

    def get(self, name: str, default: Any = None) -> Any:
        group = self._context.command
        command = group.get_command(self._context, name) if isinstance(group, click.Group) else None
        from vgpuctl.cli.forms.configuration import ConfiguredDefaults

        return default if command is None else ConfiguredDefaults(command)


@click.group(
    cls=_LazyGroup,
    epilog="`vgpuctl help SUBJECT` shows the commands of a subject, `vgpuctl help all` every command.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="vgpuctl")
@click.option(
    "-i",
    "--inventory",
    multiple=True,
    metavar="PATH",
    expose_value=False,
    callback=_keep_inventories,
    help="Inventory of the command, as its own -i; several times.",
)
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
    gc.set_threshold(_NEW_OBJECTS)
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
    At every other end exit functions run, but Python does not look for circles among what is left: modules and classes,
    with which that took 0.09 s of `list-hosts`.
    """
    if code == _INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    gc.freeze()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line. Returns its exit code (docs/errors.md)."""
    command_line.begin()
    try:
        try:
            code = _run(arguments)
            if (interruptions := _loaded("usecases.running.interruptions")) is not None:
                interruptions.end()
        except KeyboardInterrupt as error:
            code = _report(error, arguments)
        if (logs := _loaded("logs")) is not None:
            logs.note_end(code)
        return code
    finally:
        if (progress := _loaded("cli.shown.progress")) is not None:
            progress.SILENCE.stop()
        if (logs := _loaded("logs")) is not None:
            logs.stop()


def _run(arguments: list[str]) -> int:
    try:
        result: Any = command.main(args=arguments, prog_name="vgpuctl", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - each has its words and exit code
        return _report(error, arguments)
    return result if isinstance(result, int) else 0


def _report(error: BaseException, arguments: list[str]) -> int:
    from vgpuctl.cli.shown.failure import report

    return report(error, arguments)


def _loaded(name: str) -> Any:
    """A module of vgpuctl if this command line has imported it, else None."""
    return sys.modules.get(f"vgpuctl.{name}")


def _prepare_command() -> None:
    """From here on, before a command is imported, a signal interrupts it, and what libraries log is not shown.

    The error for a library that is missing names its extra.
    Without a handler, Python writes what they log to stderr, tracebacks and control characters too.
    """
    import logging

    from vgpuctl.extras import name_missing_extras
    from vgpuctl.usecases.running import interruptions

    name_missing_extras()
    interruptions.install()
    root = logging.getLogger()
    if not any(isinstance(one, logging.NullHandler) for one in root.handlers):
        root.addHandler(logging.NullHandler())
