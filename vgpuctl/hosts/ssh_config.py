# SPDX-License-Identifier: Apache-2.0
"""Puts inventory, ansible_ssh_common_args and ssh_config together: where to connect, as whom, through what."""

import getpass
import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vgpuctl.errors import InventoryError
from vgpuctl.hosts.common_args import CommonArguments, in_home, parse_common_args
from vgpuctl.hosts.quiet_paramiko import load_paramiko
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.ssh_names import host_name_fault, user_name_fault
from vgpuctl.specs.bounded_reader import Malformed, read_bounded

if TYPE_CHECKING:
    import paramiko

_MAXIMUM_HOPS = 8
_MAXIMUM_INCLUDES = 16
_SECTION = re.compile(r"\s*(?:host|match)(?:\s|=)", re.IGNORECASE)
_INCLUDE = re.compile(r"\s*include(?:\s*=\s*|\s+)(?P<patterns>.+?)\s*$", re.IGNORECASE)
_TOKEN = re.compile(r"%(.)")
_WHOLE = re.compile(r"[0-9]{1,6}")
_HIGHEST_PORT = 65535
_LONGEST_LINE = 4096
_SHOWN = 60


@dataclass(frozen=True)
class Endpoint:
    """One SSH server to log in to.

    name: the inventory's, or the hop as written. via: the jump hosts, first hop first. known_as: what known_hosts
    is searched for when HostKeyAlias is set. accepts_unknown_key: never a changed or revoked one.
    """

    name: str
    host: str
    port: int
    user: str
    known_hosts_files: tuple[Path, ...]
    identity_files: tuple[Path, ...] = ()
    has_chosen_identities: bool = False
    identities_only: bool = False
    agent_socket: str | None = None
    known_as: str | None = None
    accepts_unknown_key: bool = False
    connect_timeout_s: float = 10.0
    keepalive_s: int = 15
    address_family: str = "any"
    proxy_command: str | None = None
    via: tuple["Endpoint", ...] = ()
    password: str | None = field(default=None, repr=False)

    @property
    def known_hosts_name(self) -> str:
        """The name under which the host's key is kept: `host`, `[host]:port`, or the alias as it is."""
        if self.known_as is not None:
            return self.known_as
        return self.host.lower() if self.port == 22 else f"[{self.host.lower()}]:{self.port}"


def resolve(target: HostTarget, settings: SshSettings) -> Endpoint:
    """Work out where and how to log in: inventory before ansible_ssh_common_args before ssh_config.

    As for ssh, -o and -i are for the host itself; jump hosts follow ssh_config. Raises InventoryError.
    """
    arguments = parse_common_args(target.common_args, host=target.name)
    if arguments.config_file is not None:
        if not os.path.isfile(arguments.config_file):  # noqa: PTH113 - False for a name that is too long, too
            shown = str(arguments.config_file)[:_SHOWN]
            raise InventoryError(f"{target.name}: there is no ssh_config file {shown}")
        settings = replace(settings, ssh_config_file=arguments.config_file, system_ssh_config_file=None)
    load_paramiko()
    config = _read_config(settings)
    return _resolve_one(target.name, target.address, config, settings, target=target, arguments=arguments)


