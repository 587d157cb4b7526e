# SPDX-License-Identifier: Apache-2.0
"""Hash the expansion ROM of a function: its VBIOS, which a tenant who had the whole card could have flashed.

The kernel shows the ROM after a 1 was written to `rom`, while the device is enabled (Linux
Documentation/PCI/sysfs-pci.rst).
"""

import hashlib
from typing import Optional

from vgpuctl.agent.facts import pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.steps import Change, HashRom

_LARGEST_BYTES = 16 << 20
# A ROM that no longer answers reads as all ones.
_SIGNATURE = b"\x55\xaa"


def ensure(host: Host, step: HashRom, *, dry_run: bool) -> Change:
    """Read the ROM; `after` has its SHA-256, None where the function has no ROM or the kernel does not show it.

    The ROM is switched off again, and nothing of the device changes. Raises Problem `not-found`, `write-blocked`.
    """
    path = f"{pci.require(host, step.address)}/rom"
    digest = None if dry_run or not host.exists(path) else _hash(host, path)
    return Change(step.op, step.address, None, digest, changed=False)


def _hash(host: Host, path: str) -> Optional[str]:
    try:
        host.write(path, "1")
        try:
            content = host.read_head(path, _LARGEST_BYTES)
        finally:
            host.write(path, "0")
    except Problem as problem:
        if problem.code not in (ProblemCode.UNREADABLE, ProblemCode.WRITE_REFUSED):
            raise
        return None
    return hashlib.sha256(content).hexdigest() if content.startswith(_SIGNATURE) else None
