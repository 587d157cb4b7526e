# SPDX-License-Identifier: Apache-2.0
"""lab: emulated GPU hosts to rehearse on."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import DecimalRange, WholeRange
from vgpuctl.cli.shown.output import print_document, print_json, print_table, say
from vgpuctl.errors import UsageError
from vgpuctl.model.units import format_mib, parse_mib
from vgpuctl_lab.cli import fault as lab_fault
from vgpuctl_lab.cli import licence_server as lab_licence_server
from vgpuctl_lab.cli import play as lab_play
from vgpuctl_lab.cli import tutorial as lab_tutorial
from vgpuctl_lab.cli.examples import show_examples
from vgpuctl_lab.cli.folders import lab_folder as _folder

if TYPE_CHECKING:
    from vgpuctl_lab import LabHost
    from vgpuctl_lab.simulated import SimulatedHostStatus

_MEMORY = "4GiB"
_SIMULATED_COLUMNS = ("HOST", "STATE", "PORT", "UPTIME", "LATENCY", "SESSIONS", "VMS", "CARDS")
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
    """Emulated GPU hosts on this machine: a real kernel, real sshd and libvirtd, simulated cards.

    With --simulated: many light hosts at once, of which the machine under the agent is simulated too.
    """
    context.obj = folder


@command.command("up")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME[=BOARD[:INTERFACE][@NODE][+keeps-mig],…]",
    help="A host and its cards; several times. INTERFACE is mdev, mdev-vf, vf-profile, passthrough or vf; without"
    " it a card has the one that its board has on a current host. @0 or @1 puts a card on that NUMA node."
    " +keeps-mig lets a board of Hopper or later keep its MIG mode over a reboot."
    "  [default: gpu1=a40:vf-profile,a40:mdev-vf,t4:mdev,rtx-3090:passthrough,flex-170:vf]",
)
@click.option(
    "-f",
    "--file",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A lab file that says all of this (docs/lab.md).",
)
@click.option(
    "--memory", default=_MEMORY, show_default=True, metavar="SIZE", help="Memory of each host that is started."
)
@click.option(
    "--simulated",
    type=WholeRange(min=1),
    metavar="N",
    help="Start N simulated hosts instead: real sshd, agent and libvirt, but no kernel of their own.",
)
@click.option(
    "--mix",
    metavar="BOARD:WEIGHT,…",
    help="Cards of the simulated hosts, by weight, as in a40:50,a40/mdev-vf*4+t4:20; cards of one host are joined"
    " by +, *4 means four.  [default: a40:1]",
)
@click.option(
    "--from",
    "captures",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="CAPTURE",
    help="Replay a capture of `record-host` as a simulated host named as the file; several times.",
)
@click.option(
    "--latency-ms",
    type=DecimalRange(0, 60_000),
    default=0,
    show_default=True,
    metavar="MS",
    help="How much longer every round trip to a new simulated host takes.",
)
@options.as_json
@click.pass_obj
def up(
    folder: Path | None,
    hosts: tuple[str, ...],
    file: Path | None,
    memory: str,
    simulated: int | None,
    mix: str | None,
    captures: tuple[Path, ...],
    latency_ms: float,
    as_json: bool,
) -> None:
    """Start emulated hosts and print the path of their inventory. A host that is up stays as it is.

    With --from: a host that answers readings as the captured one did. It refuses every change (docs/captures.md).

    A host that was up before a crash of this machine starts again from its disk.
    """
    import vgpuctl_lab as lab
    from vgpuctl_lab.lab_file import LabFile, read_lab_file

    if file is not None:
        if hosts or simulated is not None or mix is not None or captures or latency_ms or memory != _MEMORY:
            raise UsageError("--file with another option of what to start", hint="say it all in the file")
        wanted = read_lab_file(file)
    elif captures:
        if hosts or simulated is not None or mix is not None or memory != _MEMORY:
            raise UsageError("--from with another kind of host", hint="run `lab up` once for each kind")
        wanted = LabFile((), 0, 0, "", latency_ms)
    elif simulated is not None:
        if hosts:
            raise UsageError("--host and --simulated at once", hint="run `lab up` once for each kind, or use --file")
        wanted = LabFile((), 0, simulated, mix or lab.simulated.DEFAULT_MIX, latency_ms)
    else:
        if mix is not None or latency_ms:
            raise UsageError("--mix and --latency-ms belong to --simulated")
        shapes = tuple(lab.parse_host(text) for text in hosts) or (lab.parse_host(lab.DEFAULT_HOST),)
        wanted = LabFile(shapes, parse_mib(memory, what="--memory"), 0, "", 0)
    few = lab.up(wanted.shapes, folder=_folder(folder), memory_mib=wanted.memory_mib, say=say) if wanted.shapes else []
    many: list[SimulatedHostStatus] = []
    if wanted.simulated_count:
        many = lab.simulated.up(
            wanted.simulated_count, mix=wanted.mix, latency_ms=wanted.latency_ms, folder=_folder(folder), say=say
        )
    if captures:
        many = lab.simulated.replay(captures, latency_ms=latency_ms, folder=_folder(folder), say=say)
    inventories = [str(one[0].inventory) for one in (few, many) if one]
    if as_json:
        described = {"hosts": [_described(host) for host in few], "simulated": [_described(host) for host in many]}
        print_json({"inventory": inventories[0], "inventories": inventories, **described})
    else:
        print_document("\n".join(inventories))


@command.command("down")
@click.argument("hosts", nargs=-1, metavar="[HOST]...")
@click.option("--purge", is_flag=True, help="Also remove what was built; the next start builds it again.")
@click.pass_obj
def down(folder: Path | None, hosts: tuple[str, ...], purge: bool) -> None:
    """End emulated hosts and remove their disks and files; without HOST all of them, and the licence servers."""
    import vgpuctl_lab as lab

    there = lab.simulated.names(folder=_folder(folder))
    many, few = [name for name in hosts if name in there], [name for name in hosts if name not in there]
    ended = lab.simulated.down(many, folder=_folder(folder)) if many or not hosts else []
    if not hosts:
        from vgpuctl_lab import licensing

        ended += licensing.down(folder=_folder(folder))
    if few or not hosts:
        ended += lab.down(few, folder=_folder(folder), purge=purge)
    say(f"ended {', '.join(ended)}" if ended else "no host was there")


@command.command("status")
@options.as_json
@click.pass_obj
def status(folder: Path | None, as_json: bool) -> None:
    """List the emulated hosts of this lab."""
    import vgpuctl_lab as lab

    hosts = lab.status(folder=_folder(folder))
    many = lab.simulated.status(folder=_folder(folder))
    if as_json:
        print_json({"hosts": [_described(host) for host in hosts], "simulated": [_described(host) for host in many]})
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
    if rows or not many:
        print_table(_COLUMNS, rows, empty="no host is up; `vgpuctl lab up` starts one")
    if many:
        print_table(_SIMULATED_COLUMNS, [_simulated_row(host) for host in many], empty="")


@command.command("reboot")
@click.argument("host")
@click.pass_obj
def reboot(folder: Path | None, host: str) -> None:
    """Reset an emulated host and wait until it answers: VFs and vGPUs are gone, the disk stays."""
    import vgpuctl_lab as lab

    if host in lab.simulated.names(folder=_folder(folder)):
        lab.simulated.reboot(host, folder=_folder(folder))
        say(f"{host}: up again")
        return
    again = lab.reboot(host, folder=_folder(folder), say=say)
    say(f"{again.name}: up again after {again.seconds:.0f} s")


@command.command("shell", context_settings={"ignore_unknown_options": True})
@click.argument("host")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.pass_obj
def shell(folder: Path | None, host: str, words: tuple[str, ...]) -> None:
    """Run COMMAND as root on an emulated host, or a shell without one. Ends with the command's exit code."""
    import vgpuctl_lab as lab

    is_simulated = host in lab.simulated.names(folder=_folder(folder))
    kind = lab.simulated.shell_command if is_simulated else lab.shell_command
    arguments = kind(host, words, folder=_folder(folder))
    sys.stdout.flush()
    os.execv(arguments[0], arguments)


@command.command("log")
@click.argument("host")
@click.pass_obj
def log(folder: Path | None, host: str) -> None:
    """Print what an emulated host wrote to its console since it was started; of a simulated one, its kernel's log."""
    import vgpuctl_lab as lab

    is_simulated = host in lab.simulated.names(folder=_folder(folder))
    path = (lab.simulated.kernel_log if is_simulated else lab.console_log)(host, folder=_folder(folder))
    with path.open("rb") as file:
        for line in file:
            print_document(line.decode(errors="replace"), nl=False)


command.add_command(lab_fault.command)
command.add_command(lab_licence_server.command)
command.add_command(lab_licence_server.licence_token)
command.add_command(lab_play.command)
command.add_command(lab_tutorial.command)
show_examples(command)


def _simulated_row(host: "SimulatedHostStatus") -> tuple[object, ...]:
    uptime = None if host.uptime_s is None else f"{host.uptime_s:.0f} s"
    latency = f"{host.latency_ms:g} ms"
    return (host.name, host.state, host.port, uptime, latency, host.sessions, host.vms, " ".join(host.cards))


def _described(host: "LabHost | SimulatedHostStatus") -> dict[str, object]:
    """A host's fields with paths as text."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in vars(host).items()}
