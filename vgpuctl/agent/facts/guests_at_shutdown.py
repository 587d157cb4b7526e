# SPDX-License-Identifier: Apache-2.0
"""Setting of the service libvirt-guests for running guests when the host shuts down."""

import re
from typing import Optional

from vgpuctl.agent.host import Host

_ENABLED = "/etc/systemd/system/multi-user.target.wants/libvirt-guests.service"
_SCRIPTS = ("/usr/libexec/libvirt-guests.sh", "/usr/lib/libvirt/libvirt-guests.sh")
_SETTINGS = ("/etc/sysconfig/libvirt-guests", "/etc/default/libvirt-guests")
_ON_SHUTDOWN = re.compile(r"^\s*ON_SHUTDOWN=[\"']?(\w+)", re.MULTILINE)
# Upstream's default; Debian's script has `shutdown`.
_DEFAULT = "suspend"


def read(host: Host) -> Optional[str]:
    """Return the effective ON_SHUTDOWN, of the settings, else of the script; None if the service is not enabled."""
    if host.link(_ENABLED) is None:
        return None
    for path in (*_SETTINGS, *_SCRIPTS):
        found = _ON_SHUTDOWN.findall(host.read_optional(path) or "")
        if found:
            return str(found[-1])
    return _DEFAULT
