# SPDX-License-Identifier: Apache-2.0
"""Every fault that vgpuctl tells: its id, its meaning and its remedy, in one table.

An alert, a check of check-hosts and an event of the same fault carry its id and its remedy. docs/health.md and
docs/monitoring.md are made from this table. A check's own fix can be longer, for it knows the values.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from vgpuctl.model.health import HealthCode


class FaultId(StrEnum):
    """Ids of faults that are not findings about one GPU's health. Scripts read them, so an id keeps its text.

    Where an error (docs/errors.md) names the same fault, the id is its reference.
    """

    EXPORTER_BLIND = "exporter-blind"
    HOST_UNREACHABLE = "host-unreachable"
    SNAPSHOT_STALE = "snapshot-stale"
    READING_INCOMPLETE = "reading-incomplete"
    STORE_UNUSABLE = "store-unusable"
    CERTIFICATE_EXPIRES = "certificate-expires"
    LAYOUT_DIFFERS = "layout-differs"
    TRUTH_MISMATCH = "truth-mismatch"
    SRAM_THRESHOLD = "sram-threshold"
    THERMAL_SLOWDOWN = "thermal-slowdown"
    QUARANTINE_GROWS = "quarantine-grows"
    NO_CAPACITY = "no-capacity"
    QUEUE_STARVES = "queue-starves"
    NODE_POOL_SHORT = "node-pool-short"
    NODES_NEVER_JOIN = "nodes-never-join"
    CLUSTER_SILENT = "cluster-silent"
    QUOTA_NEARLY_USED = "quota-nearly-used"
    VGPU_UNLICENSED = "vgpu-unlicensed"
    VGPU_RESTRICTED = "vgpu-restricted"
    VGPU_UNLICENSED_DAY = "vgpu-unlicensed-day"
    LICENCE_EXPIRES = "licence-expires"
    LICENCE_POOL_FULL = "licence-pool-full"
    PROMISE_BROKEN = "promise-broken"
    COMPUTE_SHORT = "compute-short"
    SHARE_STOLEN = "share-stolen"
    SHARE_EXCEEDED = "share-exceeded"
    FRAMEBUFFER_RUNS_OUT = "framebuffer-runs-out"
    HOST_MEMORY_RUNS_OUT = "host-memory-runs-out"
    HUGE_PAGES_RUN_OUT = "huge-pages-run-out"
    DISK_POOL_RUNS_OUT = "disk-pool-runs-out"
    LICENCE_SEATS_RUN_OUT = "licence-seats-run-out"


@dataclass(frozen=True)
class Fault:
    """One fault. meaning: one sentence. remedy: the next action, as a clause without a full stop."""

    meaning: str
    remedy: str


_GUEST_LICENCE = "look at the guest: `nvidia-smi -q | grep -i license`, its client token, its way to the licence server"
_RESET = "reset the GPU while nobody uses it"
_REPLACE = "take the card out of service and have it replaced"
_RATES = "run `vgpuctl top` to see the VMs of the GPU; move one of them: `vgpuctl move-vm`"
FAULTS: Mapping[HealthCode | FaultId, Fault] = {
    HealthCode.OFF_THE_BUS: Fault(
        "The config space reads as all ones, or NVML says that the GPU is lost.",
        "power-cycle the host; a reboot alone may not bring the card back",
    ),
    HealthCode.GPU_MISSING: Fault(
        "The host no longer shows the card.", "look for the card: `lspci`, its power, its slot"
    ),
    HealthCode.CONFIG_DIFFERS: Fault(
        "The config space has another vendor or device id than the kernel found.",
        "look at the card: it answers with the identity of another one",
    ),
    HealthCode.BAR_UNASSIGNED: Fault(
        "A memory BAR has no address, or its register has lost it.",
        "reboot the host; look at Above 4G decoding and pci=realloc",
    ),
    HealthCode.DRIVER_DIFFERS: Fault(
        "After a release the card is not on the driver that it had before.",
        "bind the card to its driver: `vgpuctl apply-hosts`",
    ),
    HealthCode.DRIVER_FAILED: Fault(
        "The card's driver gave it up without an Xid: it fell off the bus, or could not be started.",
        "see the driver's lines: `journalctl -k -b | grep -iE 'nvrm|amdgpu|xe '`; power-cycle the host",
    ),
    HealthCode.VBIOS_CHANGED: Fault(
        "The VBIOS has another version than before, or the ROM of a whole card another hash.",
        "find out who flashed the card; flash it with the vendor's VBIOS",
    ),
    HealthCode.VF_WEDGED: Fault(
        "QEMU could not open a VF of a vGPU, died right after its start, or had to be killed; the VF's next guest may "
        "find no GPU.",
        "recreate the card's VFs while no VM uses it: `sriov-manage -d` and `-e`, or a reboot",
    ),
    HealthCode.RESET_REQUIRED: Fault("NVML says that the GPU needs a reset.", _RESET),
    HealthCode.NO_RESET: Fault(
        "The kernel knows no way to reset a whole card that a VM had.",
        "power-cycle the host before another tenant gets the card",
    ),
    HealthCode.RESET_FAILED: Fault("The reset of a card or VF that a VM had failed.", "power-cycle the host"),
    HealthCode.SCRUB_OFF: Fault(
        "The driver's registry key `RMDisableScrubOnFree` is set: freed memory is not cleared.",
        "take RMDisableScrubOnFree out of NVreg_RegistryDwords and load the driver again",
    ),
    HealthCode.ECC_UNCORRECTED: Fault("ECC could not correct a memory error.", _RESET),
    HealthCode.ROW_REMAP_PENDING: Fault("A memory row waits for its spare until the next reset.", _RESET),
    HealthCode.ROW_REMAP_FAILED: Fault("There was no spare row.", _REPLACE),
    HealthCode.PAGE_RETIREMENT_PENDING: Fault("A memory page is retired at the next reset.", _RESET),
    HealthCode.PAGES_RETIRED: Fault(
        "More memory pages are retired than before.", "watch the card; NVIDIA replaces one with many retired pages"
    ),
    HealthCode.MEMORY_TEST_FAILED: Fault("The operator's memory test ended with an error, or not in time.", _REPLACE),
    HealthCode.UNREAD: Fault("A value could not be read.", "see why it cannot be read: `vgpuctl check-hosts`"),
    HealthCode.ROM_UNREAD: Fault(
        "The ROM of a whole card that a VM had could not be read, so a flashed VBIOS would not be seen.",
        "compare the card's VBIOS with the vendor's",
    ),
    HealthCode.XID_RESTART_APP: Fault(
        "A program in the guest failed.", "none for the card: a program in the guest failed"
    ),
    HealthCode.XID_IGNORE: Fault("The driver tells something for information.", "none"),
    HealthCode.XID_RESTART_VM: Fault("The VM must be restarted, for example to rotate keys.", "restart the VM"),
    HealthCode.XID_UPDATE_SWFW: Fault(
        "A vGPU could not start.", "compare the guest's driver and firmware with the host's"
    ),
    HealthCode.XID_WORKFLOW_45: Fault(
        "A channel was ended, and no other Xid explains it.", "restart Fabric Manager if no other Xid explains it"
    ),
    HealthCode.XID_RESET_GPU: Fault("The driver asks for a reset of the GPU.", _RESET),
    HealthCode.XID_RESTART_BM: Fault("The driver asks for a reboot of the host.", "reboot the host"),
    HealthCode.XID_CHECK_MECHANICALS: Fault(
        "The card lacks its auxiliary power.", "look at the card's power cables and seating"
    ),
    HealthCode.XID_CHECK_UVM: Fault(
        "The driver's unified memory failed.", "look at the driver's UVM messages in the kernel's log"
    ),
    HealthCode.XID_WORKFLOW_48: Fault("ECC could not correct a memory error, says an Xid.", _RESET),
    HealthCode.XID_WORKFLOW_NVLINK: Fault(
        "A link of NVLink failed.", "look at the NVLink errors: `nvidia-smi nvlink --status`"
    ),
    HealthCode.XID_CONTACT_SUPPORT: Fault("NVIDIA's catalogue has no action for this Xid.", "ask NVIDIA's support"),
    FaultId.EXPORTER_BLIND: Fault(
        "Prometheus gets no readings from the exporter, so no other alert can fire.",
        "see why on its machine: `systemctl status vgpuctl-exporter`, then `curl` its /metrics",
    ),
    FaultId.HOST_UNREACHABLE: Fault(
        "The host does not answer over SSH, or its agent does not run.",
        "see what the host answers: `vgpuctl list-hosts`; if it is dead: `vgpuctl evacuate-host`",
    ),
    FaultId.SNAPSHOT_STALE: Fault(
        "The exporter shows readings that are old, so the metrics of the host say nothing about now.",
        "see what the host answers: `vgpuctl list-hosts`; its agent may hang",
    ),
    FaultId.READING_INCOMPLETE: Fault(
        "Parts of a host's readings fail, so alerts on them cannot fire.",
        "see why they cannot be read: `vgpuctl check-hosts`",
    ),
    FaultId.STORE_UNUSABLE: Fault(
        "The store cannot be opened or read.",
        "see what it answers: any `vgpuctl list-vms` on that machine says why (docs/store.md)",
    ),
    FaultId.CERTIFICATE_EXPIRES: Fault(
        "A certificate of the exporter or of OVN ends soon; nobody connects afterwards.",
        "replace it: the exporter's files (docs/monitoring.md), or `vgpuctl create-certificate` for OVN",
    ),
    FaultId.LAYOUT_DIFFERS: Fault(
        "The host is not in its declared layout.",
        "see the differences: `vgpuctl check-hosts --diff`; bring it back: `vgpuctl apply-hosts`",
    ),
    FaultId.TRUTH_MISMATCH: Fault(
        "The store, the devices of the host and libvirt do not agree about a VM or a share.",
        "see what differs: `vgpuctl list-events --kind '*-observed'`; fix it: `vgpuctl repair`",
    ),
    FaultId.SRAM_THRESHOLD: Fault("The uncorrected errors of the SRAM passed NVIDIA's threshold.", _REPLACE),
    FaultId.THERMAL_SLOWDOWN: Fault(
        "The GPU runs slower since it is at its own slowdown temperature, or near it.",
        "look at the host's fans, air flow and room; lower the card's power limit until then",
    ),
    FaultId.QUARANTINE_GROWS: Fault(
        "GPUs went into quarantine one after another, as after a bad driver or a heat wave.",
        "see the findings: `vgpuctl list-events --kind 'gpu-*'`; look for what the cards have in common",
    ),
    FaultId.NO_CAPACITY: Fault(
        "No more VM of a profile that tenants use fits on any host.",
        "see what blocks it: `vgpuctl explain-vm`; free shares, or add a host",
    ),
    FaultId.QUEUE_STARVES: Fault(
        "A VM waits in the queue for long.",
        "see what it waits for: `vgpuctl list-queue`; change the order: `vgpuctl set-queue`",
    ),
    FaultId.NODE_POOL_SHORT: Fault(
        "A node pool has had fewer nodes than its minimum for long.",
        "see why its nodes wait: `vgpuctl list-node-pools NAME --tenant TENANT`; a controller must run",
    ),
    FaultId.NODES_NEVER_JOIN: Fault(
        "The VMs of a node pool start, and do not join their cluster in time.",
        "see /var/log/vgpuctl-join.log in a guest, or its console; has the join token ended (docs/node-pools.md)?",
    ),
    FaultId.CLUSTER_SILENT: Fault(
        "A tenant's cluster does not answer vgpuctl, or no controller runs. Its nodes are not drained or replaced.",
        "see what it answers: `vgpuctl controller --once`; check its API server or slurmctld and the kubeconfig",
    ),
    FaultId.QUOTA_NEARLY_USED: Fault(
        "A tenant has nearly used up a quota.",
        "talk to the tenant; raise it: `vgpuctl set-quota`",
    ),
    FaultId.VGPU_UNLICENSED: Fault(
        "A guest's driver runs without a licence; after some 20 minutes NVIDIA's driver slows the vGPU down.",
        _GUEST_LICENCE,
    ),
    FaultId.VGPU_RESTRICTED: Fault(
        "A guest's driver runs without a licence, and NVIDIA's driver restricts the vGPU: frames, memory, CUDA.",
        _GUEST_LICENCE,
    ),
    FaultId.VGPU_UNLICENSED_DAY: Fault(
        "A guest's driver has run without a licence for a day, after which NVIDIA's driver restricts the vGPU most.",
        _GUEST_LICENCE,
    ),
    FaultId.LICENCE_POOL_FULL: Fault(
        "Few seats of a licence pool are free.",
        "see who holds them: `vgpuctl list-licence-pools NAME`; buy licences, or set quotas on `licences:EDITION`",
    ),
    FaultId.LICENCE_EXPIRES: Fault(
        "The licence of a guest was not renewed and ends soon.",
        "see whether the guest reaches the licence server, and whether the server has licences left",
    ),
    FaultId.PROMISE_BROKEN: Fault(
        "Something that the owner of a running VM was promised is not so.",
        "run `vgpuctl check-vm`, which names each broken row and where to look",
    ),
    FaultId.COMPUTE_SHORT: Fault("A VM that wants its promised share of a GPU gets less of it.", _RATES),
    FaultId.SHARE_STOLEN: Fault("A VM takes time of a GPU that its neighbours were promised.", _RATES),
    FaultId.SHARE_EXCEEDED: Fault(
        "A tenant uses more of the GPUs than was promised, which idle time of others allows.",
        "none if the neighbours idle; a fixed or equal share scheduler ends it (docs/layout.md)",
    ),
    FaultId.FRAMEBUFFER_RUNS_OUT: Fault(
        "The framebuffer of a vGPU will be full soon if it grows as it did.",
        "tell the tenant; give the VM a larger profile",
    ),
    FaultId.HOST_MEMORY_RUNS_OUT: Fault(
        "The memory of a host is used up, or will be soon if it grows as it did.",
        "see which VMs take it: `vgpuctl advise --host HOST`; move one of them: `vgpuctl move-vm`",
    ),
    FaultId.HUGE_PAGES_RUN_OUT: Fault(
        "The huge pages of a host are used up, or will be soon if VMs go on to start as they did.",
        "keep more of them in the layout (`hugepages:`, then `vgpuctl apply-hosts`), or place VMs on other hosts",
    ),
    FaultId.DISK_POOL_RUNS_OUT: Fault(
        "The room of a storage pool is used up, or will be soon if it grows as it did.",
        "see which VMs grow: `vgpuctl advise`; delete what nobody needs (`vgpuctl gc --dry-run`), or make it larger",
    ),
    FaultId.LICENCE_SEATS_RUN_OUT: Fault(
        "The seats of a licence pool are used up, or will be soon if VMs go on to take them as they did.",
        "see who holds them: `vgpuctl list-licence-pools NAME`; buy licences, or set quotas on `licences:EDITION`",
    ),
}


def remedy_of(fault: HealthCode | FaultId) -> str:
    """The remedy of a fault."""
    return FAULTS[fault].remedy
