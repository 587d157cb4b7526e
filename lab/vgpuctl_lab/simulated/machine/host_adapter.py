# SPDX-License-Identifier: Apache-2.0
"""The agent's `Host` on a simulated machine: reads come from the tree, writes go to the kernel's reactions.

Everything above this adapter is the agent's own code, byte by byte.
"""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vgpuctl.agent.host import Completed, Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.ovn import PROBE_PACKETS
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl_lab.simulated.interpreter import BOOT_VARIABLE
from vgpuctl_lab.simulated.machine import (
    curves,
    fabric_manager,
    network_functions,
    ovn,
    scenario_xids,
    systemd_analyze,
)
from vgpuctl_lab.simulated.machine.distribution import distribution_of
from vgpuctl_lab.simulated.machine.fabric_manager import SimulatedNvfm
from vgpuctl_lab.simulated.machine.kernel import SimulatedKernel
from vgpuctl_lab.simulated.machine.nvml import SimulatedNvml
from vgpuctl_lab.simulated.machine.programs import has_nvidia, run_program
from vgpuctl_lab.simulated.machine.state import MachineFolder, State
from vgpuctl_lab.simulated.machine.tree import Link, Tree, Unreadable, build, open_nodes

_MOST_LINKS = 40
_DISK_BYTES, _USED_BYTES = 2 << 40, 1 << 30
_PROGRAMS = (
    "modprobe",
    "systemctl",
    "virsh",
    "ovn-controller",
    "swtpm",
    "swtpm_setup",
    *ovn.PROGRAMS,
    *network_functions.PROGRAMS,
)
# A file in this folder of the machine's disk, named as a program, hides the program.
HIDDEN_PROGRAMS = "/run/lab-hidden-programs"


