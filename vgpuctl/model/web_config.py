# SPDX-License-Identifier: Apache-2.0
"""How an HTTP interface is protected: TLS, client certificates and users, as the web-config format has it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class ClientAuth(StrEnum):
    """The demand on a client's certificate, by the names of Go's crypto/tls.

    RequestClientCert and RequireAnyClientCert, which check nothing, cannot be had.
    """

    NONE = "NoClientCert"
    VERIFY_IF_GIVEN = "VerifyClientCertIfGiven"
    REQUIRE_AND_VERIFY = "RequireAndVerifyClientCert"


class TlsVersion(StrEnum):
    """The versions of TLS that can be asked for."""

    TLS12 = "TLS12"
    TLS13 = "TLS13"


@dataclass(frozen=True)
class WebTls:
    """TLS of the server. Paths are absolute."""

    cert_file: Path
    key_file: Path
    client_auth: ClientAuth = ClientAuth.NONE
    client_ca_file: Path | None = None
    min_version: TlsVersion = TlsVersion.TLS12

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that it is read from."""
        named = (self.cert_file, self.key_file, self.client_ca_file)
        return tuple(one for one in named if one is not None)


@dataclass(frozen=True)
class WebConfig:
    """users: bcrypt hashes by name; without any, nobody has to log in. tls: None for plain HTTP.

    tenants: of users who see these tenants alone; a user who is not in it sees everything.
    """

    tls: WebTls | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    tenants: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def is_protected(self) -> bool:
        """True if what is sent is encrypted and a client has to prove who it is."""
        has_client = self.tls is not None and self.tls.client_auth is ClientAuth.REQUIRE_AND_VERIFY
        return self.tls is not None and (bool(self.users) or has_client)
