# SPDX-License-Identifier: Apache-2.0
"""A tenant's certificate and its private key: whether they belong together, and until when they hold."""

from datetime import datetime

from vgpuctl.errors import UsageError
from vgpuctl.model.times import format_time
from vgpuctl.ovn.certificate_ends import certificate_names

_SMALLEST_RSA = 2048


def check_pair(certificate: str, private_key: str, *, now: float, what: str) -> None:
    """Raise UsageError for a certificate that no server can use with this key. Both are PEM; the key is never shown.

    what: the object that they are of, for errors.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    try:
        first = x509.load_pem_x509_certificates(certificate.encode())[0]
    except ValueError as error:
        raise UsageError(f"{what}: the certificate cannot be read: {error}", hint="is it a whole PEM file?") from error
    try:
        key = load_pem_private_key(private_key.encode(), password=None)
    except (ValueError, TypeError) as error:
        locked = "ENCRYPTED" in private_key
        raise UsageError(
            f"{what}: the private key cannot be read" + (": it has a password" if locked else ""),
            hint="`openssl pkey -in FILE -out FILE` removes a password" if locked else "is it a whole PEM file?",
        ) from error
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise UsageError(f"{what}: the private key is neither RSA nor of an elliptic curve")
    if isinstance(key, rsa.RSAPrivateKey) and key.key_size < _SMALLEST_RSA:
        raise UsageError(f"{what}: the private key has {key.key_size} bits", hint=f"RSA needs {_SMALLEST_RSA} or more")
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if first.public_key().public_bytes(*form) != key.public_key().public_bytes(*form):
        names = ", ".join(certificate_names(certificate.encode())[:5]) or "no name"
        raise UsageError(
            f"{what}: the private key is not the one of the certificate for {names}",
            hint="the first certificate of the file must be the server's own",
        )
    begin, end = first.not_valid_before_utc, first.not_valid_after_utc
    if end.timestamp() <= now:
        raise UsageError(f"{what}: the certificate is expired since {_shown(end)}", hint="give a renewed one")
    if begin.timestamp() > now:
        raise UsageError(f"{what}: the certificate is valid from {_shown(begin)} on", hint="give one that is valid now")


def describe_certificate(certificate: str) -> str:
    """A certificate in words: `certificate for shop.example.com until 2027-01-31 …`."""
    from cryptography import x509

    try:
        first = x509.load_pem_x509_certificates(certificate.encode())[0]
        names = ", ".join(certificate_names(certificate.encode())[:5]) or "no name"
    except ValueError:
        return "certificate cannot be read"
    return f"certificate for {names} until {_shown(first.not_valid_after_utc)}"


def _shown(time: datetime) -> str:
    return format_time(time.timestamp())
