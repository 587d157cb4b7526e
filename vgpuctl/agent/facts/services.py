# SPDX-License-Identifier: Apache-2.0
"""The services of a host that systemd runs."""

from typing import Dict, Optional, Tuple

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import ServiceFacts
from vgpuctl.agent.wire.problem_codes import ProblemCode

SYSTEMCTL = "systemctl"
# sd_booted(3): systemd is process 1 when this folder is there.
_BOOTED = "/run/systemd/system"
_TIMEOUT_S = 20.0
_STATES = ("LoadState", "ActiveState", "UnitFileState")


def has_systemd(host: Host) -> bool:
    """Tell whether systemd runs this host."""
    return host.exists(_BOOTED)


def read(host: Host) -> Optional[Tuple[ServiceFacts, ...]]:
    """Return every loaded service by name, None where systemd does not run the host. Raises Problem."""
    if not has_systemd(host):
        return None
    argv = [SYSTEMCTL, "list-units", "--type=service", "--all", "--plain", "--no-legend", "--no-pager"]
    done = host.run(argv, timeout_s=_TIMEOUT_S)
    if done.status:
        raise Problem(
            ProblemCode.UNREADABLE, f"systemctl does not list the services: {done.errors.strip()}", path=SYSTEMCTL
        )
    found = []
    for line in done.output.splitlines():
        # A failed unit has a dot before its name: unit, load, active, sub, description.
        words = line.lstrip("●*× ").split()
        if len(words) >= 3 and words[1] == "loaded":
            found.append(ServiceFacts(words[0], words[2] == "active"))
    return tuple(sorted(found, key=lambda one: one.name))


def read_states(host: Host, name: str, *more: str) -> Dict[str, str]:
    """Return what systemd says of one unit: LoadState (`loaded`, `not-found`), ActiveState, UnitFileState (`enabled`,
    `disabled`, `static`, empty for none), and more properties where systemd tells them. Raises Problem.
    """
    argv = [SYSTEMCTL, "show", *(f"--property={key}" for key in (*_STATES, *more)), "--", name]
    done = host.run(argv, timeout_s=_TIMEOUT_S)
    pairs = (line.partition("=") for line in done.output.splitlines())
    states = {key: value for key, equals, value in pairs if equals}
    if done.status or not {"LoadState", "ActiveState"} <= set(states):
        raise Problem(ProblemCode.UNREADABLE, f"systemctl does not show {name}: {done.errors.strip()}", path=SYSTEMCTL)
    return {**dict.fromkeys(_STATES, ""), **states}
