# SPDX-License-Identifier: Apache-2.0
"""Reads `ansible_ssh_common_args`: the options of ssh(1) that vgpuctl honours; the rest is refused, not ignored."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from vgpuctl.errors import InventoryError

_HONOURED = frozenset(
    {
        "addressfamily",
        "connecttimeout",
        "globalknownhostsfile",
        "hostkeyalias",
        "hostname",
        "identitiesonly",
        "identityagent",
        "identityfile",
        "port",
        "proxycommand",
        "proxyjump",
        "serveraliveinterval",
        "stricthostkeychecking",
        "user",
        "userknownhostsfile",
    }
)
# Options whose meaning is fulfilled without them: one connection is shared, nobody is asked, nothing is forwarded.
_WITHOUT_EFFECT = frozenset(
    {
        "batchmode",
        "compression",
        "controlmaster",
        "controlpath",
        "controlpersist",
        "forwardagent",
        "hashknownhosts",
        "loglevel",
        "preferredauthentications",
        "serveralivecountmax",
        "tcpkeepalive",
        "updatehostkeys",
    }
)
_SHOWN = 60
_FORMS = "-o Key=Value, -J HOPS, -F FILE, -i FILE and -p PORT"


@dataclass(frozen=True)
class CommonArguments:
    """What the argument text says. options: ssh_config's keys in lower case; identity files in their order."""

    options: dict[str, str] = field(default_factory=dict)
    identity_files: tuple[str, ...] = ()
    config_file: Path | None = None


def parse_common_args(text: str | None, *, host: str) -> CommonArguments:
    """Read the text. The first value of a key counts, as for ssh. Raises InventoryError that names the word."""
    try:
        words = shlex.split(text or "")
    except ValueError as exc:
        raise InventoryError(f"{host}: ansible_ssh_common_args {text!r} cannot be read: {exc}") from exc
    options: dict[str, str] = {}
    identity_files: list[str] = []
    config_file: Path | None = None
    while words:
        word = words.pop(0)
        flag, value = word[:2], word[2:]
        if flag not in ("-o", "-J", "-F", "-i", "-p"):
            raise InventoryError(
                f"{host}: ansible_ssh_common_args: {word!r} is not supported", hint=f"vgpuctl honours {_FORMS}"
            )
        if not value:
            if not words:
                raise InventoryError(f"{host}: ansible_ssh_common_args: {flag} needs a value")
            value = words.pop(0)
        if flag == "-o":
            key, value = _split_option(value, host=host)
            if key == "identityfile":
                identity_files.append(value)
            else:
                options.setdefault(key, value)
        elif flag == "-J":
            options.setdefault("proxyjump", value)
        elif flag == "-F":
            config_file = in_home(value)
        elif flag == "-i":
            identity_files.append(value)
        else:
            options.setdefault("port", value)
    return CommonArguments(options, tuple(identity_files), config_file)


def in_home(text: str) -> Path:
    """Fill in `~` and `~USER` at the beginning of a path. Raises InventoryError for a user who does not exist."""
    try:
        return Path(text).expanduser()
    except RuntimeError as exc:
        raise InventoryError(f"the path {text[:_SHOWN]!a} of the SSH configuration cannot be used: {exc}") from exc


def _split_option(text: str, *, host: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        key, _, value = text.partition(" ")
    key, value = key.strip().lower(), value.strip()
    if not value:
        raise InventoryError(f"{host}: ansible_ssh_common_args: -o {text!r} is not Key=Value")
    if key not in _HONOURED and key not in _WITHOUT_EFFECT:
        raise InventoryError(
            f"{host}: ansible_ssh_common_args: -o {text!r} is not supported",
            hint=f"vgpuctl honours the keys {', '.join(sorted(_HONOURED))}",
        )
    return key, value
