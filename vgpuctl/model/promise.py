# SPDX-License-Identifier: Apache-2.0
"""Promises to a VM's owner, row by row: the witness of each row, when it is looked at, and the finding.

The table `PromiseRow` is the only list of the rows. promises/compare.py has the comparison of each; check-vm,
create-vm, the controller, metrics, alerts and docs/promises.md iterate over it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from vgpuctl.model.times import format_duration

FRESH_S = 600.0
"""A finding that is older says nothing of now: the controller looks at each running VM every 20 s."""


class Witness(StrEnum):
    """Who is asked. A guest belongs to its tenant: what it says can break a row, and keeps none that a host could."""

    HOST_KERNEL = "host-kernel"
    NVML = "nvml"
    LIBVIRT = "libvirt"
    OVN = "ovn"
    GUEST = "guest"
    STORE = "store"


class Moment(StrEnum):
    """When rows are looked at: before a VM is said to run, at the controller's looks, by check-vm."""

    CREATION = "creation"
    LOOK = "look"
    CHECK = "check"


class PromiseVerdict(StrEnum):
    """The fate of a row, or of all of them: `kept` only for what was looked at."""

    KEPT = "kept"
    BROKEN = "broken"
    NOT_LOOKED_AT = "not-looked-at"


_ALWAYS = frozenset(Moment)
_LATER = frozenset((Moment.LOOK, Moment.CHECK))
_BY_COMMAND = frozenset((Moment.CHECK,))


