# SPDX-License-Identifier: Apache-2.0
"""help: a subject with its commands and pages, every command, or the help page of one."""

import difflib
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.shown.output import print_document
from vgpuctl.errors import UsageError

if TYPE_CHECKING:
    from vgpuctl.cli.frame.command_section import CommandSection

_EVERY = "all"


@click.command("help")
@click.argument("subject", nargs=-1)
@click.pass_context
def command(context: click.Context, subject: tuple[str, ...]) -> None:
    """Show a subject, all commands, or a command's help. A SUBJECT has commands and pages; `all` is every command by
    subject.
    """
    wanted = " ".join(subject)
    root = context.find_root()
    assert isinstance(root.command, click.Group)
    sections: tuple[CommandSection, ...] = root.obj
    by_subject = {one.subject: one for one in sections}
    if not wanted:
        print_document(root.command.get_help(root))
    elif wanted == _EVERY:
        print_document("\n\n".join(commands_of(one) for one in sections))
    elif wanted in by_subject:
        print_document(_page_of(by_subject[wanted]))
    elif (found := root.command.get_command(root, wanted)) is not None:
        with click.Context(found, info_name=wanted, parent=root) as inner:
            print_document(found.get_help(inner))
    else:
        known = [*by_subject, *root.command.list_commands(root), _EVERY]
        near = difflib.get_close_matches(wanted, known, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"subjects: {', '.join(by_subject)}"
        raise UsageError(f"there is no subject and no command {wanted!r}", hint=hint)


def _page_of(section: "CommandSection") -> str:
    pages = ", ".join(f"docs/{one}.md" for one in section.pages)
    return f"{section.about}\n\n{commands_of(section)}\n\nRead on: {pages}"


def commands_of(section: "CommandSection") -> str:
    """The commands of a subject with their first lines of help, those of every week first."""
    longest = max(map(len, section.commands))
    lines = {name: f"  {name.ljust(longest)}  {text}" for name, text in section.commands.items()}
    often = [line for name, line in lines.items() if name not in section.seldom]
    seldom = [line for name, line in lines.items() if name in section.seldom]
    heading = ["  Seldom typed, or called by programs:"] if seldom else []
    return "\n".join((f"{section.title}:", *often, *heading, *seldom))
