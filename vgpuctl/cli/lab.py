# SPDX-License-Identifier: Apache-2.0
"""lab: emulated GPU hosts to rehearse on."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpuctl.cli import options
from vgpuctl.cli.output import print_json, print_table, say
from vgpuctl.model.units import format_mib, parse_mib

if TYPE_CHECKING:
    from vgpuctl.lab import LabFolder, LabHost

_COLUMNS = ("HOST", "STATE", "PORT", "MEMORY", "RUNS ON", "READY AFTER", "CARDS")


@click.group("lab")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="VGPUCTL_LAB_FOLDER",
    metavar="FOLDER",
    help="Where the lab keeps everything; default: `vgpuctl/lab` in the user's data folder.  [env: VGPUCTL_LAB_FOLDER]",
)
@click.pass_context
def command(context: click.Context, folder: Path | None) -> None:
    """Emulated GPU hosts on this machine: a real kernel, real sshd and libvirtd, simulated cards."""
    context.obj = folder


@command.command("up")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME[=BOARD:INTERFACE,…]",
    help="A host and its cards; several times. INTERFACE is mdev, mdev-vf, vf-profile, passthrough or vf."
    "  [default: gpu1=a40:vf-profile,a40:mdev-vf,t4:mdev,rtx-3090:passthrough,flex-170:vf]",
)
@click.option(
    "--memory", default="4GiB", show_default=True, metavar="SIZE", help="Memory of each host that is started."
)
@options.as_json
@click.pass_obj
def up(folder: Path | None, hosts: tuple[str, ...], memory: str, as_json: bool) -> None:
    """Start emulated hosts and print the path of their inventory. A host that is up stays as it is.

    A host that was up before a crash of this machine starts again from its disk.
    """
    from vgpuctl import lab

    shapes = [lab.parse_host(text) for text in hosts]
    started = lab.up(shapes, folder=_folder(folder), memory_mib=parse_mib(memory, what="--memory"), say=say)
    if as_json:
        print_json({"inventory": str(started[0].inventory), "hosts": [_described(host) for host in started]})
    else:
        click.echo(started[0].inventory)


@command.command("down")
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
@click.option("--purge", is_flag=True, help="Also remove what was built; the next start builds it again.")
@click.pass_obj
def down(folder: Path | None, hosts: tuple[str, ...], purge: bool) -> None:
    """End emulated hosts, all without HOST, and remove their disks and files."""
    from vgpuctl import lab

    ended = lab.down(hosts, folder=_folder(folder), purge=purge)
    say(f"ended {', '.join(ended)}" if ended else "no host was there")


@command.command("status")
@options.as_json
@click.pass_obj
def status(folder: Path | None, as_json: bool) -> None:
    """List the emulated hosts of this lab."""
    from vgpuctl import lab

    hosts = lab.status(folder=_folder(folder))
    if as_json:
        print_json({"hosts": [_described(host) for host in hosts]})
        return
    rows = [
        (
            host.name,
            host.state,
            host.port,
            format_mib(host.memory_mib),
            host.accelerator,
            None if host.seconds is None else f"{host.seconds:.0f} s",
            " ".join(host.cards),
        )
        for host in hosts
    ]
    print_table(_COLUMNS, rows, empty="no host is up; `vgpuctl lab up` starts one")


@command.command("reboot")
@click.argument("host")
@click.pass_obj
def reboot(folder: Path | None, host: str) -> None:
    """Reset an emulated host and wait until it answers: VFs and vGPUs are gone, the disk stays."""
    from vgpuctl import lab

    again = lab.reboot(host, folder=_folder(folder), say=say)
    say(f"{again.name}: up again after {again.seconds:.0f} s")


@command.command("shell", context_settings={"ignore_unknown_options": True})
@click.argument("host")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.pass_obj
def shell(folder: Path | None, host: str, words: tuple[str, ...]) -> None:
    """Run COMMAND as root on an emulated host, or a shell without one. Ends with the command's exit code."""
    from vgpuctl import lab

    arguments = lab.shell_command(host, words, folder=_folder(folder))
    sys.stdout.flush()
    os.execv(arguments[0], arguments)


@command.command("log")
@click.argument("host")
@click.pass_obj
def log(folder: Path | None, host: str) -> None:
    """Print what an emulated host wrote to its console since it was started."""
    from vgpuctl import lab

    with lab.console_log(host, folder=_folder(folder)).open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)


def _folder(named: Path | None) -> "LabFolder":
    from vgpuctl import lab

    return lab.LabFolder(named.expanduser().absolute()) if named else lab.default_folder()


def _described(host: "LabHost") -> dict[str, object]:
    """A host's fields with paths as text."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in vars(host).items()}
