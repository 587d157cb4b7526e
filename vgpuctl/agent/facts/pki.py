# SPDX-License-Identifier: Apache-2.0
"""Where QEMU has its certificates for moves, and what is there; the keys are not read."""

import re
from typing import Dict

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.pki import CERTIFICATES, FILES, KEYS, MARK, MoveCertificates

_CONFIGURATION = "/etc/libvirt/qemu.conf"
_SETTING = re.compile(r'^[ \t]*(\w+)[ \t]*=[ \t]*"?([^"\n]*?)"?[ \t]*$', re.MULTILINE)
_FOLDER_OF_MOVES, _FOLDER = "/etc/pki/libvirt-migrate", "/etc/pki/qemu"
_USERS = ("libvirt-qemu", "qemu")
_MOST_BYTES = 1 << 16


def read(host: Host) -> MoveCertificates:
    """Read it. Raises Problem `unreadable`."""
    folder = folder_of(host)
    there = [name for name in FILES if host.exists(f"{folder}/{name}")]
    missing = tuple(name for name in FILES if name not in there)
    if not there:
        return MoveCertificates(folder)
    starts = {name: host.read_head(f"{folder}/{name}", _MOST_BYTES) for name in there if name not in KEYS}
    certificate = starts.get(CERTIFICATES[0])
    user = user_of(host)
    return MoveCertificates(
        folder,
        missing,
        # Root reads every file, whoever owns it.
        not missing and all(user == 0 or host.owner_of(f"{folder}/{name}") == user for name in KEYS),
        all(one.startswith(MARK.encode()) for one in starts.values()),
        None if certificate is None else certificate.decode(errors="replace"),
    )


def folder_of(host: Host) -> str:
    """Return the folder that libvirt gives QEMU for moves: its own, or the one for everything (libvirt's qemu.conf)."""
    said = _settings(host)
    own = said.get("migrate_tls_x509_cert_dir") or (_FOLDER_OF_MOVES if host.exists(_FOLDER_OF_MOVES) else "")
    return own or said.get("default_tls_x509_cert_dir") or _FOLDER


def user_of(host: Host) -> int:
    """Return the id of the user that QEMU runs as. Raises Problem `no-such-user`."""
    name = _settings(host).get("user", "")
    if name.lstrip("+").isdigit():
        return int(name.lstrip("+"))
    if name:
        return host.user_id(name)
    for usual in _USERS:
        try:
            return host.user_id(usual)
        except Problem:
            continue
    return 0


def _settings(host: Host) -> Dict[str, str]:
    return dict(_SETTING.findall(host.read_optional(_CONFIGURATION) or ""))
