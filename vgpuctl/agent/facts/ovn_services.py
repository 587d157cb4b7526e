# SPDX-License-Identifier: Apache-2.0
"""The services that run Open vSwitch and OVN on a host: their names, their user, what starts them at boot.

Distributions differ in all three, so the host is asked; its distribution's name decides nothing.
"""

import re
from typing import Dict, List, Mapping, Tuple

from vgpuctl.agent.facts import services
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

# Debian's and Ubuntu's name first, then that of Fedora, RHEL and SUSE.
_UNITS: Dict[str, Tuple[str, ...]] = {
    "switch": ("openvswitch-switch.service", "openvswitch.service"),
    "controller": ("ovn-controller.service",),
}
# Debian's ovn-controller.service cannot be enabled: this one starts it at boot.
_STARTED_BY = {"ovn-controller.service": "ovn-host.service"}
_PID_FILE = "/run/ovn/ovn-controller.pid"
# In a service's environment (RHEL: /etc/sysconfig/ovn), or as an option of ovn-ctl(8) in it; a group may follow.
_USER = re.compile(r"(?:^OVN_USER_ID=|--ovn-user=)[\"']?([A-Za-z_][A-Za-z0-9_.-]*)", re.MULTILINE)
_TIMEOUT_S = 20.0

PARTS = tuple(_UNITS)


def unit_of(host: Host, part: str) -> str:
    """Return the service of a part by the name this host has; the first name where it has none. Raises Problem."""
    states = _read(host)
    return _unit_of(states, part)


def boot_unit_of(host: Host, part: str) -> str:
    """Return the unit that is enabled to have a part started at boot. Raises Problem."""
    return _boot_unit_of(_read(host), part)


def not_enabled(host: Host) -> Tuple[str, ...]:
    """Return the parts that this host's systemd would not start at boot, of those it has. Raises Problem."""
    if not services.has_systemd(host):
        return ()
    states = _read(host)
    return tuple(
        part
        for part in PARTS
        if states[_unit_of(states, part)]["LoadState"] == "loaded"
        and states[_boot_unit_of(states, part)]["UnitFileState"] == "disabled"
    )


def controller_user(host: Host) -> int:
    """Return the user id that ovn-controller runs as, or would: what its service says, else its process, else root.

    Raises Problem `no-such-user` for a user that the host does not know.
    """
    name = _declared_user(host) if services.has_systemd(host) else ""
    if name:
        return host.user_id(name)
    pid = (host.read_optional(_PID_FILE) or "").strip()
    status = host.read_optional(f"/proc/{pid}/status") if pid.isdigit() else None
    found = re.search(r"^Uid:\s+\d+\s+(\d{1,18})", status or "", re.MULTILINE)
    return int(found[1]) if found else 0


def _declared_user(host: Host) -> str:
    names = ("User", "Environment", "EnvironmentFiles")
    argv = [services.SYSTEMCTL, "show", *(f"--property={name}" for name in names), "--", *_UNITS["controller"]]
    done = host.run(argv, timeout_s=_TIMEOUT_S)
    if done.status:
        raise Problem(ProblemCode.UNREADABLE, f"systemctl does not show ovn-controller: {done.errors.strip()}")
    user, said = "", ""
    for line in done.output.splitlines():
        key, _, value = line.partition("=")
        if key == "User":
            user = value
        elif key == "Environment":
            said += value.replace(" ", "\n") + "\n"
        elif key == "EnvironmentFiles":
            said += (host.read_optional(value.partition(" (")[0]) or "") + "\n"
    # Of several, systemd takes the last one.
    found: List[str] = _USER.findall(said)
    return (found or [user])[-1]


def _unit_of(states: Mapping[str, Mapping[str, str]], part: str) -> str:
    names = _UNITS[part]
    return next((name for name in names if states[name]["LoadState"] == "loaded"), names[0])


def _boot_unit_of(states: Mapping[str, Mapping[str, str]], part: str) -> str:
    name = _unit_of(states, part)
    other = _STARTED_BY.get(name, name)
    return other if states[other]["LoadState"] == "loaded" and states[name]["UnitFileState"] == "static" else name


def _read(host: Host) -> Dict[str, Dict[str, str]]:
    """Return systemd's state of every candidate unit."""
    names = [*(name for units in _UNITS.values() for name in units), *_STARTED_BY.values()]
    return {name: services.read_states(host, name) for name in names}