class PromiseRow(StrEnum):
    """One thing that a VM's owner was promised. promised: one sentence. kept: when it is."""

    witness: Witness
    moments: frozenset[Moment]
    promised: str
    kept: str

    def __new__(
        cls,
        value: str,
        witness: Witness = Witness.STORE,
        moments: frozenset[Moment] = _ALWAYS,
        promised: str = "",
        kept: str = "",
    ) -> "PromiseRow":
        """Make a member of its name in the store and the rest of its row."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.witness, member.moments, member.promised, member.kept = witness, moments, promised, kept
        return member

    RUNS_ONCE = (
        "runs-once",
        Witness.LIBVIRT,
        _BY_COMMAND,
        "The VM runs on its host alone.",
        "never said, for not every host is asked: the row is shown where another host was seen to run the VM",
    )
    GPU_TYPE = (
        "gpu-type",
        Witness.HOST_KERNEL,
        _ALWAYS,
        "The vGPU type by its name, or the card's model.",
        "the device of the lease has the type that the host's driver calls so; a whole card is of the placed model",
    )
    GPU_HELD = (
        "gpu-held",
        Witness.HOST_KERNEL,
        _ALWAYS,
        "The device is the VM's.",
        "the QEMU of the VM has the device open, and nobody else",
    )
    GPU_STATE = (
        "gpu-state",
        Witness.STORE,
        _LATER,
        "The vGPU has the state that its guest gave it.",
        "never said: the row is shown where QEMU was seen to have reset the vGPU when the VM moved, was suspended or"
        " resumed, and the VM was not restarted since",
    )
    PARTITION = (
        "partition",
        Witness.HOST_KERNEL,
        _ALWAYS,
        "The partition of the NVSwitch fabric with exactly its GPUs.",
        "Fabric Manager lists it as active; the row is shown where the VM's GPUs compute in an active partition alone",
    )
    VF_PARAMS = (
        "vf-params",
        Witness.HOST_KERNEL,
        _ALWAYS,
        "The parameters of its VF that the VM names.",
        "the host's driver has these values; the row is shown where a VM with a VF names any",
    )
    FRAMEBUFFER = (
        "framebuffer",
        Witness.NVML,
        _LATER,
        "The framebuffer of the vGPU type.",
        "the host's driver, and the guest's where it is asked, show at least 80 percent of it and no more than all",
    )
    COMPUTE = (
        "compute",
        Witness.NVML,
        _BY_COMMAND,
        "No neighbour takes from the VM's part of the GPU's time, which profile and scheduler give.",
        "in the driver's last samples, no neighbour was above its own part while the VM used less than 80 percent of"
        " its part; how much the VM wanted is not measured, and over time the alert `compute-short` tells it",
    )
    COMPUTE_PROMISE = (
        "compute-promise",
        Witness.HOST_KERNEL,
        _ALWAYS,
        "The part of the GPU's compute time that was asked for.",
        "the GPU's scheduler or the share's GPU instance gives it that part, whoever its neighbours are; the row is"
        " shown where the VM asks for compute time",
    )
    GUEST_DRIVER = (
        "guest-driver",
        Witness.NVML,
        _LATER,
        "A guest driver, of the version that was asked for.",
        "the host's driver tells that version or a version of that branch, and the guest, where it is asked, no other;"
        " of whole cards only the guest can tell",
    )
    LICENCE = (
        "licence",
        Witness.NVML,
        _LATER,
        "The guest's vGPU is licensed.",
        "the host's driver says `licensed`, and the guest, where it is asked, does not deny it",
    )
    LICENCE_EDITION = (
        "licence-edition",
        Witness.GUEST,
        _BY_COMMAND,
        "The licence is of the product that was asked for.",
        "the guest's driver names that product",
    )
    GUEST_GPUS = (
        "guest-gpus",
        Witness.GUEST,
        _BY_COMMAND,
        "The guest has as many GPUs as it was given, vGPUs of their types, and CUDA can use them where it is there.",
        "the guest, where its tenant lets it be asked, shows each of them once, and where it has CUDA a copy to each"
        " device and back is whole",
    )
    GPU_PEERS = (
        "gpu-peers",
        Witness.GUEST,
        _BY_COMMAND,
        "Each of its GPUs reaches each other one by peer access, where they are one partition of the NVSwitch fabric.",
        "the guest, where its tenant lets it be asked, copied a pattern from each GPU to each other one, and all of it"
        " arrived; how fast is told and breaks nothing",
    )
    MPS = (
        "mps",
        Witness.GUEST,
        _BY_COMMAND,
        "MPS in the guest, with the limits of threads and memory that were asked for.",
        "the guest, where its tenant lets it be asked, has the control daemon with these defaults; the row is shown"
        " where the VM asks for MPS",
    )
    VCPUS = (
        "vcpus",
        Witness.LIBVIRT,
        _ALWAYS,
        "The vCPUs, their weight and limit, and the host's CPUs that they are pinned to.",
        "the running domain has as many, with this weight and limit, each on its CPU",
    )
    MEMORY = (
        "memory",
        Witness.LIBVIRT,
        _ALWAYS,
        "The memory, its huge pages and its NUMA cells.",
        "the running domain has as much, of such pages, bound to these cells",
    )
    DISKS = (
        "disks",
        Witness.LIBVIRT,
        _ALWAYS,
        "Each disk with its limits, and its size.",
        "the running domain has the recorded volume, within these limits; check-vm reads its size too",
    )
    INTERFACES = (
        "interfaces",
        Witness.LIBVIRT,
        _ALWAYS,
        "Each network interface with its address, network and rate.",
        "the running domain has it, its link is up, and libvirt's network is active",
    )
    PORTS = (
        "ports",
        Witness.OVN,
        _ALWAYS,
        "The port of each interface in a network that OVN carries.",
        "OVN's northbound database has it up on some host, with the addresses and the rate that the store has; check-vm"
        " asks the southbound database too, where it is named, and then that host is the VM's",
    )
    GATEWAY = (
        "gateway",
        Witness.OVN,
        _BY_COMMAND,
        "The way out of its tenant's networks.",
        "OVN's southbound database names a chassis that carries the tenant's gateway; whether it is the first one is"
        " told and breaks nothing; the row is shown where a VM is in a routed network of a tenant with a gateway",
    )
    BALANCERS = (
        "balancers",
        Witness.OVN,
        _BY_COMMAND,
        "Its place behind each load balancer of its tenant that names it.",
        "OVN's southbound database has the health check of its addresses as `online`; the row is shown where a balancer"
        " names the VM",
    )
    DISPLAY = (
        "display",
        Witness.LIBVIRT,
        _ALWAYS,
        "The display, its adapter, and the vGPU whose picture it shows.",
        "the running domain has them",
    )
    TPM = (
        "tpm",
        Witness.LIBVIRT,
        _ALWAYS,
        "A TPM 2.0.",
        "the running domain has one",
    )
    RESTART = (
        "restart",
        Witness.STORE,
        _LATER,
        "Somebody is there to start the VM again when it ends by itself, or when its host was booted.",
        "a controller that lives has claimed its host; whether the VM could start is not tried",
    )


DOMAIN_NOT_RUNNING = (
    "`virsh domstate --reason` on the host; `vgpuctl start-vm`, or `vgpuctl repair` for one that is paused"
)
"""The remedy of every row that is broken because the domain does not run."""


@dataclass(frozen=True)
class PromiseFinding:
    """The finding of one row. subject: a part of the row, such as `A40-8Q` or a disk's name.

    promised, seen: in words. why: the reason why it was not looked at. remedy: where to look when it is broken.
    """

    row: PromiseRow
    subject: str
    witness: Witness
    verdict: PromiseVerdict
    promised: str
    seen: str = ""
    why: str = ""
    remedy: str = ""

    @property
    def is_broken(self) -> bool:
        """True if the witness saw something else than was promised."""
        return self.verdict is PromiseVerdict.BROKEN

    def __str__(self) -> str:
        """The row with its subject, `gpu-type A40-8Q`."""
        return f"{self.row} {self.subject}" if self.subject else str(self.row)


@dataclass(frozen=True)
class GpuFault:
    """A fault of a GPU. since: seconds since the epoch, UTC."""

    since: float
    text: str


_OF_HARDWARE = (Witness.HOST_KERNEL, Witness.NVML, Witness.GUEST)


@dataclass(frozen=True)
class LastFinding:
    """The last finding of one row and subject. at: when it was looked at, since: when its verdict came about; seconds
    since the epoch, UTC.

    is_suspect: the last look of the controller saw it broken, and the one before did not: what changes by itself, as a
    port of a guest that has just started, is seen twice before it counts. was_broken: what was last known of it.
    """

    finding: PromiseFinding
    at: float
    since: float
    is_suspect: bool = False
    was_broken: bool = False

    def as_of(self, now: float, *, silence: str | None = None, fault: GpuFault | None = None) -> "LastFinding":
        """What is known of it now: not looked at where the look is old, or says nothing any more.

        silence: why the host does not answer. fault: of a GPU of the VM, which counts for the rows that hardware tells.
        """
        finding = self.finding
        is_past = fault is not None and self.at <= fault.since and finding.row.witness in _OF_HARDWARE
        reasons = [
            *([silence] if silence is not None else []),
            *([fault.text] if fault is not None and is_past else []),
        ]
        if finding.verdict is PromiseVerdict.NOT_LOOKED_AT or not (reasons or now - self.at > FRESH_S):
            return self
        why = "; ".join(
            (f"{finding.verdict} when it was last looked at, {format_duration(now - self.at)} ago", *reasons)
        )
        return replace(self, finding=replace(finding, verdict=PromiseVerdict.NOT_LOOKED_AT, seen="", why=why))


@dataclass(frozen=True)
class PromiseCheck:
    """The evidence of one check. at: seconds since the epoch, UTC. leases: ids of those that it is about.

    notes: what the guest told beside, and how DHCP answered, for people.
    """

    vm_uuid: str
    at: float
    verdict: PromiseVerdict
    leases: tuple[str, ...]
    findings: tuple[PromiseFinding, ...]
    notes: tuple[str, ...] = ()


def verdict_of(findings: Iterable[PromiseFinding]) -> PromiseVerdict:
    """The verdict of all: broken if any row is, kept if every row is, else not everything was looked at."""
    verdicts = {one.verdict for one in findings}
    if PromiseVerdict.BROKEN in verdicts:
        return PromiseVerdict.BROKEN
    return PromiseVerdict.KEPT if verdicts == {PromiseVerdict.KEPT} else PromiseVerdict.NOT_LOOKED_AT


def badness(finding: PromiseFinding) -> int:
    """Rank of a finding: 0 kept, 1 not looked at, 2 broken."""
    return (PromiseVerdict.KEPT, PromiseVerdict.NOT_LOOKED_AT, PromiseVerdict.BROKEN).index(finding.verdict)


def worst_of_each(findings: Iterable[PromiseFinding]) -> list[PromiseFinding]:
    """One finding of each row and subject, in their order: of several, as of several witnesses, the worst."""
    worst: dict[str, PromiseFinding] = {}
    for one in findings:
        known = worst.get(str(one))
        if known is None or badness(one) > badness(known):
            worst[str(one)] = one
    return list(worst.values())
