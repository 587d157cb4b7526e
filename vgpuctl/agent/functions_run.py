# SPDX-License-Identifier: Apache-2.0
"""Have the namespaces and ports of the host's network functions after a boot. Runs from a systemd unit of its own.

The programs are units too, which start after this one. Its output goes to the journal.
"""

import sys

from vgpuctl.agent.changes import network_function
from vgpuctl.agent.facts import network_function as facts
from vgpuctl.agent.facts import ovn
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import network_function as wire
from vgpuctl.agent.wire.envelope import Problem

# The units of Open vSwitch are started before, and may still be at it.
_SWITCH_S, _PAUSE_S = 60.0, 0.5


def main(host: Host) -> int:
    """Restore every function; one that fails stops no other. Returns the exit status."""
    for _ in range(int(_SWITCH_S / _PAUSE_S)):
        if ovn.is_running(host, "switch"):
            break
        host.wait(_PAUSE_S)
    has_failed = False
    with host.lock(_SWITCH_S):
        for name in facts.names_in(host, wire.FOLDER):
            try:
                # Its programs are started after this run.
                problems = [one for one in network_function.restore(host, name) if not one.endswith(" does not run")]
            except Problem as problem:
                problems = [problem.message]
            if problems:
                has_failed = True
                sys.stderr.write(f"network function {name}: {'; '.join(problems)}\n")
    return int(has_failed)
