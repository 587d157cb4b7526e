# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share, with one help text each."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from vgpuctl.agent.wire.bus_id import normalise_bus_id
from vgpuctl.cli.options import output_format
from vgpuctl.cli.options.database_url import database_url
from vgpuctl.cli.options.numbers import SecondsRange, WholeRange
from vgpuctl.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])

_INVENTORY_READER = "vgpuctl.inventory_reader"
_sources = click.option(
    "-i",
    "--inventory",
    "inventories",
    multiple=True,
    envvar="VGPUCTL_INVENTORY",
    metavar="PATH",
    help="Inventory file, folder or comma-separated hosts; several times, later ones win.  [env: VGPUCTL_INVENTORY]",
)


def _keep_reader(context: click.Context, _parameter: click.Parameter, name: str | None) -> None:
    context.meta[_INVENTORY_READER] = name


def inventory(function: Command) -> Command:
    """The sources of the inventory, and who reads them."""
    reader = click.option(
        "--inventory-reader",
        envvar="VGPUCTL_INVENTORY_READER",
        type=click.Choice(["vgpuctl", "ansible"]),
        expose_value=False,
        callback=_keep_reader,
        help="Who reads the inventory; ansible also runs scripts and plugins.  [default: vgpuctl]"
        "  [env: VGPUCTL_INVENTORY_READER]",
    )
    return _sources(reader(function))


