# SPDX-License-Identifier: Apache-2.0
"""A small authority for OVN's databases: a key, its certificate, and one identity for each host, server and operator.

Open vSwitch believes every certificate of its authority and compares no names, so the authority serves this alone, and
a second one, which signs for vgpuctl alone, keeps hosts out of the northbound database.
"""

import datetime
import fcntl
import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vgpuctl.errors import StateError, UsageError
from vgpuctl.local_files import make_folder, open_lock, write_file
from vgpuctl.ovn.certificate_ends import certificate_names
from vgpuctl.trusted_files import NAMED, NAMED_SECRET, Trust, judge, opened
from vgpuctl.user_folders import UserFolder

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, Name

OWN_NAME = "vgpuctl"
MOVES = "moves"
_OVN = "OVN"
_AUTHORITY, _OPERATORS = "authority", "operators"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_MOST_BYTES = 1 << 20
_AUTHORITY_DAYS, _DAYS, _RENEWED_BEFORE_DAYS = 3650, 730, 60
# Clocks of hosts differ.
_BEFORE = datetime.timedelta(days=1)


def default_folder() -> Path:
    """Where the authority is when nothing else is said. Raises UsageError for a user without a home."""
    return UserFolder.DATA.require("the certificate authority") / "authority"


@dataclass(frozen=True)
class Identity:
    """One identity as PEM texts."""

    certificate: str
    authority: str
    key: str = field(repr=False)


@dataclass(frozen=True)
class IdentityFiles:
    """Where an identity lies."""

    key: Path
    certificate: Path
    authority: Path


class Authority:
    """An authority in a folder of the operator's own. Nothing is read or made before it is asked for.

    purpose: what it signs for, in words; another one than OVN has hosts only.
    """

    def __init__(self, folder: Path, purpose: str = _OVN) -> None:
        self.folder = folder
        self._purpose = purpose

    def exists(self) -> bool:
        """True if the authority was made."""
        return self._path(_AUTHORITY, "key").exists()

    def create(self) -> bool:
        """Make the authority. Returns whether it was not there. Raises FileNotTrusted for a folder open to others."""
        make_folder(self.folder, "the authority's folder", mode=0o700)
        judge(self.folder, NAMED_SECRET)
        with self._alone():
            if self._purpose == _OVN and not self._path(_OPERATORS, "key").exists():
                self._make(_OPERATORS, "vgpuctl's authority for OVN's operators")
            if self.exists():
                return False
            self._make(_AUTHORITY, f"vgpuctl's authority for {self._purpose}")
            return True

    def issue(self, name: str, addresses: Sequence[str] = ()) -> Identity:
        """Give the identity of a name; a new one where there is none that is ours and lasts. Raises as `create`.

        addresses: names and IP addresses by which others reach who has it.
        """
        if not _NAME.fullmatch(name) or name in (_AUTHORITY, _OPERATORS):
            raise UsageError(f"{name!a} cannot be the name in a certificate")
        if not self.exists():
            raise StateError(f"there is no authority in {self.folder}", hint="`vgpuctl create-certificate` makes one")
        with self._alone():
            if not self._is_good(name, addresses):
                key = _new_key()
                issuer = _issuer(name)
                builder = _builder(_subject(name), self._certificate(issuer).subject, key, days=_DAYS)
                if addresses:
                    builder = _with_addresses(builder, addresses)
                self._write(name, key, _sign(builder, self._key(issuer)))
            files = self.files(name)
            certificate, authority = (_read(one).decode() for one in (files.certificate, files.authority))
            return Identity(certificate, authority, _read(files.key, NAMED_SECRET).decode())

    def files(self, name: str) -> IdentityFiles:
        """Where the identity of a name lies once it was issued."""
        return IdentityFiles(self._path(name, "key"), self._path(name, "pem"), self._path(_AUTHORITY, "pem"))

    @property
    def operators(self) -> Path:
        """The authority that the northbound database trusts: it signs for vgpuctl itself, not for hosts."""
        return self._path(_OPERATORS, "pem")

    def certificates(self) -> list[Path]:
        """Every certificate in the folder."""
        return sorted(self.folder.glob("*.pem"))

    def _make(self, name: str, subject: str) -> None:
        from cryptography import x509

        key = _new_key()
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = _builder(_subject(subject), _subject(subject), key, days=_AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._write(name, key, _sign(builder.add_extension(usage, critical=True), key))

    def _is_good(self, name: str, addresses: Sequence[str]) -> bool:
        if not (self._path(name, "key").exists() and self._path(name, "pem").exists()):
            return False
        from cryptography.exceptions import InvalidSignature

        own = self._certificate(name)
        limit = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=_RENEWED_BEFORE_DAYS)
        try:
            own.verify_directly_issued_by(self._certificate(_issuer(name)))
        except (InvalidSignature, ValueError):
            return False
        if addresses and set(certificate_names(_read(self._path(name, "pem")))) != {one.lower() for one in addresses}:
            return False
        return own.not_valid_after_utc > limit and self._key(name).public_key() == own.public_key()

    def _certificate(self, name: str) -> "Certificate":
        from cryptography import x509

        return x509.load_pem_x509_certificate(_read(self._path(name, "pem")))

    def _key(self, name: str) -> "EllipticCurvePrivateKey":
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = load_pem_private_key(_read(self._path(name, "key"), NAMED_SECRET), password=None)
        if not isinstance(key, EllipticCurvePrivateKey):
            raise StateError(f"{self._path(name, 'key')} is not a key of this authority")
        return key

    def _write(self, name: str, key: "EllipticCurvePrivateKey", certificate: "Certificate") -> None:
        """Certificate first: an authority is there once its key is."""
        from cryptography.hazmat.primitives import serialization

        text = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        for ending, data in (("pem", certificate.public_bytes(serialization.Encoding.PEM)), ("key", text)):
            write_file(self._path(name, ending), data, f"the authority's identity of {name}", mode=0o600)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        descriptor = open_lock(self.folder / "lock", "the authority's lock")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _path(self, name: str, ending: str) -> Path:
        return self.folder / f"{name}.{ending}"


def _read(path: Path, trust: Trust = NAMED) -> bytes:
    with opened(path, trust) as file:
        return file.read(_MOST_BYTES)


def _issuer(name: str) -> str:
    """Who signs for a name: what the northbound database believes is issued to vgpuctl alone."""
    return _OPERATORS if name == OWN_NAME else _AUTHORITY


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str) -> "Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _builder(subject: "Name", issuer: "Name", key: "EllipticCurvePrivateKey", *, days: int) -> "CertificateBuilder":
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _with_addresses(builder: "CertificateBuilder", addresses: Sequence[str]) -> "CertificateBuilder":
    """QEMU compares these with the address that it connects to, and is a server and a client."""
    from cryptography import x509

    names: list[x509.GeneralName] = []
    for one in addresses:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(one)))
        except ValueError:
            names.append(x509.DNSName(one))
    uses = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH, x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.add_extension(uses, critical=False)


def _sign(builder: "CertificateBuilder", key: "EllipticCurvePrivateKey") -> "Certificate":
    from cryptography.hazmat.primitives import hashes

    return builder.sign(key, hashes.SHA256())
