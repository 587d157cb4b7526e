# SPDX-License-Identifier: Apache-2.0
"""Where to connect, as whom, through what: the inventory's values are handed to `ssh -G`, whose answer is read here."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from vgpuctl.errors import InventoryError
from vgpuctl.hosts.common_args import parse_common_args, quoted
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.hosts.ssh_program import Answer
from vgpuctl.hosts.ssh_tokens import Tokens, login_tokens
from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.masking import shown_login
from vgpuctl.model.secret import ProgramLine, Secret
from vgpuctl.model.ssh_names import host_name_fault, user_name_fault

_MAXIMUM_HOPS = 8
NO_SOURCES: Mapping[str, str] = MappingProxyType({})
_WHOLE = re.compile(r"[0-9]{1,6}")
_HIGHEST_PORT = 65535
_SHOWN = 60
# In the name of a known_hosts file, for each of which ssh -G's answer is tried as a whole.
_MOST_BLANKS = 8
_LONGEST_VALUE = 4096
# ssh -G lists these when no IdentityFile is configured; most people have one of them.
_DEFAULT_KEY = re.compile(r"~/\.ssh/id_[a-z0-9_-]+")
# KnownHostsCommand's own tokens, known when the server has shown its key.
KEY_TOKENS = "HIKft"


@dataclass(frozen=True)
class Endpoint:
    """One SSH server to log in to.

    name: the inventory's, or the hop as written. via: the jump hosts, first hop first. known_as: what known_hosts
    is searched for when HostKeyAlias is set. known_hosts_command: KEY_TOKENS are left in it.
    accepts_unknown_key: never a changed or revoked one. ways_not_tried: other ways to log in that
    ssh_config asks for, each by its name in the protocol and in words.
    """

    name: str
    host: str
    port: int
    user: str
    known_hosts_files: tuple[Path, ...]
    known_hosts_command: ProgramLine | None = None
    revoked_host_keys: Path | None = None
    identity_files: tuple[Path, ...] = ()
    certificate_files: tuple[Path, ...] = ()
    has_chosen_identities: bool = False
    identities_only: bool = False
    agent_socket: str | None = None
    known_as: str | None = None
    accepts_unknown_key: bool = False
    connect_timeout_s: float = 10.0
    keepalive_s: int = 15
    address_family: str = "any"
    proxy_command: ProgramLine | None = None
    via: tuple["Endpoint", ...] = ()
    ways_not_tried: tuple[tuple[str, str], ...] = ()
    password: Secret[str] | None = None

    @property
    def shown_user(self) -> str:
        """The user for messages, without a password that ssh_config has behind it."""
        return shown_login(self.user)

    @property
    def known_hosts_name(self) -> str:
        """The name under which the host's key is kept: `host`, `[host]:port`, or the alias as it is."""
        if self.known_as is not None:
            return self.known_as
        return self.host.lower() if self.port == 22 else f"[{self.host.lower()}]:{self.port}"


def resolve(target: HostTarget, settings: SshSettings) -> Endpoint:
    """Ask ssh where and how to log in: inventory before ansible_ssh_common_args before ssh_config.

    As for ssh, -o and -i are for the host itself; jump hosts follow ssh_config. Raises InventoryError.
    """
    arguments = parse_common_args(target.common_args, host=target.name)
    if arguments.config_file is not None:
        if not os.path.isfile(arguments.config_file):  # noqa: PTH113 - False for a name that is too long, too
            shown = str(arguments.config_file)[:_SHOWN]
            raise InventoryError(f"{target.name}: there is no ssh_config file {shown}")
        settings = replace(settings, ssh_config_file=arguments.config_file)
    _check_name(target.name, "address", target.address, host_name_fault(target.address))
    # Files are named by -o: ssh's own -i leaves out a file that is missing.
    options = [("identityfile", target.private_key_file)] if target.private_key_file else []
    options = [(key, quoted(path, host=target.name)) for key, path in options]
    options += arguments.options
    if target.user is not None:
        _check_name(target.name, "user", target.user, user_name_fault(target.user))
    words = _words(settings, None, None, options, name=target.name)
    answer = settings.ssh.ask(words, target.address, name=target.name, user=target.user, port=target.port)
    given = {key for key, _ in arguments.options}
    sources = dict.fromkeys(given, target.common_args.source) if target.common_args is not None else {}
    endpoint = _endpoint(target.name, target.address, answer, settings, sources)
    endpoint = replace(
        endpoint,
        password=target.password,
        accepts_unknown_key=endpoint.accepts_unknown_key or not target.host_key_checking,
    )
    return _with_hops(endpoint, answer, settings, depth=0)