def inventory_reader() -> str | None:
    """The reader that the command names, by option, variable or file; None where nobody does."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(_INVENTORY_READER)


limit = click.option(
    "-l", "--limit", metavar="PATTERN", help="Only matching hosts: names, groups, globs, !not, &and, @file."
)
forks = click.option(
    "--forks",
    type=WholeRange(1, 500),
    envvar="VGPUCTL_FORKS",
    help="Hosts contacted at the same time.  [default: all, at most 25]  [env: VGPUCTL_FORKS]",
)
database = click.option(
    "--database",
    envvar="VGPUCTL_DATABASE_URL",
    metavar="URL",
    callback=database_url,
    help="Store: sqlite:///FILE, postgresql://…, or @FILE with such a URL.  [default: a file in the user's data folder]"
    "  [env: VGPUCTL_DATABASE_URL]",
)
as_json = output_format.as_json
dry_run = click.option("--dry-run", is_flag=True, help="Show the steps without changing anything.")
yes = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
every_refusal = click.option(
    "--all-refusals", expose_value=False, is_flag=True, help="Show every refusal of a host or GPU instead of groups."
)
refresh = click.option("--refresh", is_flag=True, help="Read the hosts again instead of the cached facts.")

_ALL_TENANTS = "vgpuctl.all_tenants"


def tenant_of(text: str, *, required: bool = True) -> Callable[[Command], Command]:
    """`--tenant` of a command that names an object of a tenant, or may. text: its help."""
    return click.option(
        "-t",
        "--tenant",
        required=required,
        envvar="VGPUCTL_TENANT",
        metavar="NAME",
        help=f"{text}  [env: VGPUCTL_TENANT]",
    )


def tenant_filter_of(text: str) -> Callable[[Command], Command]:
    """`--tenant` of a list, and `--all-tenants`, which lifts the default tenant of the environment. text: its help."""

    def note(context: click.Context, _parameter: click.Parameter, given: bool) -> None:
        context.meta[_ALL_TENANTS] = given

    def read(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
        if not context.meta.get(_ALL_TENANTS):
            return given
        if context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
            raise click.UsageError("--tenant and --all-tenants exclude each other.")
        return None

    def decorate(function: Command) -> Command:
        every = click.option(
            "-A",
            "--all-tenants",
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=note,
            help="Objects of all tenants, also where VGPUCTL_TENANT or the configuration names one.",
        )
        one = click.option("-t", "--tenant", envvar="VGPUCTL_TENANT", metavar="NAME", callback=read, help=text)
        return one(every(function))

    return decorate


def has_all_tenants(context: click.Context) -> bool:
    """True if --all-tenants was given to a command with `tenant_filter_of`."""
    return bool(context.meta.get(_ALL_TENANTS))


tenant = tenant_of("The tenant the VM belongs to.")
network_tenant = tenant_of("The tenant the network belongs to.")
tenant_filter = tenant_filter_of("Only objects of this tenant.")


def _read_selector(_context: click.Context, _parameter: click.Parameter, given: str | None) -> Any:
    from vgpuctl.model.labels import parse_selector

    return None if given is None else parse_selector(given)


selector = click.option(
    "--selector",
    metavar="SELECTOR",
    callback=_read_selector,
    help="Only VMs with such labels: KEY=VALUE, KEY!=VALUE, KEY, !KEY, KEY in (A,B), KEY notin (A,B); `,` is and.",
)


def vms_limit(*more: str) -> Callable[[Command], Command]:
    """--limit of commands on VMs: the VMs on which hosts. more: further names of the option."""
    return click.option(
        "-l",
        "--limit",
        *more,
        "vms_limit",
        metavar="PATTERN",
        help="Only VMs on matching hosts: names, groups, globs, !not, &and, @file.",
    )


_HISTORY: dict[str, Any] = {
    "envvar": "VGPUCTL_HISTORY",
    "type": click.Path(path_type=Path, dir_okay=False),
    "metavar": "FILE",
    "help": "Readings that `vgpuctl serve exporter` keeps.  [default: beside the store]  [env: VGPUCTL_HISTORY]",
}
history = click.option("--history", **_HISTORY)
history_file = click.option("--history-file", **_HISTORY)
"""The same for a command whose --history is something else."""
prometheus = click.option(
    "--prometheus",
    envvar="VGPUCTL_PROMETHEUS",
    metavar="URL",
    help="Read past readings from this Prometheus server instead of the history.  [env: VGPUCTL_PROMETHEUS]",
)

web_config = click.option(
    "--web-config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="TLS and users, in the web-config format of Prometheus's exporters; a changed file counts at once.",
)


def listen(default: str) -> Callable[[Command], Command]:
    """The address of a server."""
    return click.option(
        "--listen",
        metavar="ADDRESS:PORT",
        default=default,
        show_default=True,
        help="Address to serve HTTP on; port 0 takes a free one.",
    )


def _read_allowed_hosts(_context: click.Context, _parameter: click.Parameter, given: Sequence[str]) -> tuple[str, ...]:
    from vgpuctl.listening.hosts import read_allowed_host

    return tuple(map(read_allowed_host, given))


allow_host = click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    callback=_read_allowed_hosts,
    help="Name by which clients call this server, such as a Service's; several times.  [default: the address that they"
    " connect to, and the names in the certificate]",
)


def seconds(
    name: str, default: float | str, text: str, *, least: float = 0, most: float = 3600
) -> Callable[[Command], Command]:
    """`NAME_s`, a time in seconds. name: of the option, `tune-watch`. text: its help."""
    return click.option(
        f"--{name}",
        f"{name.replace('-', '_')}_s",
        type=SecondsRange(least, most),
        default=default,
        show_default=True,
        help=text,
    )


def readings_interval(default_s: float) -> Callable[[Command], Command]:
    """How often hosts are read."""
    return seconds("interval", default_s, "Seconds between two readings of a host.", least=1)


def reason(text: str, *, required: bool = True) -> Callable[[Command], Command]:
    """Why a command is given: `--reason TEXT`. A blank one is as none."""

    def read(ctx: click.Context, param: click.Parameter, given: str | None) -> str:
        told = (given or "").strip()
        if required and not told:
            raise click.BadParameter("a reason has words.", ctx, param)
        return told

    return click.option("--reason", required=required, metavar="TEXT", callback=read, help=text)


def shutdown_timeout(
    text: str, *, name: str = "shutdown-timeout", default_s: float = 120.0
) -> Callable[[Command], Command]:
    """How long a guest may take to shut down. text: its help."""
    return seconds(name, default_s, text)


def move_way(function: Command) -> Command:
    """`way`: the only way of moving a VM that is allowed, `live` or `cold`; None for the kindest that can be."""

    @functools.wraps(function)
    def with_way(*arguments: Any, is_cold: bool, is_live: bool, **given: Any) -> Any:
        if is_cold and is_live:
            raise click.UsageError("--cold and --live-only exclude each other")
        return function(*arguments, way="cold" if is_cold else "live" if is_live else None, **given)

    for option, name, text in (
        ("--cold", "is_cold", "Stop each VM for its move, also where it could run on."),
        ("--live-only", "is_live", "Move no VM that would have to be stopped for it."),
    ):
        with_way = click.option(option, name, is_flag=True, help=text)(with_way)
    return cast("Command", with_way)


def max_downtime(function: Command) -> Command:
    """`max_downtime_s`, the longest that a live move may halt a guest."""
    return click.option(
        "--max-downtime",
        "max_downtime_s",
        type=SecondsRange(1, 86_400),
        metavar="DURATION",
        help="The longest that a live move may halt the guest.  [default: as the VM says]",
    )(function)


def hold(function: Command) -> Command:
    """`hold` and `hold_for`: what becomes of the GPU shares of a VM that is off, and for how long."""
    hold_for = click.option(
        "--hold-for",
        metavar="DURATION",
        help="Keep them for so long: 90m, 2h, 1d12h; `vgpuctl controller` then releases them."
        "  [default: until it starts]",
    )
    return click.option(
        "--hold",
        type=click.Choice(["keep", "release"]),
        default="keep",
        show_default=True,
        help="Keep the GPU shares for the next start, or release them to the pool.",
    )(hold_for(function))


def hold_seconds(hold: str, hold_for: str | None) -> float | None:
    """How long shares are kept, None for ever. Raises UsageError."""
    from vgpuctl.model.times import parse_duration

    keep_s = None if hold_for is None else parse_duration(hold_for, what="--hold-for")
    if keep_s is not None and hold == "release":
        raise UsageError("--hold-for goes with shares that are kept", hint="leave --hold release out")
    return keep_s


def no_drain(function: Command) -> Command:
    """`drain_s`, the longest wait for the work on a node of a cluster: 0 with --no-drain, else None, its pool's."""
    return click.option(
        "--no-drain",
        "drain_s",
        is_flag=True,
        callback=lambda _context, _option, is_given: 0.0 if is_given else None,
        help="Cordon a node of a cluster and do not wait for its work to leave.  [default: wait as its pool says]",
    )(function)


