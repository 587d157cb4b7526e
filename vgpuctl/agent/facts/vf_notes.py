# SPDX-License-Identifier: Apache-2.0
"""Notes about VFs that last as long as the VFs: in which order they were used, and which are in quarantine.

They lie in /run, which goes with the boot as VFs do; a new set of VFs begins without them. An operator lifts a
quarantine by removing its file.
"""

import json
from typing import Dict, Optional, Tuple

from vgpuctl.agent.facts import pci, sriov
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

USES = "/run/vgpuctl/vf-uses.json"
QUARANTINE = "/run/vgpuctl/quarantine"


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


def quarantine_path(physical: str, function: str) -> str:
    """Return the file that keeps a VF from new VMs; its text is the reason."""
    return f"{QUARANTINE}/{physical}/{function}"


def read_quarantine(host: Host, physical: str) -> Dict[str, str]:
    """Return {VF: reason} of a card's VFs in quarantine. Raises Problem."""
    folder = f"{QUARANTINE}/{physical}"
    names = host.listdir_optional(folder) or []
    return {name: host.read_optional(f"{folder}/{name}") or "no reason is noted" for name in names}


def forget(host: Host, physical: str) -> None:
    """Forget what was noted about VFs that are gone. Raises Problem."""
    pci.folder(physical)
    for function in read_quarantine(host, physical):
        host.remove_file(quarantine_path(physical, function))


def physical_of(host: Host, function: str) -> Tuple[str, Optional[str]]:
    """Return a VF's physical function and the reason of its quarantine. Raises Problem `not-found`."""
    physical = sriov.read_physical(host, function)
    if physical is None:
        raise Problem(ProblemCode.NOT_FOUND, f"{function} is no VF", path=pci.folder(function))
    return physical, read_quarantine(host, physical).get(function)
