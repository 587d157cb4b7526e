# SPDX-License-Identifier: Apache-2.0
"""The front page and the order of the site, and the pages of commands: what --help says as text that wraps, and where
the command is shown at work."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import click
from page_parts import ROOT, between

from vgpuctl.cli.contents import COMMANDS, SECTIONS, file_name
from vgpuctl.cli.forms.conventions import CONNECTION
from vgpuctl.cli.frame.command_section import CommandSection
from vgpuctl.cli.main import command, examples_of

_FOLDER = ROOT / "docs" / "commands"
_TARGET = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\w+/)?[\w-]+\.md)\)")
_TABS, _TUTORIAL = ("Tasks", "Concepts", "Reference", "Project"), "tutorial.md"
_SPECIAL = re.compile(r"([\\*\[])")
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_AT_WORK = 4
_MARK = "<!-- made by scripts/generate_docs.py -->"


def site_pages(context: click.Context) -> dict[Path, str]:
    """The front page, the page of each command and of all of them by subject, and the order of all."""
    made = {_FOLDER / "vgpuctl.md": _text(_front(context)), _FOLDER / ".nav.yml": _text(_order())}
    made[ROOT / "docs" / ".nav.yml"] = _text(_navigation())
    made[ROOT / "docs" / "README.md"] = _with_comparison(_written("README"))
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        made[_FOLDER / f"{file_name(name)}.md"] = _text(_page(name, found, context))
    return made


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _front(context: click.Context) -> Iterator[str]:
    yield from ("# vgpuctl", "", _MARK, "")
    yield from _synopsis(command, context)
    yield from _paragraphs(command.help or "")
    yield from _options(command, context)
    for section in SECTIONS:
        yield from (f"## {section.title}", "", section.about, f"Pages: {_links(section.pages)}.", "")
        yield from (f"- [{name}]({file_name(name)}.md): {text}" for name, text in section.commands.items())
        yield ""
    others = [name for name in command.list_commands(context) if name not in COMMANDS]
    if others:
        yield from ("## Of other distributions", "", *(f"- [{name}]({file_name(name)}.md)" for name in others), "")


def _order() -> Iterator[str]:
    yield from ("# made by scripts/generate_docs.py", "nav:", "  - All commands: vgpuctl.md")
    for section in SECTIONS:
        yield f"  - {section.title}:"
        yield from (f"      - {name}: {file_name(name)}.md" for name in section.commands)
    yield "  - '*'"


def _page(name: str, found: click.Command, parent: click.Context) -> Iterator[str]:
    with click.Context(found, info_name=name, parent=parent) as context:
        yield from (f"# {context.command_path}", "", _MARK, "")
        yield from _body(found, context)
        if isinstance(found, click.Group):
            for sub_name in found.list_commands(context):
                sub = found.get_command(context, sub_name)
                assert sub is not None
                with click.Context(sub, info_name=sub_name, parent=context) as inner:
                    yield from (f"## {inner.command_path}", "")
                    yield from _body(sub, inner)
        yield from _examples(name)
        section = next((one for one in SECTIONS if name in one.commands), None)
        yield from (_how_to(name, section), "")
        if section is not None:
            yield f"Subject: [{section.title}](vgpuctl.md#{_anchor(section.title)})."


def _body(found: click.Command, context: click.Context) -> Iterator[str]:
    yield from _synopsis(found, context)
    yield from _paragraphs(found.help or "")
    yield from _options(found, context)


def _synopsis(found: click.Command, context: click.Context) -> Iterator[str]:
    yield from ("```text", " ".join((context.command_path, *found.collect_usage_pieces(context))), "```", "")


def _options(found: click.Command, context: click.Context) -> Iterator[str]:
    records = [one.get_help_record(context) for one in found.get_params(context)]
    for flags, text in (one for one in records if one is not None and one[1] and "--help" not in one[0]):
        yield f"- `{flags}`: {_escaped(text)}"
    yield ""
    if any(one.name in CONNECTION for one in found.get_params(context)):
        yield from ("It also has the [options of the connection](../configuration.md#options-of-the-connection).", "")


def _examples(name: str) -> Iterator[str]:
    if examples := examples_of(name):
        yield from ("```console", *(line for one in examples for line in (f"# {one.meaning}", f"$ vgpuctl {one.line}")))
        yield from ("```", "")


def _how_to(name: str, section: CommandSection | None) -> str:
    """The first pages that show the command at work: those of its subject, then others in the order of docs/README.md.
    Of a command that none shows, the pages of its subject."""
    shown = re.compile(rf"\bvgpuctl(?: -\S+)* {re.escape(name)}(?![\w-])|`{re.escape(name)}(?![\w-])")
    own = () if section is None else section.pages
    pages = dict.fromkeys((*own, *_links_of_index()))
    at_work = [one for one in pages if shown.search(_written(one))]
    return f"How-to: {_links((at_work or own)[:_AT_WORK])}."


def _with_comparison(page: str) -> str:
    """The front page with what the README at the root says of other tools."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = readme.partition("## Instead of what\n\n")[2].partition("\n\n## ")[0].splitlines()
    return between(page, "instead of what", "instead", lines)


def _navigation() -> Iterator[str]:
    """The order of the site, from docs/README.md: its headings, and its links by their words."""
    yield from ("# made by scripts/generate_docs.py from docs/README.md", "nav:", "  - Home: README.md")
    depth = ""
    for line in _written("README").splitlines():
        if heading := re.fullmatch(r"(##+) (.+)", line):
            is_tab = heading[1] == "##"
            depth = "      " if is_tab else "          "
            if not is_tab or heading[2] in _TABS:
                yield f"{depth[4:]}- {heading[2]}:"
            is_shown = heading[2] in _TABS if is_tab else True
            depth = depth if is_shown else "  "
        for words, target in _TARGET.findall(line):
            if depth != "  " or target == _TUTORIAL:
                yield f"{depth}- {words}: {target.removesuffix('/vgpuctl.md')}"
    yield "      - Decisions: decisions"


@cache
def _links_of_index() -> list[str]:
    """The pages of tasks and concepts in docs/README.md, in its order, without their `.md`."""
    index = _written("README").partition("## Reference")[0]
    return [target.removesuffix(".md") for _, target in _TARGET.findall(index)]


@cache
def _written(page: str) -> str:
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def _links(pages: Iterable[str]) -> str:
    return ", ".join(f"[{_title(one)}](../{one}.md)" for one in pages)


def _title(page: str) -> str:
    lines = _written(page).splitlines()
    return next(line.removeprefix("# ").replace("`", "") for line in lines if line.startswith("# "))


def _paragraphs(text: str) -> Iterator[str]:
    for part in text.split("\n\n"):
        if part.strip(" \n").startswith("\b"):
            yield from ("```text", *(line.strip() for line in part.strip(" \n").splitlines()[1:]), "```", "")
        else:
            yield from (_escaped(" ".join(part.split())), "")


def _escaped(text: str) -> str:
    """Text whose signs are no markup, outside of `code`; options are code."""
    parts = [
        part if number % 2 else _OPTION.sub(r"`\g<0>`", _SPECIAL.sub(r"\\\1", part).replace("<", "&lt;"))
        for number, part in enumerate(text.split("`"))
    ]
    return "`".join(parts)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
