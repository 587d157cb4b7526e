# SPDX-License-Identifier: Apache-2.0
"""Where a store is: reading the URL, and showing it without its password."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlencode

from vgpuctl.errors import UsageError
from vgpuctl.model.masking import shown_url
from vgpuctl.user_folders import UserFolder, expanded

_FILE = "store.db"
_SQLITE = "sqlite:///"
_READ_ONLY = "?mode=ro"
SECRETS = frozenset(("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key"))
"""Parameters of libpq that no message shows."""
_SCHEME = re.compile(r"[a-z][a-z0-9+]{0,20}")
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_FORMS = (
    "write sqlite:///PATH, sqlite:///PATH?mode=ro, postgresql://USER@HOST:PORT/DATABASE (also with several HOST:PORT, "
    "separated by commas) or postgresql://?service=NAME"
)


@dataclass(frozen=True)
class SqliteAddress:
    """A file. is_default: the one under the user's data folder, whose folder is made when missing."""

    path: Path
    is_default: bool
    read_only: bool

    @property
    def shown(self) -> str:
        """For messages."""
        return str(self.path)


@dataclass(frozen=True)
class PostgresqlAddress:
    """A PostgreSQL database. parameters: by libpq's keywords; of several servers, `host` and `port` are lists."""

    parameters: Mapping[str, str] = field(repr=False)

    @property
    def shown(self) -> str:
        """The URL for messages, without passwords."""
        left = {name: "***" if name in SECRETS else value for name, value in self.parameters.items()}
        names = [f"[{name}]" if ":" in name else quote(name, safe="") for name in left.pop("host", "").split(",")]
        ports = left.pop("port", "").split(",")
        if len(ports) != len(names):
            ports = ports * len(names)
        places = ",".join(f"{name}:{port}" if port else name for name, port in zip(names, ports, strict=False))
        user = ":".join(quote(left.pop(name), safe="*") for name in ("user", "password") if name in left)
        database = quote(left.pop("dbname", ""), safe="")
        place = f"{user}{'@' if user else ''}{places}{'/' if database else ''}{database}"
        return f"postgresql://{place}{'?' if left else ''}{urlencode(left)}"

    @property
    def has_several_hosts(self) -> bool:
        """True if it names several servers, of which one is the primary."""
        return "," in self.parameters.get("host", "")


def default_path() -> Path:
    """The store's file when nothing else is said: store.db in the user's data folder (XDG_DATA_HOME counts).

    Raises UsageError for a user without a home.
    """
    return UserFolder.DATA.require("the store, which no option names,") / _FILE


def default_url() -> str:
    """The URL of the store when nothing else is said. Raises UsageError for a user without a home."""
    return f"{_SQLITE}{default_path()}"


def parse_url(text: str) -> SqliteAddress | PostgresqlAddress:
    """Read a store's URL. A relative SQLite path starts at the working folder, `~` is the user's home.

    Raises UsageError that names the forms and does not repeat what might be a password, MissingExtra without psycopg.
    """
    if text.startswith("sqlite:"):
        return _parse_sqlite(text)
    scheme, separator, rest = text.partition("://")
    if scheme not in _POSTGRESQL:
        raise UsageError(
            f"a store cannot be kept in {scheme!r}"
            if separator and _SCHEME.fullmatch(scheme)
            else "the store's URL cannot be read",
            hint=_FORMS,
        )
    authority, _, after = rest.partition("/")
    if authority.count("@") > 1 or "@" in after:
        # libpq would take what stands behind the first `@` or `/` for the name of a host or database, and show it.
        raise UsageError(
            "the store's URL has more than one @, or one after a /",
            hint="in names and passwords write %40 for @ and %2F for /, or keep the password in ~/.pgpass",
        )
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        parameters = {name: str(value) for name, value in conninfo_to_dict(f"postgresql://{rest}").items()}
    except (ProgrammingError, ValueError) as exc:
        raise UsageError("the store's URL cannot be read", hint=_FORMS) from exc
    if not all(port.isdecimal() for port in parameters.get("port", "0").split(",")):
        raise UsageError("the store's URL names a port that is no number", hint=_FORMS)
    if not {"dbname", "service"} & parameters.keys():
        raise UsageError("the store's URL names no database", hint=_FORMS)
    return PostgresqlAddress(parameters)


def _parse_sqlite(text: str) -> SqliteAddress:
    read_only = text.endswith(_READ_ONLY)
    name = text.removesuffix(_READ_ONLY).removeprefix(_SQLITE)
    if not text.startswith(_SQLITE) or name in ("", ":memory:") or "\0" in name:
        raise UsageError(f"the store's URL {shown_url(text)} names no file", hint=_FORMS)
    try:
        path = expanded(name).absolute()
    except UsageError as exc:
        raise UsageError(f"the store's URL {shown_url(text)} cannot be read: {exc.message}", hint=_FORMS) from exc
    own = UserFolder.DATA.find()
    return SqliteAddress(path, own is not None and path == own / _FILE, read_only)
