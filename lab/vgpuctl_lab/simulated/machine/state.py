# SPDX-License-Identifier: Apache-2.0
"""The state of a simulated host: one small file, its only truth, replaced as a whole under a lock."""

import dataclasses
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgpuctl_lab.card_links import FABRIC_CONFIG, configured_mode, fabric_config
from vgpuctl_lab.simulated.machine.distribution import distribution_of
from vgpuctl_lab.simulated.machine.shape import DEFAULT_ORDER, NVIDIA, CardShape, Shape
from vgpuctl_lab.simulated.machine.shape import read as read_shape
from vgpuctl_lab.simulated.machine.tuning import Tuning

FIRST_MDEV_GROUP = 100_000
FIRST_PID = 10_000
FABRIC_MANAGER = "nvidia-fabricmanager.service"
# Services of a vGPU host: clients that hold the cards run only if its owner starts them. nvidia-vgpud ends itself.
_SERVICES = {
    "libvirtd.service": True,
    "nvidia-dcgm.service": False,
    "nvidia-persistenced.service": False,
    "nvidia-vgpu-mgr.service": True,
    "nvidia-vgpud.service": False,
    "ssh.service": True,
    "virtlogd.socket": True,
}


@dataclass
class Vgpu:
    """One vGPU. card: its PF. function: the VF or PF it lives on. uuid: of an mdev. closed_at: end of its last VM.

    instance: the GPU instance it sits in.
    """

    card: str
    function: str
    type_id: int
    placement: int
    params: str = ""
    uuid: str | None = None
    group: int = 0
    closed_at: float | None = None
    instance: int | None = None


@dataclass
class ComputeInstance:
    """One compute instance of a GPU instance. start, size: compute slices of it."""

    id: int
    profile_id: int
    start: int
    size: int


@dataclass
class GpuInstance:
    """One MIG GPU instance. start, size: memory slots of its card. pids: of processes that compute in it."""

    card: str
    id: int
    profile_id: int
    start: int
    size: int
    mixes_sizes: bool = False
    computes: list[ComputeInstance] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)


@dataclass
class Scheduler:
    """The vGPU scheduler of a card, in NVML's numbers: policy 1 best effort, arr 0 default, slice in ns."""

    policy: int = 1
    arr: int = 0
    slice_ns: int = 2_000_000
    average: int = 33


@dataclass
class Process:
    """A process of the host other than a VM: it has the card's own node open, until its end if that is known."""

    pid: int
    name: str
    card: str
    until: float | None = None


@dataclass
class Licence:
    """The licence of a guest with vGPUs. expires_at: of its last lease, 0 before the first.

    restricted_after_s, stopped_after_s: after how long without a licence its driver throttles, and throttles most.
    """

    expires_at: float
    restricted_after_s: float
    stopped_after_s: float

    def state(self, now: float, started_at: float) -> str:
        """NVML's state. started_at: of the guest."""
        if now < self.expires_at:
            return "licensed"
        without_s = now - max(self.expires_at, started_at)
        if without_s < self.restricted_after_s:
            return "unlicensed-unrestricted"
        return "unlicensed-restricted" if without_s < self.stopped_after_s else "unlicensed"


@dataclass
class Domain:
    """One running VM: its process and what it holds. bound: functions that libvirt moved to vfio-pci for it.

    pages: huge pages by size in KiB. node_pages: of them, by NUMA node. licence: of a guest that has a licence server.
    """

    name: str
    pid: int
    functions: list[str] = field(default_factory=list)
    mdevs: list[str] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    pages: dict[str, int] = field(default_factory=dict)
    started_at: float = 0.0
    node_pages: dict[str, int] = field(default_factory=dict)
    licence: Licence | None = field(default=None, compare=False)


@dataclass
class Ovn:
    """Open vSwitch's database, which outlives a reboot, and how OVN fares. tunnels: what each one carries.
    has_role: whether the southbound database listens with OVN's role for hosts. received: packets by tunnel; dropped:
    ends whose packets a firewall here drops; refused: ends that refuse ours, in words; bfd: states; ports: internal.
    """

    external_ids: dict[str, str] = field(default_factory=dict)
    uses_tls: bool = False
    bridges: dict[str, list[str]] = field(default_factory=dict)
    connection: str = "connected"
    has_role: bool = True
    tunnels: dict[str, int] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    bfd: dict[str, str] = field(default_factory=dict)
    mtu: int = 1500
    ports: dict[str, dict[str, str]] = field(default_factory=dict)
    not_installed: list[str] = field(default_factory=list)


