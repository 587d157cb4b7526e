# SPDX-License-Identifier: Apache-2.0
"""Reads `ansible_ssh_common_args`: the options of ssh(1) that vgpuctl honours; the rest is refused, not ignored."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import InventoryError, UsageError
from vgpuctl.model.secret import ProgramLine
from vgpuctl.user_folders import expanded

_HONOURED = frozenset(
    {
        "addressfamily",
        "certificatefile",
        "connecttimeout",
        "globalknownhostsfile",
        "gssapiauthentication",
        "hostkeyalias",
        "hostname",
        "identitiesonly",
        "identityagent",
        "identityfile",
        "knownhostscommand",
        "port",
        "proxycommand",
        "proxyjump",
        "revokedhostkeys",
        "serveraliveinterval",
        "stricthostkeychecking",
        "tag",
        "user",
        "userknownhostsfile",
    }
)
# Options whose meaning is fulfilled without them: one connection is shared, nobody is asked, nothing is forwarded.
_WITHOUT_EFFECT = frozenset(
    {
        "batchmode",
        "checkhostip",
        "compression",
        "controlmaster",
        "controlpath",
        "controlpersist",
        "forwardagent",
        "gssapidelegatecredentials",
        "hashknownhosts",
        "kbdinteractiveauthentication",
        "loglevel",
        "passwordauthentication",
        "preferredauthentications",
        "serveralivecountmax",
        "tcpkeepalive",
        "updatehostkeys",
    }
)
_SHOWN = 60
_FLAG = re.compile(r"-[A-Za-z]")
_FORMS = "-o Key=Value, -J HOPS, -F FILE, -i FILE and -p PORT"


@dataclass(frozen=True)
class CommonArguments:
    """The argument text. options: ssh_config's keys in lower case with their values, in order, as -o takes them."""

    options: tuple[tuple[str, str], ...] = ()
    config_file: Path | None = None


def parse_common_args(line: ProgramLine | None, *, host: str) -> CommonArguments:
    """Read the text; ssh decides which value of a key counts.

    Raises InventoryError that names the option or the number of the word, and where the user wrote it: the text itself
    may hold a password.
    """
    if line is None:
        return CommonArguments()
    where = f"{host}: {line.source or 'ansible_ssh_common_args'}"
    try:
        words = shlex.split(line.reveal())
    except ValueError as exc:
        raise InventoryError(f"{where} cannot be read: {exc}") from exc
    count = len(words)
    options: list[tuple[str, str]] = []
    config_file: Path | None = None
    while words:
        word = words.pop(0)
        flag, value = word[:2], word[2:]
        if flag not in ("-o", "-J", "-F", "-i", "-p"):
            named = f"{flag!r}" if _FLAG.fullmatch(flag) else f"the word number {count - len(words)}"
            raise InventoryError(f"{where}: {named} is not supported", hint=f"vgpuctl honours {_FORMS}")
        if not value:
            if not words:
                raise InventoryError(f"{where}: {flag} needs a value")
            value = words.pop(0)
        if flag == "-o":
            key, value = _split_option(value, where=where)
            if key in _HONOURED:
                options.append((key, value))
        elif flag == "-J":
            options.append(("proxyjump", value))
        elif flag == "-F":
            config_file = in_home(value)
        elif flag == "-i":
            options.append(("identityfile", quoted(value, host=host)))
        else:
            options.append(("port", value))
    for key, value in options:
        if key == "proxyjump" and len(value.split()) != 1:  # ssh takes the first word and ignores the others
            raise InventoryError(f"{where}: ProxyJump has blanks, which no list of jump hosts has")
    return CommonArguments(tuple(options), config_file)


def quoted(path: str, *, host: str) -> str:
    """Return a file's name as a value of ssh_config. Raises InventoryError for a name that ssh cannot be told."""
    if '"' in path:
        raise InventoryError(f"{host}: the path {path[:_SHOWN]!a}: ssh_config takes no file name with a quote")
    return f'"{path}"'


def in_home(text: str) -> Path:
    """Fill in `~` and `~USER` at the beginning of a path. Raises InventoryError for a user who does not exist."""
    try:
        return expanded(text)
    except UsageError as exc:
        raise InventoryError(f"{exc.message}; it is of the SSH configuration") from exc


def _split_option(text: str, *, where: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        key, _, value = text.partition(" ")
    key, value = key.strip().lower(), value.strip()
    if not value:
        raise InventoryError(f"{where}: an option -o is not Key=Value")
    if key not in _HONOURED and key not in _WITHOUT_EFFECT:
        raise InventoryError(
            f"{where}: -o {f'{key}=…' if equals and key.isalnum() else 'with an unknown key'} is not supported",
            hint=f"vgpuctl honours the keys {', '.join(sorted(_HONOURED))}",
        )
    return key, value
