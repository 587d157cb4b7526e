# SPDX-License-Identifier: Apache-2.0
"""Fills in what `ssh -G` leaves in its values: `%h`, `~` and `${NAME}` (ssh_config(5), TOKENS)."""

import os
import pwd
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import InventoryError
from vgpuctl.model.secret import ProgramLine
from vgpuctl.user_folders import expanded

_TOKEN = re.compile(r"%(.)")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_SHOWN = 60


@dataclass(frozen=True)
class Tokens:
    """The tokens of one login. name: of the inventory, for errors."""

    name: str
    values: Mapping[str, str]

    def expand(self, text: str, *, later: str = "", what: str | None = None) -> str:
        """Replace the tokens; those of `later`, and `%%` with them, stay for a second pass. what:
        named instead of the text in an error.

        Raises InventoryError for a token that is not known here.
        """

        def value(match: re.Match[str]) -> str:
            token = match[1]
            if token in later or (later and token == "%"):
                return match[0]
            if token not in self.values:
                shown = what or f"{text[:_SHOWN]!a} of ssh_config"
                raise InventoryError(f"{self.name}: %{token} in {shown} is not supported")
            return self.values[token]

        return _TOKEN.sub(value, text)

    def expand_command(self, line: ProgramLine, *, variables: bool = False, later: str = "") -> ProgramLine:
        """Replace the tokens, and with `variables` also `${NAME}`, of a command. An error does not quote it."""
        text = self.variables(line.reveal(), what=line.shown) if variables else line.reveal()
        return ProgramLine(self.expand(text, later=later, what=line.shown), source=line.source)

    def path(self, text: str) -> Path:
        """Replace tokens, `${NAME}` and a leading `~`. Raises InventoryError for what does not exist."""
        return self.in_home(self.expand(self.variables(text)))

    def variables(self, text: str, *, what: str | None = None) -> str:
        """Replace `${NAME}` with the environment's value. what: named instead of the text in an error."""

        def value(match: re.Match[str]) -> str:
            found = os.environ.get(match[1])
            if found is None:
                shown = what or f"{text[:_SHOWN]!a} of ssh_config"
                raise InventoryError(f"{self.name}: {shown}: {match[1]!a} is not set")
            return found

        return _VARIABLE.sub(value, text)

    def in_home(self, text: str) -> Path:
        """Replace `~` and `~USER`; as ssh does, with the folder of the password database, not `$HOME`."""
        if not text.startswith("~"):
            return Path(text)
        user, _, rest = text[1:].partition("/")
        try:
            home = pwd.getpwnam(user).pw_dir if user else own_home()
        except (KeyError, ValueError) as exc:  # no such user, or a name with a character that no user can have
            raise InventoryError(f"{self.name}: the path {text[:_SHOWN]!a} names a user who does not exist") from exc
        return Path(home, rest)


def login_tokens(name: str, *, address: str, host: str, port: int, user: str, alias: str | None) -> Tokens:
    """Return the tokens of a login to an address that ssh_config resolved to `host`."""
    here = socket.gethostname()
    return Tokens(
        name,
        {
            "%": "%",
            "d": own_home(),
            "h": host,
            "i": str(os.getuid()),
            "k": alias or address,
            "L": here.partition(".")[0],
            "l": here,
            "n": address,
            "p": str(port),
            "r": user,
            "u": _own_name(),
        },
    )


def own_home() -> str:
    """Return the home folder that ssh uses."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return str(expanded("~"))


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
