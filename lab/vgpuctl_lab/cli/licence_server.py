# SPDX-License-Identifier: Apache-2.0
"""lab licence-server, lab licence-token: a stand-in for NVIDIA's licence service, and for its tokens."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.shown.output import print_json, print_table, say
from vgpuctl.errors import UsageError
from vgpuctl.model.times import format_duration, format_time_to_second, parse_duration
from vgpuctl_lab.cli.folders import lab_folder

if TYPE_CHECKING:
    from vgpuctl_lab.licensing import LicenceServer

_COLUMNS = ("SERVER", "STATE", "ADDRESS", "LEASE", "EDITION", "SEATS", "LEASED", "FREE")
_LEASE_COLUMNS = ("SERVER", "EDITION", "CLIENT", "CHECKED OUT", "EXPIRES")
_target = click.option(
    "--to",
    "target",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="New file, mode 0600; one that is there stays as it is.",
)


@click.group("licence-server")
def command() -> None:
    """A stand-in for NVIDIA's licence service: seats, leases and tokens over HTTPS, for the lab's guests alone.

    NVIDIA's protocol is not public, so no real licence client can talk to it.
    """


@command.command("up")
@click.argument("name")
@click.option(
    "--seats", "seats", multiple=True, metavar="EDITION=N", help="Seats of an edition, as vws=2; several times."
)
@click.option("--lease", metavar="TIME", help="Lease of a check-out, renewed after 15 % of it.  [default: 1d]")
@click.option("--listen", metavar="ADDRESS", help="Address to listen on; the port is a free one.  [default: 127.0.0.1]")
@click.option(
    "--restrict-after", metavar="TIME", help="Time without a licence until a guest's driver throttles.  [default: 20m]"
)
@click.option(
    "--stop-after", metavar="TIME", help="Time without a licence until a guest's driver throttles most.  [default: 1d]"
)
@options.as_json
@click.pass_obj
def up(
    folder: Path | None,
    name: str,
    seats: tuple[str, ...],
    lease: str | None,
    listen: str | None,
    restrict_after: str | None,
    stop_after: str | None,
    as_json: bool,
) -> None:
    """Start the licence server NAME, or change one that is up. Options that are left out change nothing."""
    from vgpuctl_lab import licensing

    timers = None
    if restrict_after is not None or stop_after is not None:
        timers = (
            licensing.TIMERS[0] if restrict_after is None else parse_duration(restrict_after, what="--restrict-after"),
            licensing.TIMERS[1] if stop_after is None else parse_duration(stop_after, what="--stop-after"),
        )
    server = licensing.up(
        name,
        dict(_seats(one) for one in seats) if seats else None,
        lease_s=None if lease is None else parse_duration(lease, what="--lease"),
        address=listen,
        timers=timers,
        folder=lab_folder(folder),
    )
    _print([server], as_json=as_json)


@command.command("down")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.pass_obj
def down(folder: Path | None, names: tuple[str, ...]) -> None:
    """End licence servers, all without NAME, and remove their files. Tokens of them are worth nothing afterwards."""
    from vgpuctl_lab import licensing

    ended = licensing.down(names, folder=lab_folder(folder))
    say(f"ended {', '.join(ended)}" if ended else "no licence server was there")


@command.command("stop")
@click.argument("name")
@click.pass_obj
def stop(folder: Path | None, name: str) -> None:
    """Let a licence server fail: its leases run on, and `up` starts it again on its port."""
    from vgpuctl_lab import licensing

    was_up = licensing.stop(name, folder=lab_folder(folder))
    say(f"{name}: stopped" if was_up else f"{name} was not up")


@command.command("status")
@options.as_json
@click.pass_obj
def status(folder: Path | None, as_json: bool) -> None:
    """List the licence servers of this lab, their seats and their leases."""
    from vgpuctl_lab import licensing

    _print(licensing.status(folder=lab_folder(folder)), as_json=as_json)


@command.command("token")
@click.argument("name")
@_target
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="HOST",
    help="Host name or address by which guests reach the server; several times.  [default: its own]",
)
@click.option("--lifetime", metavar="TIME", help="How long the token is valid.  [default: 12 years]")
@click.pass_obj
def token(folder: Path | None, name: str, target: Path, addresses: tuple[str, ...], lifetime: str | None) -> None:
    """Write a client configuration token of a licence server, which names its address and is signed with its key."""
    from vgpuctl_lab import licensing
    from vgpuctl_lab.licence_token import LIFETIME_S

    lifetime_s = LIFETIME_S if lifetime is None else parse_duration(lifetime, what="--lifetime")
    text = licensing.token(name, addresses=addresses, lifetime_s=lifetime_s, folder=lab_folder(folder))
    _write(target, text)
    say(f"{target}: token of the lab's licence server {name}")


@command.command("revoke")
@click.argument("name")
@click.pass_obj
def revoke(folder: Path | None, name: str) -> None:
    """Revoke every token of a licence server that was written so far: guests keep their lease to its end."""
    from vgpuctl_lab import licensing

    say(f"{name}: {licensing.revoke_tokens(name, folder=lab_folder(folder))} tokens revoked")


@click.command("licence-token")
@click.argument("servers", metavar="SERVER...", nargs=-1, required=True)
@_target
def licence_token(servers: tuple[str, ...], target: Path) -> None:
    """Write a stand-in for a licence server's client configuration token, which no real licence client accepts."""
    from vgpuctl_lab.licence_token import licence_token as make

    _write(target, make(*servers))
    say(f"{target}: stand-in token of {', '.join(servers)}")


def _write(target: Path, text: str) -> None:
    from vgpuctl.local_files import write_new

    if not write_new(target, text.encode() + b"\n", "the token"):
        raise UsageError(f"{target} is there already", hint="name a new file")


def _seats(text: str) -> tuple[str, int]:
    edition, sign, count = text.partition("=")
    if not sign or not count.isdecimal() or len(count) > 9:
        raise UsageError(f"--seats {text!r}", hint="write for example --seats vws=2")
    return edition, int(count)


def _print(servers: "list[LicenceServer]", *, as_json: bool) -> None:
    if as_json:
        print_json({"servers": [_described(one) for one in servers]})
        return
    rows, leases = [], []
    for server in servers:
        for edition, count in server.seats.items():
            leased = sum(1 for one in server.leases if one.edition == edition)
            place = f"{server.address}:{server.port}"
            lease = format_duration(server.lease_s)
            rows.append((server.name, server.state, place, lease, edition, count, leased, max(0, count - leased)))
        leases += [
            (server.name, one.edition, one.client, *map(format_time_to_second, (one.taken_at, one.expires_at)))
            for one in server.leases
        ]
    print_table(_COLUMNS, rows, empty="no licence server; `vgpuctl lab licence-server up dls --seats vws=2` starts one")
    if leases:
        print_table(_LEASE_COLUMNS, leases, empty="")


def _described(server: "LicenceServer") -> dict[str, object]:
    """Without the ids of the leases: whoever has one can return it."""
    leases = [{name: value for name, value in vars(one).items() if name != "id"} for one in server.leases]
    return {**vars(server), "leases": leases}
