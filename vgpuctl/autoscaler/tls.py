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


def credentials(tls: ServerTls) -> Any:
    """Credentials that follow their files. Files that cannot be used after a change leave the old ones in force.

    Raises UsageError for files that cannot be used now.
    """
    used = _read(tls)

    def follow() -> Any:
        nonlocal used
        try:
            now = _read(tls)
        except UsageError as error:
            _LOGGER.warning("tls", extra={"fields": {"error": error.message}})
            return None
        if now == used:
            return None
        used = now
        return _configuration(now)

    return grpc.dynamic_ssl_server_credentials(_configuration(used), follow, require_client_authentication=True)


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
