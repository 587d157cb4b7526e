# SPDX-License-Identifier: Apache-2.0
"""The host's key and certificate for OVN's databases, and the authority that it believes."""

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import ovn as wire
from vgpuctl.agent.wire.ovn import CertificateFiles
from vgpuctl.agent.wire.steps import Change

OP = "ovn.install-certificate"


def ensure(host: Host, files: CertificateFiles, *, dry_run: bool) -> Change:
    """Write what differs; ovn-controller notices by itself. Raises Problem `write-refused`."""
    # The key comes last: ovn-controller loads both when it finds the key changed and then the certificate too, and
    # never again for a certificate that comes later (Open vSwitch 3.1, stream-ssl.c, stream_ssl_set_key_and_cert).
    wanted = (
        (wire.AUTHORITY, files.authority, 0o644),
        (wire.CERTIFICATE, files.certificate, 0o644),
        (wire.KEY, files.key, 0o600),
    )
    found = {path: host.read_bytes(path) for path, _text, _mode in wanted}
    stale = [(path, text, mode) for path, text, mode in wanted if found[path] != text.encode()]
    before = "installed" if not stale else "none" if found[wire.CERTIFICATE] is None else "another"
    if not dry_run:
        for path, text, mode in stale:
            host.put_file(path, text.encode(), mode)
    return Change(OP, wire.FOLDER, before, "installed", changed=bool(stale))
