# SPDX-License-Identifier: Apache-2.0
"""States of the store, its users, and its agreement with the hosts."""

from enum import StrEnum

from vgpuctl.model.states.kind import StateKind, number


class TruthMismatch(StrEnum):
    """A disagreement of store, libvirt and device."""

    VM_STATE = "vm-state"
    VM_ABSENT = "vm-absent"
    SHARE_LOST = "share-lost"
    SHARE_TAKEN = "share-taken"
    SHARE_FREE = "share-free"
    GPU_MISSING = "gpu-missing"
    VGPU_UNKNOWN = "vgpu-unknown"
    DOMAIN_UNKNOWN = "domain-unknown"


OF_STORE: tuple[StateKind, ...] = (
    number(
        "operations",
        "store",
        "Commands at work",
        "Commands that have begun to change something.",
        ("state",),
        state={
            "running": "The process lives, or is on another machine.",
            "dead": "The process has died; `vgpuctl repair` finishes or rolls back its work.",
        },
    ),
    number(
        "controller_beats_total",
        "controller",
        "Controller",
        "Beats of a controller; it lives while they rise.",
        ("controller", "machine"),
        counter=True,
    ),
    number(
        "controller_hosts",
        "controller",
        "Watched hosts",
        "Hosts that a controller has claimed.",
        ("controller", "machine"),
    ),
    StateKind(
        "store_state",
        "store",
        "Store",
        "The store itself.",
        (),
        {
            "writable": "The store takes changes.",
            "read-only": "The store can only be read.",
            "not-reconciled": "The store was restored from a backup and takes no change before `reconcile-store`.",
        },
    ),
    number(
        "truth_mismatch",
        "truth",
        "Disagreements",
        "Disagreements of store, libvirt and devices at the host's last answer.",
        ("host", "kind"),
        kind={
            TruthMismatch.VM_STATE: "libvirt shows a VM in another state, or under another name, than the store has.",
            TruthMismatch.VM_ABSENT: "libvirt does not have a VM of the store.",
            TruthMismatch.SHARE_LOST: "The device of a lease does not exist.",
            TruthMismatch.SHARE_TAKEN: "Another process than the lease's VM holds its device.",
            TruthMismatch.SHARE_FREE: "A VM that runs does not hold the device of its lease.",
            TruthMismatch.GPU_MISSING: "A GPU with leases is not there.",
            TruthMismatch.VGPU_UNKNOWN: "NVML shows a vGPU of a VM that has no lease for it.",
            TruthMismatch.DOMAIN_UNKNOWN: "A domain with vgpuctl's metadata runs that the store does not have there.",
        },
    ),
)
