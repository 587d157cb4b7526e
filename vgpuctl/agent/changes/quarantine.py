# SPDX-License-Identifier: Apache-2.0
"""Keep a VF from new VMs until its card's VFs are recreated (reference 9, row 23).

A QEMU that is killed in its first seconds can leave a VF whose files look healthy and whose next guest finds no GPU.
"""

from vgpuctl.agent.facts import pci, vf_notes
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.steps import Change, QuarantineFunction


def ensure(host: Host, step: QuarantineFunction, *, dry_run: bool) -> Change:
    """Put a VF into quarantine; one that is there keeps its first reason.

    Raises Problem `not-found`, `write-refused`.
    """
    address = step.address
    pci.require(host, address)
    physical, reason = vf_notes.physical_of(host, address)
    if reason is not None:
        return Change(step.op, address, reason, reason, changed=False)
    if not dry_run:
        text = " ".join(step.reason.split())
        host.put_file(vf_notes.quarantine_path(physical, address), f"{text}\n".encode(), 0o644)
    return Change(step.op, address, None, step.reason, changed=True)
