# SPDX-License-Identifier: Apache-2.0
"""The end of certificates in PEM files, for the monitoring of OVN's and of our own servers."""

from pathlib import Path

from vgpuctl.specs.bounded_reader import read_bounded
from vgpuctl.trusted_files import NAMED


def certificate_end(path: Path) -> float | None:
    """Return the earliest end in a file, seconds since the epoch; None for a file that cannot be read as PEM."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificates(read_bounded(path, NAMED))
    except ValueError:
        return None
    return min(one.not_valid_after_utc.timestamp() for one in found)