@dataclass
class Fabric:
    """What Fabric Manager has done. active: ids of its partitions.

    starting_until: when its start ends. window_ends: until when, after its restart, it waits to be told the active
    partitions. was_restarted: whether its last start was a restart that kept them. mode: FABRIC_MODE as it read it at
    its start. started_at: seconds since the epoch by this machine's clock, which times the files too.
    """

    active: list[int] = field(default_factory=list)
    starting_until: float = 0.0
    window_ends: float | None = None
    was_restarted: bool = False
    mode: int = 0
    started_at: float = 0.0


@dataclass
class State:
    """The state. drivers, overrides: by function.

    vf_counts, no_autoprobe, unbind_locks, mig_modes (current, pending), mixed_sizes, schedulers, faults (by kind):
    by physical function; what a card has not from its start is not in them. services: active ones that the host has,
    and others. enabled: units that systemd starts at boot. owners: user ids by file, of those that are not root's.
    hugepages: by size in KiB. host_faults: faults of the host itself. files: texts in place of the tree's, None for a
    file that is not there; they outlive a reboot.
    unregistered: PFs whose VFs offer no types. stub_ids: what pci-pf-stub claims beside its own, as `10de 2235`.
    skipped_s: seconds of waits that somebody passed over.
    played_xids: how many Xids of each curve the kernel has logged.
    opened: cards that somebody has used since their driver took them.
    wedged: VFs that no VM can use any more.
    vf_params: what Intel's driver was told of functions, by name; of VFs it lasts as long as they do.
    quotas_by_hand: Intel's cards whose VFs' memory was divided before they were enabled. stopped_vfs: until a reset.
    ecc: modes of cards that were switched from their first one (current, pending); they outlive a reboot.
    tunings: of cards that somebody has tuned.
    reset_orders: what was written to `reset_method` of functions. roms: cards whose ROM is switched on.
    """

    boot_id: str
    drivers: dict[str, str | None] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    vf_counts: dict[str, int] = field(default_factory=dict)
    no_autoprobe: list[str] = field(default_factory=list)
    unbind_locks: list[str] = field(default_factory=list)
    vgpus: list[Vgpu] = field(default_factory=list)
    domains: dict[str, Domain] = field(default_factory=dict)
    next_group: int = FIRST_MDEV_GROUP
    next_pid: int = FIRST_PID
    booted_at: float = 0.0
    mig_modes: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    instances: list[GpuInstance] = field(default_factory=list)
    mixed_sizes: list[str] = field(default_factory=list)
    schedulers: dict[str, Scheduler] = field(default_factory=dict)
    tunings: dict[str, Tuning] = field(default_factory=dict)
    ecc: dict[str, tuple[bool, bool]] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    services: dict[str, bool] = field(default_factory=dict)
    hugepages: dict[str, int] = field(default_factory=dict)
    faults: dict[str, dict[str, int]] = field(default_factory=dict)
    host_faults: dict[str, int] = field(default_factory=dict)
    enabled: list[str] = field(default_factory=list)
    owners: dict[str, int] = field(default_factory=dict)
    ovn: Ovn = field(default_factory=Ovn)
    files: dict[str, str | None] = field(default_factory=dict)
    unregistered: list[str] = field(default_factory=list)
    stub_ids: list[str] = field(default_factory=list)
    skipped_s: float = 0.0
    wedged: list[str] = field(default_factory=list)
    reset_orders: dict[str, str] = field(default_factory=dict)
    vf_params: dict[str, dict[str, str]] = field(default_factory=dict)
    quotas_by_hand: list[str] = field(default_factory=list)
    stopped_vfs: list[str] = field(default_factory=list)
    roms: list[str] = field(default_factory=list)
    fabric: Fabric = field(default_factory=Fabric)
    namespaces: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list, compare=False, repr=False)
    played_xids: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def now(self) -> float:
        """Seconds since the epoch, by a correct clock."""
        return time.time() + self.skipped_s

    def lasting(self) -> "State":
        """The state without counters that only go up and first uses of cards: equal at two times means no leak.

        The kernel's own order of resets counts as if nobody had written it.
        """
        orders = {function: order for function, order in self.reset_orders.items() if order != DEFAULT_ORDER}
        return dataclasses.replace(
            self, next_group=0, next_pid=0, skipped_s=0.0, opened=[], played_xids={}, reset_orders=orders
        )

    def running(self) -> list[Process]:
        """The processes that have not ended."""
        return [one for one in self.processes if one.until is None or one.until > self.now()]

    def use_up(self, card: CardShape, kind: str) -> bool:
        """Tell whether a fault of a card that strikes a number of times strikes now, and count it."""
        left = self.fault(card, kind)
        if left:
            self.faults[card.address][kind] = left - 1
        return left > 0

    def vfs_of(self, card: CardShape) -> list[str]:
        """The addresses of a card's VFs, by number."""
        return [card.vf_address(number) for number in range(self.vf_counts.get(card.address, 0))]

    def vgpus_of(self, card: CardShape) -> list[Vgpu]:
        """The vGPUs on a card, in the order of their creation."""
        return [vgpu for vgpu in self.vgpus if vgpu.card == card.address]

    def mig_mode(self, card: CardShape) -> tuple[bool, bool]:
        """True if MIG is on and whether it will be."""
        current, pending = self.mig_modes.get(card.address, (False, False))
        return current, pending

    def instances_of(self, card: CardShape) -> list[GpuInstance]:
        """The GPU instances of a card, by id."""
        return sorted((one for one in self.instances if one.card == card.address), key=lambda one: one.id)

    def fault(self, card: CardShape, kind: str) -> int:
        """The value of a fault of a card, 0 without one."""
        return self.faults.get(card.address, {}).get(kind, 0)

    def mdev(self, wanted: str) -> Vgpu | None:
        """The mediated device of a UUID."""
        return next((vgpu for vgpu in self.vgpus if vgpu.uuid == wanted), None)

    def used_pages(self, size_kib: str) -> int:
        """How many huge pages of a size the running VMs have."""
        return sum(domain.pages.get(size_kib, 0) for domain in self.domains.values())

    def node_pages(self, size_kib: str, node: int, nodes: int) -> tuple[int, int]:
        """How many huge pages of a size one of the nodes has, and how many are free; the kernel shares them out."""
        count = self.hugepages.get(size_kib, 0)
        total = count // nodes + (node < count % nodes)
        there = [one for one in self.domains.values() if size_kib in one.pages]
        used = sum(one.node_pages.get(str(node), 0) for one in there)
        if nodes == 1:
            used = self.used_pages(size_kib)
        return total, max(0, total - used)

    def holder_of(self, vgpu_or_function: Vgpu | str) -> str | None:
        """The UUID of the VM that holds a vGPU or a function."""
        function, mdev = vgpu_or_function, None
        if isinstance(vgpu_or_function, Vgpu):
            function, mdev = vgpu_or_function.function, vgpu_or_function.uuid
        for vm_uuid, domain in self.domains.items():
            if mdev in domain.mdevs if mdev is not None else function in domain.functions:
                return vm_uuid
        return None

    def is_used(self, card: CardShape) -> bool:
        """True if some VM has a vGPU of the card open."""
        return any(self.holder_of(vgpu) is not None for vgpu in self.vgpus_of(card))


