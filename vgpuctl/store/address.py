# SPDX-License-Identifier: Apache-2.0
"""Where a store is: reading the URL, and showing it without its password."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from platformdirs import user_data_path

from vgpuctl.errors import UsageError

if TYPE_CHECKING:
    from sqlalchemy import URL

_SQLITE = "sqlite:///"
_READ_ONLY = "?mode=ro"
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_SEVERAL_HOSTS = re.compile(r"(?P<scheme>[a-z+]+)://(?P<user>[^@/]*@)?(?P<hosts>[^/?,]+(?:,[^/?,]+)+)(?:/(?P<rest>.*))")
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
    """A PostgreSQL database, with the psycopg driver."""

    url: "URL" = field(repr=False)

    @property
    def shown(self) -> str:
        """For messages: no password, and no driver."""
        hidden = {key: "***" for key in self.url.query if key in ("password", "sslpassword")}
        url = self.url.set(drivername="postgresql").update_query_dict(hidden)
        return url.render_as_string(hide_password=True)


def default_path() -> Path:
    """The store's file when nothing else is said: store.db in the user's data folder (XDG_DATA_HOME counts)."""
    return user_data_path("vgpuctl", appauthor=False) / "store.db"


def default_url() -> str:
    """The URL of the store when nothing else is said."""
    return f"{_SQLITE}{default_path()}"


def parse_url(text: str) -> SqliteAddress | PostgresqlAddress:
    """Read a store's URL. A relative SQLite path starts at the working folder, `~` is the user's home.

    Raises UsageError that names the forms and does not repeat what might be a password.
    """
    if text.startswith("sqlite:"):
        return _parse_sqlite(text)
    from sqlalchemy.exc import SQLAlchemyError

    try:
        url = _make_url(text)
    except (SQLAlchemyError, ValueError) as exc:
        raise UsageError("the store's URL cannot be read", hint=_FORMS) from exc
    if url.drivername not in _POSTGRESQL:
        raise UsageError(f"a store cannot be kept in {url.drivername!r}", hint=_FORMS)
    if not url.database and "service" not in url.query:
        raise UsageError("the store's URL names no database", hint=_FORMS)
    return PostgresqlAddress(url.set(drivername="postgresql+psycopg"))


def _make_url(text: str) -> "URL":
    """Read a URL, also libpq's form with several hosts: postgresql://USER@HOST1:PORT,HOST2:PORT/DATABASE."""
    from sqlalchemy import make_url

    found = _SEVERAL_HOSTS.fullmatch(text)
    if found is None:
        return make_url(text)
    url = make_url(f"{found['scheme']}://{found['user'] or ''}/{found['rest']}")
    return url.update_query_pairs([("host", host) for host in found["hosts"].split(",")], append=True)


def _parse_sqlite(text: str) -> SqliteAddress:
    read_only = text.endswith(_READ_ONLY)
    name = text.removesuffix(_READ_ONLY).removeprefix(_SQLITE)
    if not text.startswith(_SQLITE) or name in ("", ":memory:") or "\0" in name:
        raise UsageError(f"the store's URL {text!r} names no file", hint=_FORMS)
    try:
        path = Path(name).expanduser().absolute()
    except RuntimeError as exc:
        raise UsageError(f"the store's URL {text!r} cannot be read: {exc}", hint=_FORMS) from exc
    return SqliteAddress(path, path == default_path(), read_only)