class SimulatedHost(Host):
    """One simulated machine in a folder; several agents may have it open at once."""

    _skipped_s = 0.0

    def __init__(self, folder: str) -> None:
        self.machine = MachineFolder(Path(folder))
        super().__init__(str(self.machine.root))
        self._seen: State | None = None
        self._tree: Tree = {}
        self._children: dict[str, set[str]] = {}
        self._real: dict[str, str] = {}
        self._is_booting = BOOT_VARIABLE in os.environ

    def read_optional(self, path: str) -> str | None:
        """Return a file's text, None for a missing file. Raises Problem, as ENXIO where the driver does."""
        content = self._tree_now().get(self._resolve(path))
        if isinstance(content, Unreadable):
            error = OSError(content.errno, os.strerror(content.errno))
            raise self.unreadable(path, error) from error
        # Files outside the tree may lie on the machine's disk, which is real.
        return content if isinstance(content, str) else super().read_optional(path)

    def read_head(self, path: str, count: int) -> bytes:
        """Return the first bytes of a file, which the tree has as Latin-1. Raises Problem."""
        content = self._tree_now().get(self._resolve(path))
        if isinstance(content, Unreadable):
            raise self.unreadable(path, OSError(content.errno, os.strerror(content.errno)))
        return content.encode("latin-1")[:count] if isinstance(content, str) else super().read_head(path, count)

    def listdir_optional(self, path: str) -> list[str] | None:
        """Return a folder's names in order, None for a missing folder."""
        self._tree_now()
        names = self._children.get(self._resolve(path))
        on_disk = super().listdir_optional(path)
        return on_disk if names is None else sorted({*names, *(on_disk or ())})

    def exists(self, path: str) -> bool:
        """Tell whether a path leads somewhere."""
        tree, real = self._tree_now(), self._resolve(path)
        return real in tree or real in self._children or super().exists(path)

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link, None when there is none."""
        folder, _, name = path.rpartition("/")
        content = self._tree_now().get(f"{self._resolve(folder)}/{name}")
        return content.target if isinstance(content, Link) else None

    def real_path(self, path: str) -> str:
        """Return where a path leads when all its links are followed."""
        self._tree_now()
        return self._resolve(path)

    def process_links(self, pids: Sequence[int] | None = None) -> tuple[list[tuple[int, str]], int]:
        """Return (pid, open file) of the VMs' processes; none is hidden."""
        found = open_nodes(self.machine.shape, self.machine.state(), self._tree_now())
        return [one for one in found if pids is None or one[0] in pids], 0

    def nvml(self) -> SimulatedNvml:
        """The machine's NVML. Raises Problem `nvml-missing` on a host without NVIDIA's driver."""
        if not has_nvidia(self.machine):
            raise Problem(ProblemCode.NVML_MISSING, "NVML cannot be used: NVML Shared Library Not Found")
        return SimulatedNvml(self.machine)

    def nvfm(self) -> Any:
        """The machine's SDK of Fabric Manager. Raises Problem `fabric-library-missing` without NVSwitch."""
        return SimulatedNvfm(self.machine) if self.machine.shape.has_fabric_manager else super().nvfm()

    def user_id(self, name: str) -> int:
        """Return the id of a user of the machine. Raises Problem `no-such-user`."""
        users = distribution_of(self.machine.shape).users
        if name not in users:
            raise Problem(ProblemCode.NO_SUCH_USER, f"this host has no user {name}")
        return users[name]

    def owner_of(self, path: str) -> int | None:
        """Return the owner of a file of the disk, from the state: this machine has other users."""
        return None if super().owner_of(path) is None else self.machine.state().owners.get(path, 0)

    def space(self, path: str) -> tuple[str, int, int]:
        """The room of a file system: by the curves of the host, else half of a disk is free."""
        total, free = (
            curves.read(self.machine.root).value("host", f"{name}/{path}", self.machine.state().now())
            for name in ("disk_total_bytes", "disk_free_bytes")
        )
        size, left = _DISK_BYTES if total is None else total, _DISK_BYTES / 2 if free is None else free
        return self.real_path(path), round(size), round(left)

    def allocated(self, what: str, paths: Sequence[str]) -> dict[str, tuple[str, int]]:
        """The room that disks of VMs take: by the curves of the host, else little."""
        played, now = curves.read(self.machine.root), self.machine.state().now()
        sizes = {path: played.value("host", f"disk_allocated_bytes/{path}", now) for path in paths}
        return {path: (path, round(_USED_BYTES if size is None else size)) for path, size in sizes.items()}

    def give(self, descriptor: int, path: str, owner: int) -> None:
        """Give a file to a user of the machine."""
        if self.machine.state().owners.get(path, 0) == owner:
            return
        with self.machine.change() as state:
            if owner:
                state.owners[path] = owner
            else:
                state.owners.pop(path, None)

    def is_emulated(self) -> bool:
        """It has no card at all."""
        return True

    def is_root(self) -> bool:
        """Every login may change the machine."""
        return True

    def now(self) -> float:
        """The seconds since the epoch by the machine's clock, which may be wrong."""
        return super().now() + self._skew_s()

    def stamp(self, path: str) -> tuple[int, int, int] | None:
        """What changes with a file of the disk, its time by the machine's clock."""
        found = super().stamp(path)
        return found and (found[0], found[1] + self._skew_s() * 1_000_000_000, found[2])

    def _skew_s(self) -> int:
        return self.machine.state().host_faults.get("clock-skew", 0)

    def uptime(self) -> float:
        """The seconds since the machine's start."""
        return self.machine.state().now() - self.machine.state().booted_at

    def monotonic(self) -> float:
        """Seconds of a clock that also goes on in `wait`."""
        return super().monotonic() + self._skipped_s

    def wait(self, seconds: float) -> None:
        """Let time pass: at once where nobody else uses the machine or would notice.

        That is while it boots, and while a driver ignores removals.
        """
        faults = self.machine.state().faults.values()
        if not (self._is_booting or any("removal-ignored" in kinds for kinds in faults)):
            super().wait(seconds)
            return
        self._skipped_s += seconds
        with self.machine.change() as state:
            state.skipped_s += seconds

    def finish_log(self) -> None:
        """Log the Xids of a scenario that are due."""
        scenario_xids.log_due(self.machine)

    def write_text(self, path: str, text: str) -> None:
        """Hand the text to the simulated kernel. Raises OSError."""
        with self.machine.change() as state:
            write(self.machine, state, path, text)

    def run(self, argv: Sequence[str], *, timeout_s: float, changes: bool = False) -> Completed:
        """Run one of the machine's few programs. Raises Problem `program-missing`."""
        if changes:
            self.writes += 1
        status, output, errors = run_program(self.machine, argv)
        if status == 127:
            raise Problem(ProblemCode.PROGRAM_MISSING, f"the program {argv[0]} is not on this host", path=argv[0])
        return Completed(status, output, errors)

    def find_program(self, name: str) -> str | None:
        """Return the name of a program that the machine has."""
        base = name.rpartition("/")[2]
        if base == "sriov-manage":
            return "/usr/lib/nvidia/sriov-manage" if name != base else None
        if base.startswith("python") and name != base:
            # Programs that the operator names by path, such as the Python of the boot unit, are this machine's.
            return name if os.access(name, os.X_OK) else None
        if base == "nvidia-smi":
            return f"/usr/bin/{base}" if has_nvidia(self.machine) else None
        if base == fabric_manager.PROGRAM:
            return f"/usr/bin/{base}" if self.machine.shape.has_fabric_manager else None
        if base == systemd_analyze.PROGRAM:
            return f"/usr/bin/{base}" if systemd_analyze.is_here() else None
        if super().exists(f"{HIDDEN_PROGRAMS}/{base}"):
            return None
        return f"/usr/sbin/{base}" if base in (*self.machine.shape.versions, *_PROGRAMS) else None

    def echo(self, remotes: Sequence[str], sizes: Sequence[int], *, timeout_s: float) -> dict[str, int]:
        """The traffic that each tunnel carries; all by default."""
        carries = self.machine.state().ovn.tunnels
        return {
            one: max((size for size in sizes if size <= carries.get(one, max(sizes))), default=0) for one in remotes
        }

    def probe_tunnels(self, remotes: Sequence[str], kind: str, port: int) -> dict[str, str]:
        """Let packets pass in both directions, or not."""
        return ovn.probe(self.machine, remotes, PROBE_PACKETS)

    def _tree_now(self) -> Tree:
        state = self.machine.state()
        if state is not self._seen:
            self._seen, self._tree = state, build(self.machine.shape, state)
            self._children = _children(self._tree)
            self._real = {}
        return self._tree

    def _resolve(self, path: str) -> str:
        """Follow every link on the way and at the end; folders, which many paths share, are looked up once."""
        folder, _, name = path.rpartition("/")
        if not folder:
            return resolve(self._tree, path)
        real = self._real.get(folder)
        if real is None:
            real = self._real[folder] = self._resolve(folder)
        place = f"{real}/{name}"
        return resolve(self._tree, place) if isinstance(self._tree.get(place), Link) else place


def write(machine: MachineFolder, state: State, path: str, text: str) -> None:
    """Write to a file of the machine while its state is held. Raises OSError; ENOENT for what is not there."""
    tree = build(machine.shape, state)
    real = resolve(tree, path)
    if not isinstance(tree.get(real), (str, Unreadable)):
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    SimulatedKernel(machine, state).write(path, text)


def resolve(tree: Tree, path: str) -> str:
    """Follow every link of a path, also at its end; ELOOP ends as a path that does not exist."""
    for _ in range(_MOST_LINKS):
        parts = path.strip("/").split("/")
        for number in range(1, len(parts) + 1):
            place = "/" + "/".join(parts[:number])
            content = tree.get(place)
            if isinstance(content, Link):
                path = "/".join([content.target, *parts[number:]])
                break
        else:
            return "/" + "/".join(parts)
    return "/"


def _children(tree: Tree) -> dict[str, set[str]]:
    children: dict[str, set[str]] = {}
    for path in tree:
        while path:
            folder, _, name = path.rpartition("/")
            names = children.setdefault(folder, set())
            if name in names:
                break
            names.add(name)
            path = folder
    return children