def _words(
    settings: SshSettings, user: str | None, port: int | None, options: Sequence[tuple[str, str]], *, name: str
) -> list[str]:
    """Build ssh's arguments; what comes first counts."""
    words = []
    if settings.ssh_config_file is not None:
        words = ["-F", str(settings.ssh_config_file)]
    if user is not None:
        _check_name(name, "user", user, user_name_fault(user))
        words += ["-l", user]
    if port is not None:
        words += ["-p", str(port)]
    if settings.known_hosts_file is not None:
        options = [*options, ("userknownhostsfile", quoted(str(settings.known_hosts_file), host=name))]
    for key, value in options:
        if any(character < " " or character == "\x7f" for character in value):
            raise InventoryError(f"{name}: the value of {key} contains a control character")
        words += ["-o", f"{key}={value}"]
    return words


def _endpoint(
    name: str, address: str, answer: Answer, settings: SshSettings, sources: Mapping[str, str] = NO_SOURCES
) -> Endpoint:
    """Build the server's values. sources: where options were written, of those that are not from ssh_config."""
    for key, values in answer.items():
        if max(map(len, values)) > _LONGEST_VALUE:
            raise InventoryError(f"{name}: {key} of ssh_config has more than {_LONGEST_VALUE} characters")
    options = {key: values[0] for key, values in answer.items()}

    def command_of(key: str, text: str) -> ProgramLine:
        return ProgramLine(text, source=sources.get(key, "ssh_config"))

    host, user = options.get("hostname", address), options.get("user", "")
    port = _whole_number(options.get("port", "22"), "Port", name)
    _check_name(name, "HostName", host, host_name_fault(host))
    _check_name(name, "user", user, user_name_fault(user))
    if not 1 <= port <= _HIGHEST_PORT:
        raise InventoryError(f"{name}: port {port} is none", hint="a port is 1 to 65535")
    if options.get("proxyusefdpass") in ("yes", "true") and options.get("proxycommand", "none") != "none":
        raise InventoryError(
            f"{name}: ProxyUseFdpass of ssh_config is not supported",
            context=[f"ProxyCommand {command_of('proxycommand', options['proxycommand']).shown}"],
            hint="use a ProxyCommand that copies its stdin and stdout, or reach the host over TCP",
        )
    alias = options.get("hostkeyalias")
    tokens = login_tokens(name, address=address, host=host, port=port, user=user, alias=alias)
    identity_files = _without_none(answer.get("identityfile", ()))
    command = options.get("proxycommand", "none")
    revoked = options.get("revokedhostkeys", "none")
    return Endpoint(
        name=name,
        host=host,
        port=port,
        user=user,
        known_hosts_files=(
            *_paths(options.get("userknownhostsfile", "none"), tokens, own=settings.known_hosts_file),
            *_paths(options.get("globalknownhostsfile", "none"), tokens),
        ),
        known_hosts_command=_known_hosts_command(
            command_of("knownhostscommand", options.get("knownhostscommand", "none")), tokens
        ),
        revoked_host_keys=None if revoked == "none" else tokens.in_home(tokens.variables(revoked)),
        identity_files=tuple(tokens.path(text) for text in identity_files),
        certificate_files=tuple(tokens.path(text) for text in _without_none(answer.get("certificatefile", ()))),
        has_chosen_identities=any(not _DEFAULT_KEY.fullmatch(text) for text in identity_files),
        identities_only=options.get("identitiesonly", "no") in ("yes", "true"),
        agent_socket=_agent_socket(options.get("identityagent", "SSH_AUTH_SOCK"), tokens),
        known_as=alias,
        accepts_unknown_key=options.get("stricthostkeychecking", "ask") in ("no", "off", "false", "accept-new"),
        connect_timeout_s=_seconds(options, "connecttimeout", name) or settings.connect_timeout_s,
        keepalive_s=_seconds(options, "serveraliveinterval", name) or settings.keepalive_s,
        address_family=options.get("addressfamily", "any"),
        proxy_command=None if command == "none" else tokens.expand_command(command_of("proxycommand", command)),
        ways_not_tried=_ways_not_tried(options),
    )