def booted(shape: Shape, before: State | None = None, *, fabric_mode: int = 0) -> State:
    """The state right after a start: native drivers, no VFs, vGPUs or GPU instances (reference 3.1, 4.2, 5.1).

    before: of the start before; a card that needs a reset for it keeps its pending MIG mode. fabric_mode: of Fabric
    Manager's configuration.
    """
    state = State(str(uuid.uuid4()), booted_at=time.time())
    for card in shape.cards:
        state.drivers[card.address] = card.driver
        for companion in card.companions:
            state.drivers[companion.address] = companion.driver
        if before is not None and card.mig is not None and card.mig.needs_reset:
            pending = before.mig_mode(card)[1]
            state.mig_modes[card.address] = (pending, pending)
        if before is not None and card.address in before.ecc:
            state.ecc[card.address] = (before.ecc[card.address][1],) * 2
    distribution = distribution_of(shape)
    state.services = {**_SERVICES, **dict.fromkeys(distribution.ovn_services, False)}
    if shape.has_fabric_manager:
        state.services[FABRIC_MANAGER] = True
        state.fabric = Fabric(mode=fabric_mode, started_at=state.booted_at)
    if distribution.has_network_manager:
        state.services["NetworkManager.service"] = True
    state.enabled = list(distribution.enabled)
    if before is not None:
        state.ovn, state.enabled, state.owners = before.ovn, before.enabled, before.owners
        state.files = before.files
        # Installed, and started at boot once they were started; an enabled unit starts those that cannot be enabled.
        starting = [one for one in distribution.ovn_services if one in (*state.enabled, *distribution.static)]
        state.services |= {name: before.services.get(name, False) for name in starting}
    return state


