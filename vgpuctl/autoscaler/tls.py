# SPDX-License-Identifier: Apache-2.0
"""Mutual TLS of the autoscaler's endpoint: its files, followed while they change, and who a client is."""

import logging
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from vgpuctl.errors import UsageError
from vgpuctl.ovn.certificate_ends import certificate_names
from vgpuctl.trusted_files import NAMED, NAMED_SECRET, opened

_LOGGER = logging.getLogger("vgpuctl.autoscaler")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class ServerTls:
    """The files of one server. client_ca: certificates that sign those of clients.

    names: a client's certificate must have one of them, as a subject alternative name or as the common name.
    """

    key: Path
    certificate: Path
    client_ca: Path
    names: tuple[str, ...]


class FollowedTls:
    """The files as they are now. Those that cannot be used after a change leave the old ones in force."""

    def __init__(self, tls: ServerTls) -> None:
        """Read the files. Raises UsageError for some that cannot be used."""
        self._tls = tls
        self._used = _read(tls)
        self.names = certificate_names(self._used[1])
        """The names in the server's certificate."""

    def credentials(self) -> Any:
        """Credentials for gRPC, which asks for the files with each connection."""
        now = _configuration(self._used)
        return grpc.dynamic_ssl_server_credentials(now, self._follow, require_client_authentication=True)

    def _follow(self) -> Any:
        try:
            now = _read(self._tls)
        except UsageError as error:
            _LOGGER.warning("tls", extra={"fields": {"error": error.message}})
            return None
        if now == self._used:
            return None
        self._used, self.names = now, certificate_names(now[1])
        return _configuration(now)


def identities(authenticated: Mapping[str, Sequence[bytes]]) -> set[str]:
    """The names in a client's certificate, which TLS has checked. authenticated: the auth_context of gRPC."""
    found = (authenticated.get(key, ()) for key in ("x509_subject_alternative_name", "x509_common_name"))
    return {name.decode("utf-8", "replace") for names in found for name in names}


def _read(tls: ServerTls) -> tuple[bytes, bytes, bytes]:
    """The key, the certificate and the clients' authority. Raises UsageError for what is missing or does not match."""
    try:
        with (
            opened(tls.key, NAMED_SECRET) as key,
            opened(tls.certificate, NAMED) as certificate,
            opened(tls.client_ca, NAMED) as authority,
        ):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.name, key.name, password=_refuse_password)
            context.load_verify_locations(authority.name)
            files = key.read(_MOST_BYTES), certificate.read(_MOST_BYTES), authority.read(_MOST_BYTES)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        named = f"{tls.key}, {tls.certificate} and {tls.client_ca}"
        raise UsageError(
            f"TLS cannot be set up with {named}: {error}", hint="give PEM files that belong together"
        ) from error
    return files


def _refuse_password() -> str:
    raise ValueError("the key is encrypted")


def _configuration(files: tuple[bytes, bytes, bytes]) -> Any:
    key, certificate, authority = files
    return grpc.ssl_server_certificate_configuration([(key, certificate)], root_certificates=authority)
