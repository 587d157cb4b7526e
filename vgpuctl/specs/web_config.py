# SPDX-License-Identifier: Apache-2.0
"""Read a web-config file of the Prometheus ecosystem (exporter-toolkit): TLS, client certificates, basic auth.

One key is ours: `user_tenants`, the tenants that a user of basic_auth_users is bound to.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from vgpuctl.errors import UsageError
from vgpuctl.model.vm import check_name
from vgpuctl.model.web_config import ClientAuth, TlsVersion, WebConfig, WebTls
from vgpuctl.specs.document import YamlDocument, read_document
from vgpuctl.specs.keys import suggest_key
from vgpuctl.specs.origin import malformed
from vgpuctl.trusted_files import NAMED

_TLS, _USERS, _TENANTS = "tls_server_config", "basic_auth_users", "user_tenants"
_KEYS = ("cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version")
_ANYTHING_ELSE = "vgpuctl reads {}; it refuses the rest instead of ignoring it"
_BCRYPT = re.compile(r"\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}")
_MOST_USERS = 100


def read_web_config(path: Path) -> WebConfig:
    """Read a file. Relative paths in it start at its folder. Raises InventoryError with line and reason."""
    document = read_document(str(path), NAMED)
    content = _mapping(document, (), {} if document.data is None else document.data, (_TLS, _USERS, _TENANTS))
    tls = None if content.get(_TLS) is None else _read_tls(document, content[_TLS], path.absolute().parent)
    users = _read_users(document, content.get(_USERS) or {})
    return WebConfig(tls, users, _read_tenants(document, content.get(_TENANTS) or {}, users))


def _read_tls(document: YamlDocument, written: Any, folder: Path) -> WebTls:
    content = _mapping(document, (_TLS,), written, _KEYS)
    for name, value in content.items():
        if not isinstance(value, str) or not value:
            raise malformed(document.origin(_TLS, name), f"{name} is no text")
    for name in ("cert_file", "key_file"):
        if name not in content:
            raise malformed(document.origin(_TLS), f"{_TLS} lacks {name}")
    authority = content.get("client_ca_file")
    chosen = _choose(document, "client_auth_type", content.get("client_auth_type", ClientAuth.NONE.value), ClientAuth)
    if (chosen != ClientAuth.NONE) != (authority is not None):
        raise malformed(
            document.origin(_TLS),
            "client_auth_type and client_ca_file go together",
            hint=f"set client_ca_file, and client_auth_type to {ClientAuth.REQUIRE_AND_VERIFY}",
        )
    return WebTls(
        folder / content["cert_file"],
        folder / content["key_file"],
        ClientAuth(chosen),
        None if authority is None else folder / authority,
        TlsVersion(_choose(document, "min_version", content.get("min_version", TlsVersion.TLS12.value), TlsVersion)),
    )


def _choose(document: YamlDocument, name: str, value: str, choices: type[ClientAuth] | type[TlsVersion]) -> str:
    known = [str(one) for one in choices]
    if value not in known:
        raise malformed(document.origin(_TLS, name), f"{name} {value!a} cannot be had", hint=f"use {', '.join(known)}")
    return value


def _read_users(document: YamlDocument, written: Any) -> dict[str, str]:
    users = _mapping(document, (_USERS,), written)
    if len(users) > _MOST_USERS:
        raise malformed(document.origin(_USERS), f"{len(users)} users are more than {_MOST_USERS}")
    for name, value in users.items():
        if not name or ":" in name:
            raise malformed(document.origin(_USERS), f"{name!a} is no name of a user")
        if not isinstance(value, str) or not _BCRYPT.fullmatch(value):
            raise malformed(
                document.origin(_USERS, name),
                f"the password of {name!a} is no bcrypt hash",
                hint="make one with `htpasswd -nBC 10 NAME`",
            )
    return dict(users)


def _read_tenants(document: YamlDocument, written: Any, users: Collection[str]) -> dict[str, frozenset[str]]:
    found = {}
    for user, tenants in _mapping(document, (_TENANTS,), written).items():
        where = document.origin(_TENANTS, user)
        if user not in users:
            raise malformed(where, f"{user!a} is no user", hint=f"add it to {_USERS}")
        # Without any it would be unclear whether the user sees nothing or everything.
        if not isinstance(tenants, list) or not tenants:
            raise malformed(where, f"the tenants of {user!a} are no list of names", hint=f"write {user}: [TENANT]")
        for name in tenants:
            if not isinstance(name, str):
                raise malformed(where, f"{name!a} is no name of a tenant", hint="quote it")
            try:
                check_name(name, what="tenant")
            except UsageError as error:
                raise malformed(where, error.message, hint=error.hint) from error
        found[user] = frozenset(tenants)
    return found


def _mapping(
    document: YamlDocument, keys: tuple[str, ...], value: Any, allowed: Collection[str] | None = None
) -> Mapping[str, Any]:
    what = keys[-1] if keys else "the file"
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value):
        raise malformed(document.origin(*keys), f"{what} is no mapping of names")
    for name in value if allowed is not None else ():
        if allowed is not None and name not in allowed:
            meant = suggest_key(name, allowed)
            hint = f"did you mean {meant}?" if meant else _ANYTHING_ELSE.format(", ".join(allowed))
            raise malformed(document.origin(*keys, name), f"{what} has the unknown key {name!a}", hint=hint)
    return value
