# SPDX-License-Identifier: Apache-2.0
"""The host's key and certificate for OVN's databases or for moves of VMs, and the authority that it believes."""

from typing import Sequence, Tuple

from vgpuctl.agent.facts import ovn_services, pki
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import ovn as wire
from vgpuctl.agent.wire import pki as pki_wire
from vgpuctl.agent.wire.ovn import CertificateFiles
from vgpuctl.agent.wire.steps import Change

OP = "ovn.install-certificate"


def ensure(host: Host, files: CertificateFiles, *, dry_run: bool) -> Change:
    """Write what differs. A key is owned by the user of the program that reads it. An operator's own files stay.

    Raises Problem `write-refused`, `no-such-user`.
    """
    ensure_one = _ensure_for_moves if files.is_for_moves else _ensure_for_ovn
    return ensure_one(host, files, dry_run=dry_run)


def _ensure_for_ovn(host: Host, files: CertificateFiles, *, dry_run: bool) -> Change:
    """ovn-controller notices by itself."""
    user = ovn_services.controller_user(host)
    # The key comes last: ovn-controller loads both when it finds the key changed and then the certificate too, and
    # never again for a certificate that comes later (Open vSwitch 3.1, stream-ssl.c, stream_ssl_set_key_and_cert).
    wanted = (
        (wire.AUTHORITY, files.authority, 0o644, 0),
        (wire.CERTIFICATE, files.certificate, 0o644, 0),
        (wire.KEY, files.key, 0o600, user),
    )
    return _bring(host, wire.FOLDER, wanted, "ovn-controller", dry_run=dry_run)


def _ensure_for_moves(host: Host, files: CertificateFiles, *, dry_run: bool) -> Change:
    """QEMU reads them at the start of each move."""
    found = pki.read(host)
    if not found.is_ours:
        return Change(OP, found.folder, "an operator's own", "an operator's own", changed=False)
    user = pki.user_of(host)
    wanted = (
        (pki_wire.AUTHORITY, files.authority, 0o644, 0),
        *((name, files.certificate, 0o644, 0) for name in pki_wire.CERTIFICATES),
        *((name, files.key, 0o600, user) for name in pki_wire.KEYS),
    )
    marked = [(f"{found.folder}/{name}", pki_wire.MARK + text, mode, owner) for name, text, mode, owner in wanted]
    return _bring(host, found.folder, marked, "QEMU", dry_run=dry_run)


def _bring(
    host: Host, folder: str, wanted: Sequence[Tuple[str, str, int, int]], reader: str, *, dry_run: bool
) -> Change:
    """Write each (path, text, mode, owner) that is not there. The second is the certificate."""
    found = {path: host.read_bytes(path) for path, _text, _mode, _owner in wanted}
    # Root reads every file, whoever owns it.
    stale = [one for one in wanted if found[one[0]] != one[1].encode() or one[3] not in (0, host.owner_of(one[0]))]
    if not stale:
        before = "installed"
    elif found[wanted[1][0]] is None:
        before = "none"
    else:
        is_another = any(found[path] != text.encode() for path, text, _mode, _owner in stale)
        before = "another" if is_another else f"not readable by {reader}"
    if not dry_run:
        for path, text, mode, owner in stale:
            host.put_file(path, text.encode(), mode, owner=owner)
    return Change(OP, folder, before, "installed", changed=bool(stale))
