# SPDX-License-Identifier: Apache-2.0
"""NetworkManager on the host: whether it runs, and what it may do with an interface."""

from typing import Optional

from vgpuctl.agent.facts import services
from vgpuctl.agent.host import Host

SERVICE = "NetworkManager.service"
PROGRAM = "nmcli"
_TIMEOUT_S = 20.0


def is_active(host: Host) -> bool:
    """Tell whether it runs this host's network. Raises Problem."""
    return services.has_systemd(host) and services.read_states(host, SERVICE)["ActiveState"] == "active"


def path_of(interface: str) -> str:
    """Return the file with which vgpuctl keeps it from an interface."""
    return f"/etc/NetworkManager/conf.d/90-vgpuctl-{interface}.conf"


def is_kept_from(host: Host, interface: str) -> bool:
    """Tell whether it leaves an interface alone also after a boot. Raises Problem."""
    return host.read_bytes(path_of(interface)) is not None or not is_active(host)


def state_of(host: Host, interface: str) -> Optional[str]:
    """Return what it says of an interface, as `10 (unmanaged)`; None where it cannot be asked. Raises Problem."""
    if host.find_program(PROGRAM) is None:
        return None
    argv = [PROGRAM, "--get-values", "GENERAL.STATE", "device", "show", interface]
    done = host.run(argv, timeout_s=_TIMEOUT_S)
    return done.output.strip() if done.status == 0 else None