def _with_hops(endpoint: Endpoint, answer: Answer, settings: SshSettings, *, depth: int) -> Endpoint:
    """Add the jump hosts of ProxyJump; the first one's own jump hosts come before it."""
    jump = answer.get("proxyjump", ("none",))[0]
    if jump == "none":
        return endpoint
    name = endpoint.name
    if depth > _MAXIMUM_HOPS:
        raise InventoryError(
            f"{name}: more than {_MAXIMUM_HOPS} jump hosts behind one another",
            hint="see whether ProxyJump in ssh_config leads back to the same host",
        )
    hops: list[Endpoint] = []
    for number, written in enumerate(part.strip() for part in jump.split(",")):
        user, host, port = split_destination(written, what=f"{name}: ProxyJump")
        _check_name(written, "address", host, host_name_fault(host))
        words = _words(settings, user, port, (), name=written)
        found = settings.ssh.ask_once(words, host, name=written)
        hop = _endpoint(written, host, found, settings)
        if number == 0:
            hop = _with_hops(hop, found, settings, depth=depth + 1)
            hops += hop.via
        else:
            hop = replace(hop, proxy_command=None)
        hops.append(replace(hop, via=()))
    return replace(endpoint, via=tuple(hops), proxy_command=None)


def split_destination(text: str, *, what: str) -> tuple[str | None, str, int | None]:
    """Split `[user@]host[:port]` or `ssh://[user@]host[:port]`; IPv6 addresses in brackets."""
    rest = text.removeprefix("ssh://").removesuffix("/")
    user, at, address = rest.rpartition("@")
    match = re.fullmatch(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:\s]+))(?::(?P<port>[0-9]{1,5}))?", address)
    if match is None or (at and (not user or ":" in user)):
        raise InventoryError(f"{what}: a jump host is not [USER@]HOST[:PORT]", hint="a password cannot be part of it")
    return user or None, match["v6"] or match["host"], int(match["port"]) if match["port"] else None


def _paths(text: str, tokens: Tokens, *, own: Path | None = None) -> list[Path]:
    """Split a list of files; ssh -G prints them without their quotes, so a name with blanks is found by looking.

    own: the file that we have named ourselves.
    """
    if text == str(own):
        return [Path(text)]
    words = text.split(" ")
    paths: list[Path] = []
    while words:
        for size in range(min(len(words), _MOST_BLANKS), 0, -1):
            joined = " ".join(words[:size])
            path = Path("/dev/null") if joined == "none" else tokens.path(joined)
            if size == 1 or os.path.exists(path):  # noqa: PTH110 - False for a name that is too long, too
                break
        if joined:
            paths.append(path)
        del words[:size]
    return paths


def _known_hosts_command(line: ProgramLine, tokens: Tokens) -> ProgramLine | None:
    if line.reveal() == "none":
        return None
    try:
        program, *words = shlex.split(line.reveal())
    except ValueError as exc:
        raise InventoryError(f"{tokens.name}: KnownHostsCommand {line.shown} cannot be read: {exc}") from exc
    words = [tokens.expand_command(ProgramLine(word), variables=True, later=KEY_TOKENS).reveal() for word in words]
    return ProgramLine(shlex.join([program, *words]), source=line.source)


def _agent_socket(text: str, tokens: Tokens) -> str | None:
    if text == "none":
        return None
    if text == "SSH_AUTH_SOCK":
        return os.environ.get(text) or None
    if text.startswith("$") and not text.startswith("${"):
        return os.environ.get(text[1:]) or None
    return str(tokens.path(text))


def _ways_not_tried(options: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Name, by the method in the protocol, the ways to log in that ssh_config asks for and vgpuctl does not know."""
    ways = []
    if options.get("gssapiauthentication") in ("yes", "true"):
        ways.append(("gssapi-with-mic", "Kerberos tickets (GSSAPIAuthentication): not supported"))
    if options.get("pkcs11provider", "none") != "none":
        ways.append(("publickey", "PKCS11Provider: not supported; load its keys into an agent with `ssh-add -s`"))
    if options.get("hostbasedauthentication") in ("yes", "true"):
        ways.append(("hostbased", "HostbasedAuthentication: not supported"))
    return tuple(ways)


def _without_none(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if text.lower() != "none"]


def _seconds(options: dict[str, str], key: str, name: str) -> int | None:
    text = options.get(key, "none")
    return None if text == "none" else _whole_number(text, key, name)


def _check_name(host: str, what: str, text: str, fault: str | None) -> None:
    if fault is not None:
        raise InventoryError(
            f"{shown_login(host)[:_SHOWN]}: the {what} {shown_login(text)[:_SHOWN]!a} {fault}",
            hint="ssh refuses it too",
        )


def _whole_number(text: str, key: str, name: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise InventoryError(f"{name}: {key} {text[:_SHOWN]!a} is not a number")
    return int(text)
