# SPDX-License-Identifier: Apache-2.0
"""A note of the order in which VFs were used. It lies in /run, which goes with the boot as VFs do."""

import json
from typing import Dict

from vgpuctl.agent.facts import sriov
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem

USES = "/run/vgpuctl/vf-uses.json"


def read_uses(host: Host) -> Dict[str, int]:
    """Return {VF: number of its last use}, rising over the host; a note that cannot be read is none."""
    try:
        found = json.loads(host.read_optional(USES) or "{}")
        return {str(address): int(number) for address, number in found.items()}
    except (Problem, ValueError, TypeError, AttributeError):
        return {}


def note_use(host: Host, function: str) -> None:
    """Note that a VF carries a vGPU from now on. The order is only a preference: a note may fail to be written."""
    physical = sriov.read_physical(host, function)
    if physical is None:
        return
    uses = read_uses(host)
    uses[function] = max(uses.values(), default=0) + 1
    try:
        host.put_file(USES, json.dumps(uses, sort_keys=True).encode(), 0o644)
    except Problem:
        return