class MachineFolder:
    """A host's folder: `machine.json`, `state.json`, `lock`, and `root/` with the few files that are real."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.shape = read_shape(folder / "machine.json")
        self._path = str(folder / "state.json")
        self._seen: tuple[int, int, int] | None = None
        self._state: State | None = None

    def state(self) -> State:
        """The state now; for reading only. Equal objects while nothing changed."""
        info = os.stat(self._path)  # noqa: PTH116 - asked before every read of the machine
        seen = (info.st_ino, info.st_mtime_ns, info.st_size)
        if self._state is None or seen != self._seen:
            self._state, self._seen = self._read(), seen
        return self._state

    @contextmanager
    def change(self) -> Iterator[State]:
        """Hold the machine alone and change its state; it is written when the block ends well, else stays."""
        descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            state = self._read()
            yield state
            self.write(state)
        finally:
            os.close(descriptor)

    def write(self, state: State) -> None:
        """Replace the state as a whole."""
        temporary = self.folder / "state.json.new"
        temporary.write_text(json.dumps(state, default=vars, separators=(",", ":")))
        temporary.replace(self.folder / "state.json")

    def reboot(self) -> None:
        """Lose what real hosts lose: VMs, vGPUs, VFs, GPU instances, modes, driver overrides. The disk stays.

        Cards may have been put into other slots meanwhile: `machine.json` is read again.
        """
        self.shape = read_shape(self.folder / "machine.json")
        with self.change() as state:
            fresh = booted(self.shape, state, fabric_mode=configured_mode(self.root))
            for name in (each.name for each in dataclasses.fields(State)):
                setattr(state, name, getattr(fresh, name))
            (self.root / "dev/kmsg").write_text("")
            for folder in ("run/vgpuctl", "run/vgpuctl-functions", "run/libvirt/qemu"):  # /run is in memory
                shutil.rmtree(self.root / folder, ignore_errors=True)

    def log(self, *lines: str) -> None:
        """Let the kernel say something."""
        path = self.root / "dev/kmsg"
        number = path.read_bytes().count(b"\n")
        state = self.state()
        since_boot_us = int((state.now() - state.booted_at) * 1_000_000)
        text = "".join(f"3,{number + place},{since_boot_us},-;{line}\n" for place, line in enumerate(lines))
        with path.open("a") as file:
            file.write(text)

    def _read(self) -> State:
        fields = json.loads((self.folder / "state.json").read_text())
        fields["vgpus"] = [Vgpu(**each) for each in fields["vgpus"]]
        fields["domains"] = {key: _domain(each) for key, each in fields["domains"].items()}
        fields["instances"] = [_instance(each) for each in fields.get("instances", ())]
        fields["schedulers"] = {key: Scheduler(**each) for key, each in fields.get("schedulers", {}).items()}
        fields["tunings"] = {key: Tuning.read(each) for key, each in fields.get("tunings", {}).items()}
        fields["processes"] = [Process(**each) for each in fields.get("processes", ())]
        fields["ovn"] = Ovn(**fields.get("ovn", {}))
        fields["fabric"] = Fabric(**fields.get("fabric", {}))
        return State(**fields)


def _domain(fields: dict[str, Any]) -> Domain:
    licence = fields.get("licence")
    return Domain(**{**fields, "licence": None if licence is None else Licence(**licence)})


def _instance(fields: dict[str, Any]) -> GpuInstance:
    return GpuInstance(**{**fields, "computes": [ComputeInstance(**each) for each in fields["computes"]]})


def make(folder: Path, shape: Shape) -> MachineFolder:
    """Make a host that was just switched on for the first time; `shape` must be written already."""
    (folder / "root/dev").mkdir(parents=True, exist_ok=True)
    (folder / "root/run").mkdir(parents=True, exist_ok=True)
    (folder / "root/dev/kmsg").touch()
    machine = MachineFolder(folder)
    if shape.has_fabric_manager:
        config = machine.root / FABRIC_CONFIG.lstrip("/")
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(fabric_config(shape.fabric_mode))
    machine.write(booted(shape, fabric_mode=configured_mode(machine.root)))
    return machine


def is_nvidia(card: CardShape) -> bool:
    """True if the card follows NVIDIA's rules."""
    return card.vendor == NVIDIA
