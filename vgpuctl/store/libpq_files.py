# SPDX-License-Identifier: Apache-2.0
"""The files that libpq opens by itself, by their names, when it connects: they are judged before it does.

A service file says where to connect, a certificate authority whom to believe, a password file what to send there.
Source: PostgreSQL 17, src/interfaces/libpq/fe-connect.c (parseServiceInfo, conninfo_add_defaults) and
fe-secure-openssl.c (initialize_SSL).
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from vgpuctl.errors import UsageError
from vgpuctl.trusted_files import FOUND, FOUND_SECRET, NAMED, NAMED_SECRET, Trust, judge, opened
from vgpuctl.user_folders import expanded

if TYPE_CHECKING:
    from psycopg import Connection


class _LibpqFile(NamedTuple):
    """One parameter that names a file, the variable that counts without it, and the file without either."""

    parameter: str
    variable: str
    usual: str | None
    is_secret: bool = False

    def trust(self, *, is_named: bool) -> Trust:
        if self.is_secret:
            return NAMED_SECRET if is_named else FOUND_SECRET
        return NAMED if is_named else FOUND


_FILES = (
    _LibpqFile("passfile", "PGPASSFILE", "~/.pgpass", is_secret=True),
    _LibpqFile("sslkey", "PGSSLKEY", "~/.postgresql/postgresql.key", is_secret=True),
    _LibpqFile("sslcert", "PGSSLCERT", "~/.postgresql/postgresql.crt"),
    _LibpqFile("sslrootcert", "PGSSLROOTCERT", "~/.postgresql/root.crt"),
    _LibpqFile("sslcrl", "PGSSLCRL", "~/.postgresql/root.crl"),
    _LibpqFile("sslcrldir", "PGSSLCRLDIR", None),
)
_SERVICES = _LibpqFile("servicefile", "PGSERVICEFILE", "~/.pg_service.conf")
_BUILT_IN = "/etc/postgresql-common"
"""The folder of the system's service file, as Debian and the wheels of psycopg build libpq."""
_MOST_BYTES = 2**20


def connect(parameters: Mapping[str, str]) -> "Connection":
    """Connect with these parameters of libpq. Raises FileNotTrusted before anything is sent, and psycopg's errors."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    judge_files(parameters)
    return psycopg.connect(make_conninfo("", **parameters))


def judge_files(parameters: Mapping[str, str]) -> None:
    """Judge each file that libpq would open for a connection with these parameters. Raises FileNotTrusted.

    A file that is missing, or that this user may not open, has no part in the connection.
    """
    parameters = {**_of_service(parameters), **parameters}
    for file in _FILES:
        path, trust = _find(file, parameters)
        if path:
            with contextlib.suppress(OSError):
                judge(path, trust)


def _find(file: _LibpqFile, parameters: Mapping[str, str]) -> tuple[str, Trust]:
    """The path, "" for none, as libpq looks for it: an empty value is none."""
    named = parameters.get(file.parameter, os.environ.get(file.variable))
    if named:
        return named, file.trust(is_named=True)
    with contextlib.suppress(UsageError):  # a user without a home has none of these files
        return "" if file.usual is None else str(expanded(file.usual)), file.trust(is_named=False)
    return "", FOUND


def _of_service(parameters: Mapping[str, str]) -> Mapping[str, str]:
    """The parameters of a connection's service, from service files. Each file that libpq might open is judged."""
    service = parameters.get("service", os.environ.get("PGSERVICE"))
    if service is None:
        return {}
    system = os.environ.get("PGSYSCONFDIR", _BUILT_IN)
    found: dict[str, str] = {}
    for path, trust in (_find(_SERVICES, parameters), (f"{system}/pg_service.conf", FOUND)):
        with contextlib.suppress(OSError), opened(path, trust) as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "surrogateescape")
            found = {**dict(_section(text, service)), **found}
    return found


def _section(text: str, service: str) -> Iterator[tuple[str, str]]:
    """The `key=value` lines of one service."""
    is_meant = False
    for line in map(str.strip, text.split("\n")):
        if line.startswith("["):
            is_meant = line.startswith(f"[{service}]")
        elif is_meant and not line.startswith("#"):
            key, _, value = line.partition("=")
            yield key, value