def refuse_waits(flag: str) -> None:
    """Raise click.UsageError where a command whose flag asks no guest is told how long to wait for one."""
    context = click.get_current_context()
    for name, other in (("timeout_s", "--timeout"), ("drain_s", "--no-drain")):
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{flag} waits for no guest, so it excludes {other}.")


def ssh(function: Command) -> Command:
    """Options of commands that log in to hosts."""
    for option in (
        click.option(
            "--connect-timeout",
            "connect_timeout_s",
            type=SecondsRange(0.1, 600),
            envvar="VGPUCTL_CONNECT_TIMEOUT",
            default=10.0,
            show_default=True,
            help="Seconds to wait for a host's SSH port.  [env: VGPUCTL_CONNECT_TIMEOUT]",
        ),
        click.option(
            "--command-timeout",
            "command_timeout_s",
            type=SecondsRange(1, 3600),
            envvar="VGPUCTL_COMMAND_TIMEOUT",
            default=60.0,
            show_default=True,
            help="Seconds to wait for a host's answer; changes get five times as long.  [env: VGPUCTL_COMMAND_TIMEOUT]",
        ),
        click.option(
            "--known-hosts",
            type=click.Path(path_type=Path, dir_okay=False),
            envvar="VGPUCTL_KNOWN_HOSTS",
            metavar="FILE",
            help="File of known host keys.  [default: ssh_config's UserKnownHostsFile]  [env: VGPUCTL_KNOWN_HOSTS]",
        ),
    ):
        function = option(function)
    return function


def gpu_of_host(parameter: str) -> Callable[[Command], Command]:
    """HOST and a GPU of it, also as one word `HOST/GPU`, which lists print. parameter: of the GPU."""

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def command(host: str, **given: Any) -> Any:
            on, _, gpu = host.partition("/")
            if bool(gpu) == (given[parameter] is not None):
                raise UsageError(
                    f"{host} names a GPU already" if gpu else f"no GPU of {on} is named",
                    hint="write HOST GPU or HOST/GPU; see `vgpuctl list-gpus -o name`",
                )
            return function(host=on, **{**given, parameter: normalise_bus_id(gpu or given[parameter])})

        made = click.argument(parameter, required=False)(cast(Command, command))
        return click.argument("host")(made)

    return decorate


def only_gpu(text: str) -> Callable[[Command], Command]:
    """--gpu ADDRESS of a command on a host, also without the domain: `41:00.0`."""
    return click.option(
        "--gpu",
        metavar="ADDRESS",
        callback=lambda _context, _option, given: None if given is None else normalise_bus_id(given),
        help=text,
    )


def one_host(function: Command) -> Command:
    """Options of commands that log in to the host of an object: inventory, store and SSH."""
    return inventory(database(ssh(function)))


def many_hosts(function: Command) -> Command:
    """Options of commands that log in to many hosts: those of `one_host`, which hosts, and how many at once."""
    return inventory(limit(database(ssh(forks(function)))))