def _resolve_one(
    name: str,
    address: str,
    config: "paramiko.SSHConfig",
    settings: SshSettings,
    *,
    target: HostTarget | None = None,
    arguments: CommonArguments | None = None,
    user: str | None = None,
    port: int | None = None,
    depth: int = 0,
) -> Endpoint:
    if depth > _MAXIMUM_HOPS:
        raise InventoryError(
            f"{name}: more than {_MAXIMUM_HOPS} jump hosts behind one another",
            hint="see whether ProxyJump in ssh_config leads back to the same host",
        )
    _check_name(name, "address", address, host_name_fault(address))
    arguments = arguments or CommonArguments()
    found = _look_up(config, address, name)
    options: dict[str, str] = {
        **{key: value for key, value in found.items() if isinstance(value, str)},
        **arguments.options,
    }
    if "proxycommand" in arguments.options or "proxyjump" in arguments.options:
        for key in {"proxycommand", "proxyjump"} - arguments.options.keys():
            options.pop(key, None)
    host = options.get("hostname", address)
    inventory_port = target.port if target else port
    inventory_user = target.user if target else user
    number = inventory_port or _whole_number(options.get("port", "22"), "Port", name)
    login_user = inventory_user or options.get("user") or getpass.getuser()
    _check_name(name, "HostName", host, host_name_fault(host))
    _check_name(name, "user", login_user, user_name_fault(login_user))
    if not 1 <= number <= _HIGHEST_PORT:
        raise InventoryError(f"{name}: port {number} is none", hint="a port is 1 to 65535")
    expand = _expander(address, host, number, login_user)
    listed: list[str] = [target.private_key_file] if target and target.private_key_file else []
    listed += arguments.identity_files
    listed += found.get("identityfile") or []
    checking = options.get("stricthostkeychecking", "ask").lower()
    endpoint = Endpoint(
        name=name,
        host=host,
        port=number,
        user=login_user,
        known_hosts_files=_known_hosts_files(options, settings, expand),
        identity_files=tuple(Path(expand(text)) for text in listed if text.lower() != "none")
        or tuple(settings.default_key_files),
        has_chosen_identities=bool(listed),
        identities_only=options.get("identitiesonly", "no").lower() == "yes",
        agent_socket=_agent_socket(options.get("identityagent"), settings, expand),
        known_as=options.get("hostkeyalias"),
        accepts_unknown_key=(target is not None and not target.host_key_checking)
        or checking in ("no", "off", "accept-new"),
        connect_timeout_s=_seconds(options, "connecttimeout", name) or settings.connect_timeout_s,
        keepalive_s=_seconds(options, "serveraliveinterval", name) or settings.keepalive_s,
        address_family=options.get("addressfamily", "any").lower(),
        password=target.password if target else None,
    )
    jump = options.get("proxyjump", "none")
    if jump.lower() != "none":
        hops = _resolve_hops(expand(jump), config, settings, name=name, depth=depth)
        return replace(endpoint, via=hops)
    command = options.get("proxycommand", "none")
    if command.lower() != "none":
        return replace(endpoint, proxy_command=expand(command))
    return endpoint


def _resolve_hops(
    text: str, config: "paramiko.SSHConfig", settings: SshSettings, *, name: str, depth: int
) -> tuple[Endpoint, ...]:
    hops: list[Endpoint] = []
    for number, written in enumerate(part.strip() for part in text.split(",")):
        user, host, port = split_destination(written, what=f"{name}: ProxyJump")
        hop = _resolve_one(written, host, config, settings, user=user, port=port, depth=depth + 1)
        if number == 0:
            hops += hop.via
        else:
            hop = replace(hop, proxy_command=None)
        hops.append(replace(hop, via=()))
    return tuple(hops)


def split_destination(text: str, *, what: str) -> tuple[str | None, str, int | None]:
    """Split `[user@]host[:port]` or `ssh://[user@]host[:port]`; IPv6 addresses in brackets."""
    rest = text.removeprefix("ssh://").removesuffix("/")
    user, at, address = rest.rpartition("@")
    match = re.fullmatch(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\s]+))(?::(?P<port>[0-9]{1,5}))?", address)
    if match is None or (at and not user):
        raise InventoryError(f"{what}: {text[:_SHOWN]!a} is not [USER@]HOST[:PORT]")
    return user or None, match["v6"] or match["host"], int(match["port"]) if match["port"] else None


def _look_up(config: "paramiko.SSHConfig", address: str, name: str) -> Mapping[str, str | list[str] | None]:
    import paramiko

    try:
        return dict(config.lookup(address))
    except (paramiko.SSHException, ImportError, OSError, UnicodeError) as exc:
        raise InventoryError(
            f"{name}: ssh_config cannot be used for {address}: {exc}",
            hint="`Match exec` and canonical names are not supported; write a Host section instead",
        ) from exc


