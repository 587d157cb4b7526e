# SPDX-License-Identifier: Apache-2.0
"""A host whose folder reacts to writes as the kernel and NVIDIA document it (reference 1.1, 1.2, 2.1, 4)."""

import errno
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from tests.agent import machine
from vgpuctl.agent.dispatch import answer
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem, Reply, Request
from vgpuctl.agent.wire.steps import Step

_MDEV_CREATE = re.compile(r"/sys/bus/pci/devices/([^/]+)/mdev_supported_types/([^/]+)/create")
_MDEV_REMOVE = re.compile(r"/sys/bus/mdev/devices/([^/]+)/remove")
_VGPU_TYPE = re.compile(r"/sys/bus/pci/devices/([^/]+)/nvidia/current_vgpu_type")
_DRIVER = re.compile(r"/sys/bus/pci/drivers/([^/]+)/(bind|unbind)")
_OVERRIDE = re.compile(r"/sys/bus/pci/devices/([^/]+)/driver_override")
_NUMVFS = re.compile(r"/sys/bus/pci/devices/([^/]+)/sriov_numvfs")


class FakeKernel(Host):
    """Time passes only in `wait`.

    written: every (path, text). refusals: errno to answer the next writes to a path's end with, in turn.
    kernel_says: put into the kernel log at each refusal. native: the driver a function gets without override.
    unbindable: drivers that claim nothing. on_wait: called at each wait. has_root: what the agent says of its rights.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.written: list[tuple[str, str]] = []
        self.refusals: dict[str, list[int]] = {}
        self.kernel_says: list[str] = []
        self.native: dict[str, str] = {}
        self.unbindable: set[str] = set()
        self.waited_s = 0.0
        self.on_wait: Callable[[], None] = lambda: None
        self.removal_takes_waits = 0
        self.has_root = True
        self._going: dict[str, int] = {}

    def is_root(self) -> bool:
        return self.has_root

    def wait(self, seconds: float) -> None:
        self.waited_s += seconds
        self.on_wait()
        for uuid, left in list(self._going.items()):
            self._going[uuid] = left - 1
            if left <= 1:
                self.remove_mdev(uuid)

    def write_text(self, path: str, text: str) -> None:
        if not self.exists(path):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        self.written.append((path, text))
        for end, errors in self.refusals.items():
            if path.endswith(end) and errors:
                self._refuse(errors.pop(0))
        reactions: tuple[tuple[re.Pattern[str], Callable[..., None]], ...] = (
            (_MDEV_CREATE, self._create_mdev),
            (_MDEV_REMOVE, self._remove),
            (_VGPU_TYPE, self._set_type),
            (_DRIVER, self._bind_or_unbind),
            (_OVERRIDE, self._override),
            (_NUMVFS, self._set_numvfs),
        )
        for pattern, react in reactions:
            match = pattern.fullmatch(path)
            if match:
                react(*match.groups(), text.strip())
                return
        if path == "/sys/bus/pci/drivers_probe":
            self._probe(text.strip())
            return
        super().write_text(path, text)

    def place(self, path: str) -> Path:
        """Where a path of the machine lies."""
        return Path(self.path(path))

    def driver(self, address: str) -> str | None:
        """The driver a function is bound to."""
        return self.link_name(f"/sys/bus/pci/devices/{address}/driver")

    def bind(self, address: str, driver: str | None) -> None:
        """Set or remove the driver link."""
        link = self.place(f"{machine.device_path(address)}/driver")
        link.unlink(missing_ok=True)
        if driver is not None:
            link.symlink_to(f"../../../bus/pci/drivers/{driver}")

    def remove_mdev(self, uuid: str) -> None:
        """Take a mediated device away, as the driver does."""
        link = self.place(f"/sys/bus/mdev/devices/{uuid}")
        folder = link.resolve()
        self._going.pop(uuid, None)
        if link.is_symlink():
            link.unlink()
            shutil.rmtree(folder)

    def set_vfs(self, address: str, count: int, kind: Callable[[int], machine.Tree]) -> None:
        """Make `count` VFs, and none else."""
        for link in self.place(machine.device_path(address)).glob("virtfn*"):
            vf = link.readlink().name
            for member in self.place("/sys/kernel/iommu_groups").glob(f"*/devices/{vf}"):
                member.unlink()
            self.place(f"/sys/bus/pci/devices/{vf}").unlink()
            shutil.rmtree(link.resolve())
            link.unlink()
        self.place(f"{machine.device_path(address)}/sriov_numvfs").write_text(f"{count}\n")
        for number in range(count):
            machine.build(Path(self.root), kind(number))

    def _refuse(self, number: int) -> None:
        with self.place("/dev/kmsg").open("a") as log:
            log.writelines(f"4,100,200,-;{line}\n" for line in self.kernel_says)
        raise OSError(number, os.strerror(number))

    def _create_mdev(self, parent: str, type_id: str, uuid: str) -> None:
        available = self.place(f"/sys/bus/pci/devices/{parent}/mdev_supported_types/{type_id}/available_instances")
        if self.exists(f"/sys/bus/mdev/devices/{uuid}"):
            self._refuse(errno.EEXIST)
        if int(available.read_text()) < 1:
            self._refuse(errno.EIO)
        available.write_text(f"{int(available.read_text()) - 1}\n")
        machine.build(Path(self.root), machine.active_mdev(uuid, parent, type_id))

    def _remove(self, uuid: str, text: str) -> None:
        if uuid in self._going:
            self._refuse(errno.EAGAIN)
        if self.removal_takes_waits:
            self._going[uuid] = self.removal_takes_waits
        else:
            self.remove_mdev(uuid)

    def _set_type(self, address: str, type_id: str) -> None:
        folder = self.place(f"/sys/bus/pci/devices/{address}/nvidia")
        current = (folder / "current_vgpu_type").read_text().strip()
        if type_id != "0":
            listed = re.findall(r"^(\d+)", (folder / "creatable_vgpu_types").read_text(), re.MULTILINE)
            if current != "0":
                self._refuse(errno.EPERM)
            if type_id not in listed:
                self._refuse(errno.EIO)
        elif current == "0":
            self._refuse(errno.EPERM)
        (folder / "current_vgpu_type").write_text(f"{type_id}\n")
        types = tuple(machine.VF_TYPES) if type_id == "0" else ()
        (folder / "creatable_vgpu_types").write_text(machine.creatable(types))

    def _bind_or_unbind(self, driver: str, action: str, address: str) -> None:
        if action == "unbind":
            if self.driver(address) != driver:
                self._refuse(errno.ENODEV)
            self.bind(address, None)
        else:
            self.bind(address, driver)

    def _override(self, address: str, text: str) -> None:
        self.place(f"/sys/bus/pci/devices/{address}/driver_override").write_text(f"{text or '(null)'}\n")

    def _probe(self, address: str) -> None:
        if self.driver(address) is not None:
            return
        override = self.read(f"/sys/bus/pci/devices/{address}/driver_override")
        driver = self.native.get(address) if override == "(null)" else override
        if driver is not None and driver not in self.unbindable:
            self.bind(address, driver)

    def _set_numvfs(self, address: str, text: str) -> None:
        path = f"/sys/bus/pci/devices/{address}"
        current, wanted = int(self.read(f"{path}/sriov_numvfs")), int(text)
        if wanted > int(self.read(f"{path}/sriov_totalvfs")):
            self._refuse(errno.ERANGE)
        if self.driver(address) in (None, "nvidia"):
            self._refuse(errno.ENOENT)
        if current and wanted and current != wanted:
            self._refuse(errno.EBUSY)
        self.set_vfs(address, wanted, lambda number: machine.virtual_function(number, address, vendor="8086"))


def make(root: Path, *trees: machine.ReadableTree) -> FakeKernel:
    """Build a machine and the kernel on it."""
    return FakeKernel(machine.build(root, machine.BASE, *trees))


def take(host: FakeKernel, *steps: Step, dry_run: bool = False) -> Reply:
    """Let the agent apply steps."""
    return answer(host, Request("apply", steps, dry_run=dry_run))


def problem(reply: Reply) -> Problem:
    """The problem a reply must carry."""
    assert reply.problem is not None
    return reply.problem


def add_program(host: FakeKernel, path: str, body: str) -> None:
    """Put a Python program on the machine."""
    place = host.place(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!{sys.executable} -SE\n{body}\n")
    place.chmod(place.stat().st_mode | stat.S_IXUSR)
