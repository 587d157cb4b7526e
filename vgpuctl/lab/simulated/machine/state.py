# SPDX-License-Identifier: Apache-2.0
"""What changes in a simulated host's life: one small file, the host's only truth, replaced as a whole under a lock."""

import dataclasses
import fcntl
import json
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vgpuctl.lab.simulated.machine.shape import NVIDIA, Card, Shape
from vgpuctl.lab.simulated.machine.shape import read as read_shape

FIRST_MDEV_GROUP = 100_000
FIRST_PID = 10_000


@dataclass
class Vgpu:
    """One vGPU. card: its PF. function: the VF or PF it lives on. uuid: of an mdev. closed_at: end of its last VM."""

    card: str
    function: str
    type_id: int
    placement: int
    params: str = ""
    uuid: str | None = None
    group: int = 0
    closed_at: float | None = None


@dataclass
class Domain:
    """One running VM: its process and what it holds. bound: functions that libvirt moved to vfio-pci for it."""

    name: str
    pid: int
    functions: list[str] = field(default_factory=list)
    mdevs: list[str] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)


@dataclass
class State:
    """The state. drivers, overrides: by function. vf_counts, no_autoprobe, unbind_locks: by physical function."""

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

    def vfs_of(self, card: Card) -> list[str]:
        """The addresses of a card's VFs, by number."""
        return [card.vf_address(number) for number in range(self.vf_counts.get(card.address, 0))]

    def vgpus_of(self, card: Card) -> list[Vgpu]:
        """The vGPUs on a card, in the order of their creation."""
        return [vgpu for vgpu in self.vgpus if vgpu.card == card.address]

    def mdev(self, wanted: str) -> Vgpu | None:
        """The mediated device of a UUID."""
        return next((vgpu for vgpu in self.vgpus if vgpu.uuid == wanted), None)

    def holder_of(self, vgpu_or_function: Vgpu | str) -> str | None:
        """The UUID of the VM that holds a vGPU or a function."""
        function, mdev = vgpu_or_function, None
        if isinstance(vgpu_or_function, Vgpu):
            function, mdev = vgpu_or_function.function, vgpu_or_function.uuid
        for vm_uuid, domain in self.domains.items():
            if mdev in domain.mdevs if mdev is not None else function in domain.functions:
                return vm_uuid
        return None

    def is_used(self, card: Card) -> bool:
        """Whether some VM has a vGPU of the card open."""
        return any(self.holder_of(vgpu) is not None for vgpu in self.vgpus_of(card))


def booted(shape: Shape) -> State:
    """The state right after a start: native drivers, no VFs, no vGPUs (reference 3.1, 4.2)."""
    state = State(str(uuid.uuid4()), booted_at=time.time())
    for card in shape.cards:
        state.drivers[card.address] = card.driver
        for companion in card.companions:
            state.drivers[companion.address] = companion.driver
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
        temporary.write_text(json.dumps(dataclasses.asdict(state), separators=(",", ":")))
        temporary.replace(self.folder / "state.json")

    def reboot(self) -> None:
        """Lose what real hosts lose: VMs, vGPUs, VFs, driver overrides. The disk stays."""
        with self.change() as state:
            fresh = booted(self.shape)
            for name in (each.name for each in dataclasses.fields(State)):
                setattr(state, name, getattr(fresh, name))
            (self.root / "dev/kmsg").write_text("")
            (self.root / "run/lock/vgpuctl.lock").unlink(missing_ok=True)

    def log(self, line: str) -> None:
        """Let the kernel say something."""
        with (self.root / "dev/kmsg").open("a") as file:
            file.write(f"3,1,1,-;{line}\n")

    def _read(self) -> State:
        fields = json.loads((self.folder / "state.json").read_text())
        fields["vgpus"] = [Vgpu(**each) for each in fields["vgpus"]]
        fields["domains"] = {key: Domain(**each) for key, each in fields["domains"].items()}
        return State(**fields)


def make(folder: Path, shape: Shape) -> MachineFolder:
    """Make a host that was just switched on for the first time; `shape` must be written already."""
    (folder / "root/dev").mkdir(parents=True, exist_ok=True)
    (folder / "root/run/lock").mkdir(parents=True, exist_ok=True)
    (folder / "root/dev/kmsg").touch()
    machine = MachineFolder(folder)
    machine.write(booted(shape))
    return machine


def is_nvidia(card: Card) -> bool:
    """Whether the card follows NVIDIA's rules."""
    return card.vendor == NVIDIA
