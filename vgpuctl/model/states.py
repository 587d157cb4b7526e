# SPDX-License-Identifier: Apache-2.0
"""Every state that the store has of hosts, GPUs, shares, VMs, queue, quotas and the rest: one table.

Metrics, web pages, reports and docs/monitoring.md iterate over STATE_KINDS; usecases/support/states.py reads the rows.
A test compares the table with the enums, so that no state is forgotten.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

UNKNOWN, GONE = "unknown", "gone"
HOST = ("host",)
GPU = ("host", "gpu")
SHARE = ("host", "gpu", "tenant", "vm", "share", "profile")
VM = ("host", "tenant", "vm")
SEAT_STATES = {
    "held": "A VM holds it.",
    "coming-back": "Its guest could not return it; the licence server counts it until its lease ends.",
}


@dataclass(frozen=True)
class StateKind:
    """One kind of state of one kind of object.

    name: the metric's name without `vgpuctl_`. of: the object. heading: on pages and in reports. labels: what tells
    objects apart; `share` is the mdev's UUID or the function's address, `gpu` a PCI address. states: each possible
    state with its meaning; an object can be in several. Without states it is a number. label_values: the meanings of
    the values of a label that has a closed set. is_counter: a number that only rises.
    """

    name: str
    of: str
    heading: str
    text: str
    labels: tuple[str, ...]
    states: Mapping[str, str] | None = None
    label_values: Mapping[str, Mapping[str, str]] | None = None
    is_counter: bool = False

    @property
    def metric(self) -> str:
        """The metric's name."""
        return f"vgpuctl_{self.name}"

    @property
    def shown_states(self) -> tuple[str, ...]:
        """The states that a row can be in: without the end of an object, which has no row any more."""
        return tuple(one for one in self.states or () if one != GONE)


@dataclass(frozen=True)
class StateRow:
    """The state of one object.

    labels: values in the order of the kind's labels. states: those it is in; value: of a number. at: when it was seen
    or began, seconds since the epoch, UTC; None if that is not known. text: the reason, empty without one.
    """

    labels: tuple[str, ...]
    states: tuple[str, ...] = ()
    value: float | None = None
    at: float | None = None
    text: str = ""


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


def _number(
    name: str,
    of: str,
    heading: str,
    text: str,
    labels: tuple[str, ...],
    *,
    counter: bool = False,
    **values: dict[str, str],
) -> StateKind:
    return StateKind(name, of, heading, text, labels, None, values or None, counter)


