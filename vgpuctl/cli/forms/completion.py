# SPDX-License-Identifier: Apache-2.0
"""Completion of values in a shell: which parameter takes which names, and where they come from.

Names come from the store as it is; no host is contacted. One table for all commands: a parameter that takes a name is
in it, or among those whose values nobody can list.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from vgpuctl.cli.forms.configuration import ConfiguredDefaults, configuration
from vgpuctl.cli.options.output_format import OF_LIST, OF_ONE
from vgpuctl.errors import VgpuctlError

Source = Callable[[click.Context, str], Sequence[str]]


def _of_store(kind: str) -> Source:
    def read(context: click.Context, incomplete: str) -> Sequence[str]:
        from vgpuctl.store.address import default_url
        from vgpuctl.store.names import CompletedKind, names

        url = _given(context, "database") or default_url()
        if str(url).startswith("@"):
            from vgpuctl.cli.options.database_url import read_url_file

            url = read_url_file(Path(str(url)[1:]))
        tenant = None if "/" in incomplete else _given(context, "tenant")
        found = names(str(url), CompletedKind(kind), tenant=tenant, host=context.params.get("host"))
        return [one for one in found if one not in _written(context)]

    return read


def _given(context: click.Context, name: str) -> Any:
    """The value of an option that was written before, of the environment, or of a file."""
    parameter = next((one for one in context.command.params if one.name == name), None)
    if parameter is None:
        return None
    value = context.params.get(name) or parameter.value_from_envvar(context)
    return value or ConfiguredDefaults(context.command).get(name)


def _written(context: click.Context) -> Sequence[str]:
    """Names that the command line has already."""
    return [one for value in context.params.values() if isinstance(value, tuple) for one in value]


def _contexts(_context: click.Context, _incomplete: str) -> Sequence[str]:
    return sorted(configuration().contexts)


def _policies(_context: click.Context, _incomplete: str) -> Sequence[str]:
    from vgpuctl.model.policy import PolicyName

    return [str(one) for one in PolicyName]


def _systems(_context: click.Context, _incomplete: str) -> Sequence[str]:
    from vgpuctl.catalog.guest_os import GUEST_OSES

    return sorted(GUEST_OSES)


def _kinds_of_events(_context: click.Context, _incomplete: str) -> Sequence[str]:
    from vgpuctl.model.event_kind import EventKind

    return [str(one) for one in EventKind]


def _commands(context: click.Context, _incomplete: str) -> Sequence[str]:
    root = context.find_root()
    return root.command.list_commands(root) if isinstance(root.command, click.Group) else []


def _words_of_help(context: click.Context, incomplete: str) -> Sequence[str]:
    """The first words of commands, or the second ones after that of a family."""
    given = "".join(f"{one} " for one in context.params.get("subject") or ())
    return list(
        dict.fromkeys(
            name.removeprefix(given).partition(" ")[0]
            for name in _commands(context, incomplete)
            if name.startswith(given)
        )
    )


def _priorities(_context: click.Context, _incomplete: str) -> Sequence[str]:
    from vgpuctl.model.priority import PriorityClass

    return [one.name.lower() for one in PriorityClass]


def _egress_defaults(_context: click.Context, _incomplete: str) -> Sequence[str]:
    from vgpuctl.model.security_rule import EgressDefault

    return list(EgressDefault)


def _selectors(context: click.Context, incomplete: str) -> Sequence[str]:
    """Selectors with one more label of the store at their end."""
    head = incomplete[: incomplete.rfind(",") + 1]
    return [head + one for one in _LABEL(context, "")]


VM, HOST, TENANT = _of_store("VM"), _of_store("host"), _of_store("tenant")
_NETWORK, _IMAGE, _PROFILE = _of_store("network"), _of_store("image"), _of_store("profile")
_EXTERNAL, _GROUP, _BALANCER = _of_store("external network"), _of_store("security group"), _of_store("load balancer")
_ADDRESSES, _VPN = _of_store("address group"), _of_store("VPN connection")
_HOST_POOL, _NODE_POOL, _DISK = _of_store("host pool"), _of_store("node pool"), _of_store("disk")
_RESERVATION, _LICENCES = _of_store("reservation"), _of_store("licence pool")
_GPU, _DELETED, _LABEL = _of_store("GPU"), _of_store("deleted VM"), _of_store("label")


def _hosts(context: click.Context, incomplete: str) -> Sequence[str]:
    """Hosts; behind `HOST/` the GPUs of it, where a command takes one."""
    host, slash, _ = incomplete.partition("/")
    if not slash or all(BY_PARAMETER.get(one.name or "") is not _GPU for one in context.command.params):
        return HOST(context, incomplete)
    context.params["host"] = host
    return [f"{host}/{one}" for one in _GPU(context, "")]


BY_PARAMETER: dict[str, Source] = {
    "tenant": TENANT,
    "tenants": TENANT,
    "neighbour": TENANT,
    "host": _hosts,
    "hosts": HOST,
    "vms_limit": HOST,
    "to": HOST,
    "gpu": _GPU,
    "address": _GPU,
    "gpus": _PROFILE,
    "what": _PROFILE,
    "profile": _PROFILE,
    "profiles": _PROFILE,
    "network": _NETWORK,
    "external_network": _EXTERNAL,
    "security_groups": _GROUP,
    "groups": _GROUP,
    "disk_base_image": _IMAGE,
    "install_iso": _IMAGE,
    "install_drivers": _IMAGE,
    "kernel_image": _IMAGE,
    "kernel_initrd": _IMAGE,
    "vm": VM,
    "vms": VM,
    "vm_names": VM,
    "sender": VM,
    "receiver": VM,
    "add_vms": VM,
    "remove_vms": VM,
    "draining": VM,
    "via": VM,
    "add_via": VM,
    "remove_via": VM,
    "undrain": VM,
    "forget": VM,
    "disk": _DISK,
    "node_pool": _NODE_POOL,
    "form": lambda _context, _incomplete: OF_LIST,
    "as_json": lambda _context, _incomplete: OF_ONE,
    "reservation": _RESERVATION,
    "licence_pool": _LICENCES,
    "host_pools": _HOST_POOL,
    "context_name": _contexts,
    "selector": _selectors,
    "policy": _policies,
    "os": _systems,
    "kinds": _kinds_of_events,
    "command": _commands,
    "subject": _words_of_help,
    "output_of": _commands,
    "priority": _priorities,
    "default": _egress_defaults,
}
_NAMES: tuple[tuple[Source, tuple[str, ...]], ...] = (
    (
        VM,
        (
            *("show-vm", "start-vm", "stop-vm", "restart-vm", "delete-vm", "move-vm", "resize-vm"),
            *("rename-vm", "check-vm", "attach-gpu", "detach-gpu", "attach-nic", "detach-nic"),
            *("console", "view", "screenshot", "set-console", "eject-iso", "attach-disk", "detach-disk", "resize-disk"),
            *("create-snapshot", "list-snapshots", "revert-snapshot", "delete-snapshot", "delete-floating-ip"),
        ),
    ),
    (_DELETED, ("restore-vm",)),
    (_NETWORK, ("delete-direct-connect",)),
    (_GROUP, ("create-security-rule", "delete-security-rule", "delete-security-group")),
    (_ADDRESSES, ("set-address-group", "delete-address-group")),
    (_BALANCER, ("set-load-balancer", "show-load-balancer", "delete-load-balancer")),
    (_VPN, ("set-vpn-connection", "rotate-vpn-keys", "delete-vpn-connection")),
    (TENANT, ("offboard-tenant", "delete-peering")),
    (_NODE_POOL, ("render-node",)),
    (_contexts, ("use-context",)),
)
OF_NAME = {command: source for source, commands in _NAMES for command in commands}
"""What NAME of a command is of: its argument `name` or `names`, where no row of a kind says so."""


class _Named(click.types.StringParamType):
    """A text that names something, and completes to the names there are."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that begin so; none where a file or the store cannot be read, since a shell waits here."""
        try:
            return [CompletionItem(one) for one in self._source(ctx, incomplete) if one.startswith(incomplete)]
        except VgpuctlError:
            return []


def named(kind: str) -> click.types.StringParamType:
    """The type of a name of a thing in the store. kind: its word in vgpuctl/store/names.py."""
    return _Named(_of_store(kind))


def source_of(command: str, parameter: click.Parameter) -> Source | None:
    """Where the values of a parameter come from; None where nobody can list them."""
    if isinstance(parameter, click.Argument) and parameter.name in ("name", "names", "pool"):
        return OF_NAME.get(command)
    return BY_PARAMETER.get(parameter.name or "")


def complete_values(command: click.Command) -> None:
    """Let the parameters of a command that take a name complete to the names there are."""
    for one in command.params:
        source = source_of(command.name or "", one)
        if source is not None and type(one.type) is click.types.StringParamType:
            one.type = _Named(source)
