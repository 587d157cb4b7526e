# SPDX-License-Identifier: Apache-2.0
"""support-bundle: one file for a bug report."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, print_line, say, show_document

if TYPE_CHECKING:
    from vgpuctl.usecases.operate.support_bundle import SupportBundle


_JSON: "JsonOutput[SupportBundle]" = JsonOutput()


@click.command("support-bundle")
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
@click.option(
    "--to",
    "file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write the bundle, for example bundle.tar.gz.",
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
@options.refresh
@click.option("--checks", "with_checks", is_flag=True, help="Run check-hosts on the hosts, and add its findings.")
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Add the end of a file that --log-file wrote; several times.",
)
@click.option(
    "--events",
    type=WholeRange(0, 100_000),
    default=1000,
    show_default=True,
    metavar="NUMBER",
    help="How many of the last events to add.",
)
@click.option("--with-texts", is_flag=True, help="Add logs, reasons and other free texts without showing them first.")
@click.option("--anonymous", "is_anonymous", is_flag=True, help="Replace names and addresses too, as record-host does.")
@options.inventory
@options.database
@options.ssh
@options.forks
@options.as_json
def command(as_json: bool, with_texts: bool, **asked: Any) -> None:
    """Write one file for a bug report, without secrets. It has settings, the state of the store, facts of hosts, and
    logs if you agree.

    Only what is known to be harmless is taken: numbers, states, versions, devices and names. Free texts, as logs,
    reasons of cordons and details of events, may hold secrets: at a terminal they are shown, and go in after a yes;
    elsewhere they are left out without --with-texts.

    The file is for its owner alone, and none is overwritten without --force.

    Without HOST it has the cached facts of all hosts. If the store does not open or a host does not answer, the bundle
    has all other parts, and its README.txt names the error.
    """
    import os

    from vgpuctl.cli.forms.configuration import configuration
    from vgpuctl.cli.forms.services import services, take_service_options
    from vgpuctl.usecases.operate.show_config import show_config
    from vgpuctl.usecases.operate.support_bundle import support_bundle

    root = click.get_current_context().find_root()
    where = take_service_options(asked)
    with services(**where) as opened:
        done = support_bundle(
            opened,
            settings=lambda: show_config(configuration(), os.environ),
            commands=root.command.list_commands(root) if isinstance(root.command, click.Group) else (),
            accept_texts=lambda texts: with_texts or _is_accepted(texts),
            **asked,
        )
    if as_json:
        _JSON.print(done)
        return
    for part in done.parts:
        print_line(part)
    for problem in done.problems:
        say(f"not in it: {problem}")
    if not done.has_texts:
        say("logs, reasons and other texts were left out; --with-texts adds them")
    say(f"{done.file}: {done.size_bytes} bytes; read it before you send it")


def _is_accepted(texts: str) -> bool:
    """Show the texts to the user at a terminal, and ask. Nobody is asked elsewhere."""
    if not all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr)):
        return False
    show_document(texts)
    say(f"those were the free texts, {texts.count(chr(10))} lines; known secrets were removed, others may be left")
    try:
        confirm("Put them into the bundle?")
    except click.Abort:
        return False
    return True
