# SPDX-License-Identifier: Apache-2.0
"""The host's key and certificate for OVN's databases, and the authority that it believes."""

from vgpuctl.agent.facts import ovn_services
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import ovn as wire
from vgpuctl.agent.wire.ovn import CertificateFiles
from vgpuctl.agent.wire.steps import Change

OP = "ovn.install-certificate"


def ensure(host: Host, files: CertificateFiles, *, dry_run: bool) -> Change:
    """Write what differs; ovn-controller notices by itself. The key is owned by the user that ovn-controller runs as.

    Raises Problem `write-refused`, `no-such-user`.
    """
    user = ovn_services.controller_user(host)
    # The key comes last: ovn-controller loads both when it finds the key changed and then the certificate too, and
    # never again for a certificate that comes later (Open vSwitch 3.1, stream-ssl.c, stream_ssl_set_key_and_cert).
    wanted = (
        (wire.AUTHORITY, files.authority, 0o644, 0),
        (wire.CERTIFICATE, files.certificate, 0o644, 0),
        (wire.KEY, files.key, 0o600, user),
    )
    found = {path: host.read_bytes(path) for path, _text, _mode, _owner in wanted}
    # Root reads every file, whoever owns it.
    stale = [one for one in wanted if found[one[0]] != one[1].encode() or one[3] not in (0, host.owner_of(one[0]))]
    if not stale:
        before = "installed"
    elif found[wire.CERTIFICATE] is None:
        before = "none"
    else:
        is_another = any(found[path] != text.encode() for path, text, _mode, _owner in stale)
        before = "another" if is_another else "not readable by ovn-controller"
    if not dry_run:
        for path, text, mode, owner in stale:
            host.put_file(path, text.encode(), mode, owner=owner)
    return Change(OP, wire.FOLDER, before, "installed", changed=bool(stale))
