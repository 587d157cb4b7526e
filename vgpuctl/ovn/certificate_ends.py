# SPDX-License-Identifier: Apache-2.0
"""The end of certificates in PEM files, for the monitoring of OVN's and of our own servers, and the names in them."""

from pathlib import Path

from vgpuctl.specs.bounded_reader import read_bounded
from vgpuctl.trusted_files import NAMED


def certificate_end(path: Path) -> float | None:
    """Return the earliest end in a file, seconds since the epoch; None for a file that cannot be read as PEM."""
    try:
        return end_of(read_bounded(path, NAMED))
    except ValueError:
        return None


def end_of(pem: bytes) -> float:
    """Return the earliest end of certificates, seconds since the epoch. Raises ValueError for what is no PEM."""
    from cryptography import x509

    found = x509.load_pem_x509_certificates(pem)
    return min(one.not_valid_after_utc.timestamp() for one in found)


def certificate_names(pem: bytes) -> tuple[str, ...]:
    """The names and addresses of hosts in the first certificate of a file; the common name counts where there is none.

    Raises ValueError for what is no PEM.
    """
    from cryptography import x509

    found = x509.load_pem_x509_certificates(pem)[0]
    try:
        alternative = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = [str(one.value) for one in found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    else:
        names = alternative.get_values_for_type(x509.DNSName)
        names += map(str, alternative.get_values_for_type(x509.IPAddress))
    return tuple(name.lower().removesuffix(".") for name in names)
