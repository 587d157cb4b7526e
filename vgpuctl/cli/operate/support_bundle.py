# SPDX-License-Identifier: Apache-2.0
"""support-bundle: one file for a bug report."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.support import options
from vgpuctl.cli.support.json_output import JsonOutput
from vgpuctl.cli.support.numbers import WholeRange
from vgpuctl.cli.support.output import print_line, say

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
@click.option("--anonymous", "is_anonymous", is_flag=True, help="Replace names and addresses too, as record-host does.")
@options.inventory
@options.database
@options.ssh
@options.forks
@options.as_json
def command(as_json: bool, **asked: Any) -> None:
    """Write one file for a bug report: the settings, the state of the store, facts of hosts and logs.

    Passwords, keys and tokens are removed, and users' documents are left out. Without HOST it has the cached facts of
    all hosts. If the store does not open or a host does not answer, the bundle says so and has all other parts.
    """
    import os

    from vgpuctl.cli.support.configuration import configuration
    from vgpuctl.cli.support.services import services, take_service_options
    from vgpuctl.usecases.operate.show_config import show_config
    from vgpuctl.usecases.operate.support_bundle import support_bundle

    where = take_service_options(asked)
    with services(**where) as opened:
        done = support_bundle(opened, settings=lambda: show_config(configuration(), os.environ), **asked)
    if as_json:
        _JSON.print(done)
        return
    for part in done.parts:
        print_line(part)
    for problem in done.problems:
        say(f"not in it: {problem}")
    say(f"{done.file}: {done.size_bytes} bytes; read it before you send it")