def _read_config(settings: SshSettings) -> "paramiko.SSHConfig":
    import paramiko

    lines: list[str] = []
    for path in (settings.ssh_config_file, settings.system_ssh_config_file):
        if path is not None and path.is_file():
            lines += ["Host *", *_lines_of(path, depth=0)]

    class Unexpanded(paramiko.SSHConfig):
        """paramiko expands %p and %r from ssh_config alone; they are expanded here, where the inventory has won."""

        TOKENS_BY_CONFIG_KEY = {"hostname": ["%h"]}

    try:
        return Unexpanded.from_text("\n".join(lines))
    except (paramiko.SSHException, ValueError) as exc:
        raise InventoryError(
            f"ssh_config cannot be read: {exc}",
            context=[f"files: {settings.ssh_config_file}, {settings.system_ssh_config_file}"],
        ) from exc


def _lines_of(path: Path, *, depth: int) -> list[str]:
    """Return the file's lines with Include (which paramiko does not know) replaced by what it names."""
    if depth > _MAXIMUM_INCLUDES:
        raise InventoryError(f"{path}: Include goes deeper than {_MAXIMUM_INCLUDES} files")
    try:
        text = read_bounded(path).decode("utf-8", "surrogateescape")
    except Malformed as exc:
        raise InventoryError(f"ssh_config file {path} {exc}") from exc
    lines: list[str] = []
    section = "Host *"
    for number, line in enumerate(text.splitlines(), start=1):
        if len(line) > _LONGEST_LINE:  # paramiko looks at every blank again and again
            raise InventoryError(f"{path}:{number}: a line of {len(line)} characters; at most {_LONGEST_LINE}")
        match = _INCLUDE.fullmatch(line)
        if match is None:
            if _SECTION.match(line):
                section = line
            lines.append(line)
            continue
        for pattern in match["patterns"].replace('"', "").split():
            written = in_home(pattern)
            base = Path("/etc/ssh") if str(path).startswith("/etc/") else Path.home() / ".ssh"
            for included in sorted(glob.glob(str(written if written.is_absolute() else base / written))):  # noqa: PTH207
                lines += _lines_of(Path(included), depth=depth + 1)
        # What follows the Include belongs to the section that was open before it.
        lines.append(section)
    return lines


def _known_hosts_files(
    options: Mapping[str, str], settings: SshSettings, expand: Callable[[str], str]
) -> tuple[Path, ...]:
    user = _paths(options.get("userknownhostsfile"), expand) or [settings.known_hosts_file]
    system = _paths(options.get("globalknownhostsfile"), expand)
    if not system and settings.system_known_hosts_file is not None:
        system = [settings.system_known_hosts_file]
    return (*user, *system)


def _paths(text: str | None, expand: Callable[[str], str]) -> list[Path]:
    words: Sequence[str] = (text or "").replace('"', "").split()
    return [Path("/dev/null" if word.lower() == "none" else expand(word)) for word in words]


def _agent_socket(text: str | None, settings: SshSettings, expand: Callable[[str], str]) -> str | None:
    if text is None or text == "SSH_AUTH_SOCK":
        return settings.agent_path()
    if text.lower() == "none":
        return None
    if text.startswith("$"):
        return os.environ.get(text[1:].strip("{}")) or None
    return expand(text)


def _expander(address: str, host: str, port: int, user: str) -> Callable[[str], str]:
    tokens = {"h": host, "p": str(port), "r": user, "n": address, "d": str(Path.home()), "%": "%"}

    def expand(text: str) -> str:
        local = {**tokens, "u": getpass.getuser()} if "%u" in text else tokens
        replaced = _TOKEN.sub(lambda match: local.get(match[1], match[0]), text)
        return str(in_home(replaced)) if replaced.startswith("~") else replaced

    return expand


def _seconds(options: Mapping[str, str], key: str, name: str) -> int | None:
    text = options.get(key)
    if text is None or text.lower() == "none":
        return None
    return _whole_number(text.removesuffix("s"), key, name)


def _check_name(host: str, what: str, text: str, fault: str | None) -> None:
    if fault is not None:
        raise InventoryError(f"{host[:_SHOWN]}: the {what} {text[:_SHOWN]!a} {fault}", hint="ssh refuses it too")


def _whole_number(text: str, key: str, name: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise InventoryError(f"{name}: {key} {text[:_SHOWN]!a} is not a number")
    return int(text)
