# SPDX-License-Identifier: Apache-2.0
"""The certificates by which the QEMUs of two hosts know each other when a VM moves over TLS."""

from typing import Optional, Tuple

from vgpuctl.agent.wire.values import dataclass

MARK = "# Made by vgpuctl apply-hosts\n"
"""First line of our files: what has it is ours to replace. Readers of PEM skip what stands before the first part."""
AUTHORITY = "ca-cert.pem"
CERTIFICATES = ("server-cert.pem", "client-cert.pem")
KEYS = ("server-key.pem", "client-key.pem")
FILES = (AUTHORITY, *CERTIFICATES, *KEYS)


@dataclass(frozen=True)
class MoveCertificates:
    """What QEMU finds in its folder. missing: of the five files. is_readable: QEMU's user can read both keys.

    is_ours: vgpuctl made all that is there. certificate: of the server, a PEM text; None where it is missing.
    """

    folder: str
    missing: Tuple[str, ...] = FILES
    is_readable: bool = False
    is_ours: bool = True
    certificate: Optional[str] = None