STATE_KINDS: tuple[StateKind, ...] = (
    StateKind(
        "host_state",
        "host",
        "Host",
        "How the host's agent answered when it was last asked.",
        HOST,
        {
            "up": "The agent answers.",
            "unreachable": "The host cannot be connected to.",
            "host-key-changed": "Another SSH host key answers, or an unknown one.",
            "wrong-host": "Another host of the inventory answers at its address.",
            "unusable": "The host answers, but its agent cannot be used.",
            UNKNOWN: "The host was never asked.",
        },
    ),
    StateKind(
        "host_libvirt_state",
        "host",
        "libvirt",
        "How the host's libvirt answered when it was last asked.",
        HOST,
        {
            "up": "libvirt answers.",
            "no-answer": "libvirt does not answer.",
            UNKNOWN: "libvirt was never asked.",
        },
    ),
    StateKind(
        "host_restriction",
        "host",
        "Restrictions of hosts",
        "Restrictions of a whole host; none is in force where all are 0.",
        HOST,
        {
            "cordon": "The host takes no new VM.",
            "drain": "The host was emptied; no VM starts on it.",
            "fence": "The host was declared dead; nothing that it says is trusted.",
        },
    ),
    _number(
        "host_layout_differences",
        "host",
        "Drift",
        "Differences of the host to its declared layout, where the controller compared.",
        HOST,
    ),
    _number(
        "host_observed_timestamp_seconds",
        "host",
        "Last answer",
        "Time of the last answer of the host's agent to a command or a controller.",
        HOST,
    ),
    StateKind(
        "gpu_state",
        "gpu",
        "GPU",
        "The GPU at its host's last answer.",
        GPU,
        {
            "present": "The host shows the GPU and can read it.",
            "unreadable": "The host shows the GPU and cannot read it.",
            "missing": "The host no longer shows the GPU.",
            UNKNOWN: "The host does not answer.",
        },
    ),
    StateKind(
        "gpu_restriction",
        "gpu",
        "Restrictions of GPUs",
        "Restrictions of a GPU, or of the one of its VFs that the label share names.",
        (*GPU, "share"),
        {
            "cordon": "The GPU or VF takes no new VM.",
            "quarantine": "The GPU or VF is suspect; no VM starts on it.",
        },
    ),
    _number(
        "gpu_quarantine_timestamp_seconds",
        "gpu",
        "Quarantine",
        "Time at which the GPU or VF was quarantined. finding: the code in docs/health.md, empty for an operator's.",
        (*GPU, "share", "finding"),
    ),
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
    _number("vm_end_timestamp_seconds", "vm", "Declared end", "Time at which the declared time of a VM is over.", VM),
    _number(
        "vm_preemption_timestamp_seconds",
        "vm",
        "Preemption",
        "Time at which the grace period of a VM that is preempted ends.",
        VM,
    ),
    _number(
        "queue_entries",
        "queue",
        "Queue",
        "Entries of the queue.",
        ("tenant", "kind"),
        kind={
            "create": "A new VM waits.",
            "start": "A preempted VM waits to start again.",
            "gang": "New VMs wait to be created together.",
            "start-gang": "Preempted VMs wait to start again together.",
        },
    ),
    _number(
        "queue_oldest_age_seconds",
        "queue",
        "Oldest entry",
        "Age of the oldest entry of the queue; 0 for an empty queue.",
        ("tenant",),
    ),
    _number(
        "tenant_quota_limit",
        "quota",
        "Quota",
        "The most that a tenant may use of a resource.",
        ("tenant", "resource", "unit"),
    ),
    _number(
        "tenant_quota_guaranteed",
        "quota",
        "Guaranteed",
        "The amount of a resource that a tenant can count on.",
        ("tenant", "resource", "unit"),
    ),
    _number(
        "tenant_quota_used",
        "quota",
        "Used",
        "The amount of a resource that a tenant uses; of gpu-hours, in this month.",
        ("tenant", "resource", "unit"),
    ),
    _number(
        "licence_seats",
        "licence",
        "Licences",
        "Seats of a licence pool.",
        ("pool", "edition", "state"),
        state=SEAT_STATES | {"free": "The next VM can take it."},
    ),
    _number(
        "tenant_licence_seats",
        "licence",
        "Licences of tenants",
        "Seats of a licence pool that a tenant's VMs take.",
        ("tenant", "pool", "edition", "state"),
        state=SEAT_STATES,
    ),
    _number(
        "slices",
        "capacity",
        "Capacity",
        "Shares of a profile on a host. Those that are free are counted for each profile alone.",
        ("host", "profile", "state"),
        state={
            "free": "The share can still be created.",
            "leased": "The share is leased.",
        },
    ),
    StateKind(
        "reservation_state",
        "reservation",
        "Reservation",
        "The reservation of a tenant.",
        ("host", "tenant", "reservation"),
        {
            "to-come": "Its next window has not begun.",
            "open": "Its window has begun and no VM uses it.",
            "used": "A VM uses it.",
            "over": "No window is left.",
        },
    ),
    _number(
        "reservation_begin_timestamp_seconds",
        "reservation",
        "Begin",
        "Begin of the reservation's present or next window.",
        ("host", "tenant", "reservation"),
    ),
    _number(
        "reservation_end_timestamp_seconds",
        "reservation",
        "End",
        "End of the reservation's present or next window.",
        ("host", "tenant", "reservation"),
    ),
    StateKind(
        "network_state",
        "network",
        "Network",
        "The network of a tenant in the store.",
        ("tenant", "network"),
        {
            "creating": "The network is being created.",
            "ready": "The network was read back from its backend.",
            "deleting": "The network is being deleted.",
        },
    ),
    _number(
        "volumes",
        "volume",
        "Volumes",
        "Volumes of VMs on a host.",
        ("host", "state"),
        state={
            "intended": "The volume is to be made, or its making was interrupted.",
            "made": "libvirt has made the volume.",
            "detaching": "The volume is to leave its VM, whose guest has not let go of it yet.",
            "merging": "A snapshot's overlay is being merged into the disk below it.",
        },
    ),
    _number(
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
    _number(
        "controller_beats_total",
        "controller",
        "Controller",
        "Beats of a controller; it lives while they rise.",
        ("controller", "machine"),
        counter=True,
    ),
    _number(
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
    _number(
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
_BY_NAME = {one.name: one for one in STATE_KINDS}


def state_kind(name: str) -> StateKind:
    """Return a kind of state by its name. Raises KeyError."""
    return _BY_NAME[name]
