# SPDX-License-Identifier: Apache-2.0
"""States of VMs and their shares."""

from vgpuctl.model.promise import FRESH_S, PromiseRow
from vgpuctl.model.states.kind import SHARE, UNKNOWN, VM, StateKind, number

OF_VMS: tuple[StateKind, ...] = (
    StateKind(
        "lease_state",
        "lease",
        "Lease",
        "The lease of a share in the store.",
        SHARE,
        {
            "reserved": "The share is promised; its device is not built yet.",
            "built": "The device exists and is not used by its VM.",
            "running": "The VM holds the device.",
            "releasing": "The device is being released.",
            "broken": "The device could not be built or released.",
            "gone": "The lease has ended; it has no series.",
        },
    ),
    StateKind(
        "share_state",
        "lease",
        "Share on its host",
        "The device of a lease at its host's last answer.",
        SHARE,
        {
            "held": "The VM of the lease holds the device.",
            "free": "The device exists and nobody holds it.",
            "taken": "Another process holds the device.",
            "lost": "The device does not exist.",
            UNKNOWN: "It was never seen, or its host does not answer.",
        },
    ),
    StateKind(
        "vm_declared_state",
        "vm",
        "VM in the store",
        "The state of a VM in the store.",
        VM,
        {
            "creating": "The VM is being created.",
            "running": "The VM is to run.",
            "stopped": "The VM is to be off.",
            "deleting": "The VM is being deleted.",
            "broken": "The last command on the VM failed in the middle.",
        },
    ),
    StateKind(
        "vm_observed_state",
        "vm",
        "VM in libvirt",
        "The state of a VM's domain at libvirt's last answer.",
        VM,
        {
            "no-state": "libvirt has no state of the domain.",
            "running": "The guest runs.",
            "blocked": "The guest is blocked on a resource.",
            "paused": "The guest is paused.",
            "shutting-down": "The guest is shutting down.",
            "shut-off": "The domain is defined and off.",
            "crashed": "The guest has crashed.",
            "suspended": "The guest is suspended by its power management.",
            "absent": "libvirt has no such domain.",
            UNKNOWN: "It was never seen, or libvirt does not answer.",
        },
    ),
    number(
        "promise_rows",
        "vm",
        "Promises",
        "Rows of what the owner of a running VM was promised, by what the last look found.",
        (*VM, "verdict"),
        verdict={
            "kept": "The witness showed that it is so.",
            "broken": "The witness showed something else.",
            "not-looked-at": f"Nobody could look, or nobody has looked for {FRESH_S:.0f} s.",
        },
    ),
    number(
        "promise_broken",
        "vm",
        "Broken promise",
        "1 for each row of what the owner of a running VM was promised that is broken.",
        (*VM, "row"),
        row={str(row): row.promised for row in PromiseRow},
    ),
    number("vm_end_timestamp_seconds", "vm", "Declared end", "Time at which the declared time of a VM is over.", VM),
    number(
        "vm_preemption_timestamp_seconds",
        "vm",
        "Preemption",
        "Time at which the grace period of a VM that is preempted ends.",
        VM,
    ),
)
