# SPDX-License-Identifier: Apache-2.0
"""The protection of an HTTP interface by a web-config file. Changed files count for the next connection.

A renewed certificate needs no restart. Files that cannot be read after a change leave the old state in force.
"""

import ipaddress
import ssl
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from vgpuctl.errors import UsageError, VgpuctlError
from vgpuctl.listening.requests import Refusals
from vgpuctl.model.web_config import ClientAuth, TlsVersion, WebConfig, WebTls
from vgpuctl.ovn.certificate_ends import certificate_names
from vgpuctl.specs.web_config import read_web_config
from vgpuctl.trusted_files import NAMED, NAMED_SECRET, opened
from vgpuctl.web.basic_auth import Logins

_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.VERIFY_IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE_AND_VERIFY: ssl.CERT_REQUIRED,
}
_VERSIONS = {TlsVersion.TLS12: ssl.TLSVersion.TLSv1_2, TlsVersion.TLS13: ssl.TLSVersion.TLSv1_3}
_MOST_BYTES = 1 << 20
_Mark = tuple[tuple[int, int, int] | None, ...]


class Protection:
    """The present protection. Without a file there is none: plain HTTP for everybody who reaches the address."""

    def __init__(
        self,
        file: Path | None,
        *,
        warn: Callable[[str], None] = lambda _text: None,
        allowed_hosts: Sequence[str] = (),
    ) -> None:
        """Read the file. allowed_hosts: names by which clients call the server, beside those of its certificate.

        Raises InventoryError for its content, UsageError for certificates that cannot be used.
        """
        self.refusals = Refusals()
        self.logins = Logins(self.refusals)
        self._allowed_hosts = tuple(allowed_hosts)
        self._file = file
        self._warn = warn
        self._lock = threading.Lock()
        self._config = WebConfig() if file is None else read_web_config(file)
        self._context, self._certified = _make_context(self._config.tls)
        self._mark = self._read_mark()

    @property
    def config(self) -> WebConfig:
        """The configuration as the files are now."""
        self._follow()
        return self._config

    @property
    def context(self) -> ssl.SSLContext | None:
        """TLS as the files are now; None for plain HTTP."""
        self._follow()
        return self._context

    def names(self) -> tuple[str, ...]:
        """The names by which clients may call the server, beside the address that they have connected to."""
        self._follow()
        return (*self._allowed_hosts, *self._certified)

    def certificates(self) -> list[Path]:
        """The files with the certificates that are served or trusted."""
        tls = self.config.tls
        named = () if tls is None else (tls.cert_file, tls.client_ca_file)
        return [one for one in named if one is not None]

    def _follow(self) -> None:
        with self._lock:
            mark = self._read_mark()
            if self._file is None or mark == self._mark:
                return
            self._mark = mark
            try:
                config = read_web_config(self._file)
                if (config.tls is None) != (self._config.tls is None):
                    raise UsageError("TLS cannot be switched on or off while it runs")
                if _opens(self._config, config):
                    raise UsageError("it would let in who is kept out now; restart the server if that is meant")
                context, certified = _make_context(config.tls)
            except VgpuctlError as error:
                self._warn(f"warning: {self._file}: the change is not used: {error.message}")
                return
            self._config, self._context, self._certified = config, context, certified
            # The file may name other files now.
            self._mark = self._read_mark()

    def _read_mark(self) -> _Mark:
        tls = self._config.tls
        files = (*(() if self._file is None else (self._file,)), *(() if tls is None else tls.files))
        return tuple(_mark_of(one) for one in files)


def _opens(before: WebConfig, after: WebConfig) -> bool:
    """True if a login falls away, or the tenants of a user. A file that is read while it is written looks so too."""
    has_lost_login = bool(before.users) and not after.users
    unbound = before.tenants.keys() & after.users.keys() - after.tenants.keys()
    return has_lost_login or (before.is_protected and not after.is_protected) or bool(unbound)


def refuse_unprotected(address: str, protection: Protection, *, is_allowed: bool) -> None:
    """Raise UsageError for an address that others reach without TLS and a login, unless that is allowed."""
    if ipaddress.ip_address(address).is_loopback or protection.config.is_protected or is_allowed:
        return
    raise UsageError(
        f"{address} can be reached by others, who would need no login or could read what is sent",
        hint="give --web-config FILE with tls_server_config and basic_auth_users, or --insecure-listen",
    )


def _mark_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _make_context(tls: WebTls | None) -> tuple[ssl.SSLContext | None, tuple[str, ...]]:
    """TLS with these files, and the names in the certificate."""
    if tls is None:
        return None, ()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    try:
        with opened(tls.cert_file, NAMED) as certificate, opened(tls.key_file, NAMED_SECRET) as key:
            context.load_cert_chain(certificate.name, key.name, password=_refuse_password)
            names = certificate_names(certificate.read(_MOST_BYTES))
        if tls.client_ca_file is not None:
            with opened(tls.client_ca_file, NAMED) as authority:
                context.load_verify_locations(authority.name)
    except (OSError, ValueError) as error:
        files = ", ".join(map(str, tls.files))
        raise UsageError(
            f"TLS cannot be set up with {files}: {error}", hint="give PEM files that belong together"
        ) from error
    context.verify_mode = _VERIFY[tls.client_auth]
    return context, names


def _refuse_password() -> str:
    raise ValueError("the key is encrypted")
