# SPDX-License-Identifier: Apache-2.0
"""create-certificate: identities for OVN's databases by our own small authority, which is made with the first."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.ovn.authority import Authority, default_folder


@dataclass(frozen=True)
class CreatedCertificate:
    """Where one identity lies. changed: whether it was made now. operators: whom the northbound database believes."""

    name: str
    changed: bool
    key: str
    certificate: str
    authority: str
    operators: str


def create_certificates(names: Sequence[str], folder: Path | None = None) -> list[CreatedCertificate]:
    """Issue an identity for each name; one that is good stays. Raises UsageError and StateError."""
    authority = Authority(folder or default_folder())
    authority.create()
    made = []
    for name in names:
        files = authority.files(name)
        before = files.certificate.read_bytes() if files.certificate.exists() else None
        authority.issue(name)
        changed = files.certificate.read_bytes() != before
        made.append(
            CreatedCertificate(
                name, changed, *map(str, (files.key, files.certificate, files.authority, authority.operators))
            )
        )
    return made
