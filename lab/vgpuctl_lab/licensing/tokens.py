# SPDX-License-Identifier: Apache-2.0
"""Client configuration tokens of a licence server: JSON Web Tokens that it signs and verifies with its own key."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from vgpuctl_lab.folder import write_private
from vgpuctl_lab.licence_token import AUDIENCE, token_claims
from vgpuctl_lab.licensing.client import CERTIFICATE, TIMERS, LicenceRefused, Refusal

_ALGORITHM = "ES256"
_CERTIFICATE_DAYS = 3650
_WRONG = (jwt.exceptions.InvalidSignatureError, jwt.exceptions.InvalidAlgorithmError)


@dataclass(frozen=True)
class Identity:
    """The key of a server, which serves HTTPS and signs tokens, and its certificate, which signs itself. Both PEM."""

    key: bytes
    certificate: bytes

    @classmethod
    def made(cls, name: str) -> "Identity":
        """A new identity of a server."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"vgpuctl lab licence server {name}")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=_CERTIFICATE_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        plain = serialization.NoEncryption()
        return cls(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain),
            certificate.public_bytes(pem),
        )

    @classmethod
    def kept_in(cls, folder: Path, name: str) -> "Identity":
        """The identity that a folder keeps, made at the first call."""
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        if not certificate.exists():
            made = cls.made(name)
            write_private(key, made.key)
            write_private(certificate, made.certificate)
        return cls(key.read_bytes(), certificate.read_bytes())

    @property
    def instance(self) -> str:
        """The id of the server in its tokens: its certificate's fingerprint."""
        return x509.load_pem_x509_certificate(self.certificate).fingerprint(hashes.SHA256()).hex()[:32]

    def token(
        self, addresses: Sequence[str], port: int, *, lifetime_s: float, timers: tuple[float, float]
    ) -> tuple[str, str]:
        """A token that names these addresses, and its id. timers: see client.TIMERS, seconds."""
        claims = dict(
            token_claims(tuple(addresses), port=port, now=time.time(), lifetime_s=lifetime_s, instance=self.instance)
        )
        claims |= {CERTIFICATE: self.certificate.decode(), TIMERS: list(timers)}
        return jwt.encode(claims, self.key.decode(), algorithm=_ALGORITHM), str(claims["jti"])

    def verify(self, token: str) -> str:
        """Verify a token. Returns its id. Raises LicenceRefused."""
        public = x509.load_pem_x509_certificate(self.certificate).public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey)
        try:
            claims = jwt.decode(
                token, public, algorithms=[_ALGORITHM], audience=AUDIENCE, options={"require": ["jti", "exp", "nbf"]}
            )
        except jwt.exceptions.ExpiredSignatureError:
            raise LicenceRefused(Refusal.EXPIRED, "the token has expired") from None
        except _WRONG:
            raise self._not_ours(token) from None
        except jwt.exceptions.PyJWTError:
            raise LicenceRefused(Refusal.FORGED, "the token cannot be verified") from None
        return str(claims["jti"])

    def _not_ours(self, token: str) -> LicenceRefused:
        """Why the signature is not ours: another server's token, or one that says it is ours."""
        claims = jwt.decode(token, options={"verify_signature": False})
        configuration = claims.get("service_instance_configuration")
        named = configuration.get("nls_service_instance_ref") if isinstance(configuration, dict) else None
        if named != self.instance:
            return LicenceRefused(Refusal.OTHER_SERVER, "the token is of another server")
        return LicenceRefused(Refusal.FORGED, "the token's signature is not this server's")
