# SPDX-License-Identifier: Apache-2.0
"""create-certificate: identities for OVN's databases by our own small authority, which is made with the first."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.model.event_kind import EventKind
from vgpuctl.ovn.authority import Authority, default_folder
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class CreatedCertificate:
    """Where one identity lies. changed: whether it was made now. operators: whom the northbound database believes."""

    name: str
    changed: bool
    key: str
    certificate: str
    authority: str
    operators: str


def create_certificates(
    services: Services, names: Sequence[str], folder: Path | None = None
) -> list[CreatedCertificate]:
    """Issue an identity for each name; one that is good stays. Raises UsageError and StateError."""
    store = services.store  # nothing is issued when it cannot be opened
    authority = Authority(folder or default_folder())
    authority.create()
    made = []
    for name in names:
        files = authority.files(name)
        before = files.certificate.read_bytes() if files.certificate.exists() else None
        now = authority.issue(name).certificate.encode()
        changed = now != before
        if changed:
            was, digest = (None if one is None else hashlib.sha256(one).hexdigest() for one in (before, now))
            with store.transaction() as session:
                session.add_event(EventKind.CERTIFICATE_CREATED, name, before={"sha256": was}, after={"sha256": digest})
        made.append(
            CreatedCertificate(
                name, changed, *map(str, (files.key, files.certificate, files.authority, authority.operators))
            )
        )
    return made
