# SPDX-License-Identifier: Apache-2.0
"""Write the manual pages of vgpuctl, one for each command, into a folder: `scripts/man_pages.py FOLDER`.

They have what `--help` has, and the options of the connection in a section of their own. Source of the form:
man-pages(7). SOURCE_DATE_EPOCH sets their date.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from vgpuctl import __version__
from vgpuctl.cli.contents import COMMANDS, SECTIONS, file_name
from vgpuctl.cli.forms.conventions import CONNECTION
from vgpuctl.cli.main import command, examples_of


def pages() -> dict[str, str]:
    """Every manual page by its file name."""
    context = click.Context(command, info_name="vgpuctl")
    made = {"vgpuctl.1": "\n".join(_front(context)) + "\n"}
    for name in COMMANDS:
        found = command.get_command(context, name)
        assert found is not None
        made[f"vgpuctl-{file_name(name)}.1"] = "\n".join(_page(name, found, context)) + "\n"
    return made


def _front(context: click.Context) -> Iterator[str]:
    yield from _head("vgpuctl", "share GPUs of KVM hosts among tenants' VMs")
    yield from (".SH SYNOPSIS", r".B vgpuctl", "COMMAND [OPTIONS] [ARGUMENTS]", ".SH DESCRIPTION")
    yield from _paragraphs(command.help or "")
    yield from _options(command, context, is_connection=None)
    for section in SECTIONS:
        yield from (f'.SH "{section.title.upper()}"', _text(section.about))
        for name, text in section.commands.items():
            yield from (".TP", rf"\fB{_text(name)}\fR", _text(text))


def _page(name: str, found: click.Command, parent: click.Context) -> Iterator[str]:
    with click.Context(found, info_name=name, parent=parent) as context:
        yield from _head(f"vgpuctl-{file_name(name)}", COMMANDS[name].rstrip("."))
        yield from (".SH SYNOPSIS", rf".B vgpuctl {_text(name)}", _text(" ".join(found.collect_usage_pieces(context))))
        yield ".SH DESCRIPTION"
        yield from _paragraphs(found.help or "")
        yield from _options(found, context, is_connection=False)
        yield from _options(found, context, is_connection=True)
        if examples := examples_of(name):
            yield ".SH EXAMPLES"
            for one in examples:
                yield from (".TP", _text(one.meaning), rf"\fBvgpuctl {_text(one.line)}\fR")
        section = next(one for one in SECTIONS if name in one.commands)
        yield ".SH SEE ALSO"
        others = [f"vgpuctl-{file_name(other)}" for other in section.commands if other != name]
        yield ",\n".join(rf"\fB{_text(one)}\fR(1)" for one in ("vgpuctl", *others))


def _head(title: str, summary: str) -> Iterator[str]:
    day = _day()
    yield f'.TH "{title.upper()}" "1" "{day}" "vgpuctl {__version__}" "vgpuctl"'
    yield from (".SH NAME", rf"{_text(title)} \- {_text(summary[0].lower() + summary[1:])}")


def _day() -> str:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    moment = datetime.now(UTC) if epoch is None else datetime.fromtimestamp(int(epoch), UTC)
    return moment.date().isoformat()


def _options(found: click.Command, context: click.Context, *, is_connection: bool | None) -> Iterator[str]:
    """The options in a section; of the connection, or the others; None for all."""
    records = []
    for one in found.get_params(context):
        if is_connection is not None and (one.name in CONNECTION) is not is_connection:
            continue
        was_hidden = getattr(one, "hidden", False)
        if isinstance(one, click.Option):
            one.hidden = False
            if (record := one.get_help_record(context)) is not None:
                records.append(record)
            one.hidden = was_hidden
    if records:
        yield '.SH "OPTIONS OF THE CONNECTION"' if is_connection else ".SH OPTIONS"
    for flags, text in records:
        yield from (".TP", rf"\fB{_text(flags)}\fR", _text(text))


def _paragraphs(text: str) -> Iterator[str]:
    for number, part in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        if part.strip().startswith("\b"):
            yield from (".nf", *(_text(line.strip()) for line in part.strip().splitlines()[1:]), ".fi")
        else:
            yield _text(" ".join(part.split()))


def _text(text: str) -> str:
    """Escape text for roff: a leading dot or quote is not read as a request, and hyphens can be copied."""
    shown = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")
    shown = "".join(one if one.isascii() else rf"\[u{ord(one):04X}]" for one in shown)
    return rf"\&{shown}" if shown.startswith(".") else shown


def main(arguments: Sequence[str]) -> None:
    """Write all pages into the folder that is named."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
