# SPDX-License-Identifier: Apache-2.0
"""How the machine reacts to a write: the errnos of the kernel and of NVIDIA's driver (reference 1.1, 1.2, 2.1, 4)."""

import errno
import os
import re
from collections.abc import Callable, Sequence
from typing import NoReturn

from vgpuctl_lab.simulated.machine import readings, rules, usage
from vgpuctl_lab.simulated.machine.drivers import STUB, Drivers
from vgpuctl_lab.simulated.machine.shape import DEFAULT_ORDER, MDEV, CardShape
from vgpuctl_lab.simulated.machine.sriov_admin import PRIORITIES, VF_DEFAULTS, VF_MOST, memory_quota
from vgpuctl_lab.simulated.machine.state import MachineFolder, State, Vgpu
from vgpuctl_lab.simulated.machine.tree import NO_GPU_INSTANCE

_DEVICE = r"/sys/bus/pci/devices/([^/]+)"
_ADMIN = rf"{_DEVICE}/sriov_admin"
_MDEV = r"/sys/bus/mdev/devices/([^/]+)"
_UUID = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\n?")
_NUMBER = re.compile(r"\+?(0[xX][0-9a-fA-F]+|[0-9]+)\n?")
_PLACEMENT_KEY = re.compile(r"vgpu-placement-id=(\d+)")
_MOST_PARAMS_BYTES = 1024
_MOST_VFS = 0xFFFF
_MOST_VF_PARAM = 0xFFFF_FFFF
_MOST_QUOTA = 0xFFFF_FFFF_FFFF_FFFF


class SimulatedKernel:
    """Takes one write while the state is held. Raises OSError with the errno that the real write would end with."""

    def __init__(self, machine: MachineFolder, state: State) -> None:
        self._machine = machine
        self._state = state
        self._drivers = Drivers(machine, state)
        self._reactions: tuple[tuple[str, Callable[..., None]], ...] = (
            (rf"{_DEVICE}/mdev_supported_types/nvidia-(\d+)/create", self._create_mdev),
            (rf"{_MDEV}/remove", self._remove_mdev),
            (rf"{_MDEV}/nvidia/vgpu_params", self._set_mdev_params),
            (rf"{_DEVICE}/nvidia/current_vgpu_type", self._set_type),
            (rf"{_DEVICE}/nvidia/(gpu_instance_id|placement_id)", self._set_number),
            (rf"{_DEVICE}/nvidia/vgpu_params", self._set_params),
            (rf"{_ADMIN}/(pf|vf\d+)/profile/(exec_quantum_ms|preempt_timeout_us)", self._set_param),
            (rf"{_ADMIN}/(pf)/profile/(sched_priority)", self._set_param),
            (rf"{_ADMIN}/(vf\d+)/profile/(vram_quota)", self._set_param),
            (rf"{_ADMIN}/(\.bulk_profile)/(\w+)", self._set_param),
            (rf"{_ADMIN}/(vf\d+)/stop", self._stop_vf),
            (rf"{_DEVICE}/sriov_numvfs", self._set_numvfs),
            (rf"{_DEVICE}/sriov_drivers_autoprobe", self._set_autoprobe),
            (rf"{_DEVICE}/driver_override", self._override),
            (rf"{_DEVICE}/reset", self._reset),
            (rf"{_DEVICE}/reset_method", self._order_resets),
            (rf"{_DEVICE}/rom", self._switch_rom),
            (rf"{_DEVICE}/driver/(unbind)", self._unbind_here),
            (r"/sys/bus/pci/drivers/([^/]+)/(bind|unbind)", self._bind_or_unbind),
            (r"/sys/bus/pci/drivers/pci-pf-stub/(new_id|remove_id)", self._change_ids),
            (r"/sys/kernel/mm/hugepages/hugepages-(\d+)kB/nr_hugepages", self._set_hugepages),
            (r"/sys/bus/pci/drivers_probe", self._probe),
            (r"/proc/driver/nvidia/gpus/([^/]+)/unbindLock", self._unbind_lock),
        )

    def write(self, path: str, text: str) -> None:
        """React to a write to a file that exists."""
        for pattern, react in self._reactions:
            match = re.fullmatch(pattern, path)
            if match:
                react(*match.groups(), text)
                return
        refuse(errno.EACCES)

    def _create_mdev(self, function: str, type_id: str, text: str) -> None:
        if not _UUID.fullmatch(text):
            refuse(errno.EINVAL)
        uuid = text.strip().lower()
        if self._state.mdev(uuid) is not None:
            refuse(errno.EEXIST)
        card = self._card_of(function)
        try:
            self._create(card, function, int(type_id), uuid)
        except OSError:
            bus, rest = function.split(":")[1:]
            slot, number = rest.split(".")
            routing = (int(bus, 16) << 8) + (int(slot, 16) << 3) + int(number)
            self._machine.log(f"vGPU creation failed on device {routing:#x}. -5")
            raise
        self._machine.log(f"nvidia-vgpu-vfio {uuid}: Adding to iommu group {self._state.next_group - 1}")

    def _create(self, card: CardShape, function: str, type_id: int, uuid: str | None = None) -> None:
        wanted = card.type_of(type_id)
        status, instance = rules.Ruling(self._state, card).status(function, wanted)
        status = self._state.fault(card, "refuse") or status
        if wanted is None or status != rules.OK:
            self._machine.log(f"NVRM: Failed to add vgpu create request: {status:#x}")
            refuse(errno.EIO)
        rules.add(self._state, card, function, wanted, uuid, instance=instance)

    def _remove_mdev(self, uuid: str, text: str) -> None:
        if number(text) == 0:
            return
        vgpu = self._state.mdev(uuid)
        if vgpu is None:
            refuse(errno.ENODEV)
        self._delete(vgpu)

    def _delete(self, vgpu: Vgpu) -> None:
        number = rules.removal_errno(self._machine.shape, self._state, self._card_of(vgpu.function), vgpu)
        if number == errno.EIO:
            self._machine.log(f"NVRM: Failed to add vgpu delete request: {rules.BUSY_RETRY:#x}")
        if number:
            refuse(number)
        if not self._state.fault(self._card_of(vgpu.function), "removal-ignored"):
            self._state.vgpus.remove(vgpu)

    def _set_type(self, function: str, text: str) -> None:
        type_id = number(text)
        vgpu = self._vgpu_on(function)
        # A type on a VF that has one, and 0 on a free VF, are not permitted.
        if bool(type_id) == (vgpu is not None):
            refuse(errno.EPERM)
        if vgpu is None:
            self._create(self._card_of(function), function, type_id)
        else:
            self._delete(vgpu)

    def _set_number(self, function: str, name: str, text: str) -> None:
        """Writing the current value is a no-op."""
        wanted, vgpu = number(text), self._vgpu_on(function)
        if vgpu is None:
            refuse(errno.ENXIO)
        if self._state.holder_of(vgpu) is not None:
            refuse(errno.EBUSY)
        card = self._card_of(function)
        if name == "placement_id":
            status = rules.move_to_placement(self._state, card, vgpu, wanted)
        elif vgpu.instance is None and wanted == NO_GPU_INSTANCE:
            status = rules.OK
        else:
            status = rules.move_to_instance(self._state, card, vgpu, wanted)
        if status != rules.OK:
            self._machine.log(f"NVRM: Failed to set {name.replace('_', ' ')}: {status:#x}")
            refuse(errno.EIO)

    def _set_params(self, function: str, text: str) -> None:
        self._store_params(self._vgpu_on(function), text)

    def _set_mdev_params(self, uuid: str, text: str) -> None:
        self._store_params(self._state.mdev(uuid), text)

    def _store_params(self, vgpu: Vgpu | None, text: str) -> None:
        if vgpu is None:
            refuse(errno.ENXIO)
        if self._state.holder_of(vgpu) is not None:
            refuse(errno.EBUSY)
        text = text.removesuffix("\n")
        if len(text) > _MOST_PARAMS_BYTES:
            refuse(errno.EINVAL)
        vgpu.params = "" if text == " " else text
        # A place asked for is taken at once where it can be.
        match = _PLACEMENT_KEY.search(vgpu.params)
        if match:
            rules.move_to_placement(self._state, self._card_of(vgpu.function), vgpu, int(match[1]))

    def _set_numvfs(self, function: str, text: str) -> None:
        wanted = number(text)
        card = self._card_of(function)
        current = self._state.vf_counts.get(function, 0)
        if wanted > min(card.total_vfs, _MOST_VFS):
            refuse(errno.ERANGE)
        if wanted == current:
            return
        if not self._drivers.can_configure_vfs(function):
            self._machine.log(f"pci {function}: Driver does not support SRIOV configuration via sysfs")
            refuse(errno.ENOENT)
        if current and wanted:
            self._machine.log(f"pci {function}: {current} VFs already enabled. Disable before enabling {wanted} VFs")
            refuse(errno.EBUSY)
        self._drivers.set_vfs(card, wanted)

    def _set_param(self, pf: str, folder: str, name: str, text: str) -> None:
        """The driver takes its maximum for more; the firmware refuses where a fault says so."""
        card = self._card_of(pf)
        value = _param(name, text)
        if self._state.fault(card, "vf-params-refused"):
            refuse(errno.EIO)
        if folder == "pf":
            self._set_params_of(card, [pf], name, value)
        elif folder == ".bulk_profile":
            functions = [card.vf_address(number) for number in range(card.total_vfs)]
            is_memory = name == "vram_quota"
            self._set_params_of(card, self._state.vfs_of(card) if is_memory else functions, name, value)
        else:
            self._set_params_of(card, [card.vf_address(int(folder[2:]) - 1)], name, value)

    def _set_params_of(self, card: CardShape, functions: Sequence[str], name: str, value: str) -> None:
        if name == "vram_quota":
            vfs = [card.vf_address(number) for number in range(card.total_vfs)]
            others = sum(memory_quota(self._state, card, one) for one in vfs if one not in functions)
            if others + int(value) * len(functions) > card.memory_mib << 20:
                refuse(errno.EIO)
        for address in functions:
            own = self._state.vf_params.pop(address, {}) | {name: value}
            changed = {one: text for one, text in own.items() if text != VF_DEFAULTS.get(one)}
            if changed:
                self._state.vf_params[address] = changed

    def _stop_vf(self, pf: str, folder: str, text: str) -> None:
        """The VF works no more until it is reset."""
        card = self._card_of(pf)
        if text.strip() not in ("1", "y", "Y", "on"):
            refuse(errno.EINVAL)
        if self._state.fault(card, "vf-params-refused"):
            refuse(errno.EIO)
        address = card.vf_address(int(folder[2:]) - 1)
        if address not in self._state.stopped_vfs:
            self._state.stopped_vfs.append(address)

    def _set_autoprobe(self, function: str, text: str) -> None:
        wanted = number(text)
        if function in self._state.no_autoprobe:
            self._state.no_autoprobe.remove(function)
        if not wanted:
            self._state.no_autoprobe.append(function)

    def _override(self, function: str, text: str) -> None:
        wanted = text.removesuffix("\n")
        if wanted:
            self._state.overrides[function] = wanted
        else:
            self._state.overrides.pop(function, None)

    def _reset(self, function: str, text: str) -> None:
        if number(text) != 1:
            refuse(errno.EINVAL)
        card = self._card_of(function)
        order = self._state.reset_orders.get(function, DEFAULT_ORDER)
        methods = card.default_resets(function) if order == DEFAULT_ORDER else order.split()
        if self._state.fault(card, "reset-fails") or (self._state.fault(card, "flr-fails") and methods == ["flr"]):
            self._machine.log(f"vfio-pci {function}: not ready 65535ms after FLR; giving up")
            refuse(errno.ENOTTY)
        self._state.stopped_vfs = [one for one in self._state.stopped_vfs if one != function]
        if function == card.address:
            readings.forget_errors(self._state, card)

    def _order_resets(self, function: str, text: str) -> None:
        """Writing `default` brings every method back (Documentation/ABI/testing/sysfs-bus-pci)."""
        known = self._card_of(function).default_resets(function)
        wanted = text.split()
        if wanted == [DEFAULT_ORDER]:
            self._state.reset_orders[function] = DEFAULT_ORDER
        elif not wanted or not set(wanted) <= set(known):
            refuse(errno.EINVAL)
        else:
            self._state.reset_orders[function] = " ".join(wanted)

    def _switch_rom(self, function: str, text: str) -> None:
        """Anything but 0 switches the ROM on (Linux drivers/pci/pci-sysfs.c)."""
        if function in self._state.roms:
            self._state.roms.remove(function)
        if number(text):
            self._state.roms.append(function)

    def _bind_or_unbind(self, driver: str, action: str, text: str) -> None:
        function = text.strip()
        if action == "unbind":
            self._drivers.unbind(driver, function)
        else:
            self._drivers.bind(driver, function)

    def _change_ids(self, action: str, text: str) -> None:
        """A new id makes the driver claim every function of this id without a driver, VFs and PFs."""
        identity = " ".join(text.split()[:2])
        known = identity in self._state.stub_ids
        if known == (action == "new_id"):
            refuse(errno.EEXIST if known else errno.ENODEV)
        if known:
            self._state.stub_ids.remove(identity)
        else:
            self._state.stub_ids.append(identity)
            self._drivers.claim(STUB)

    def _unbind_here(self, function: str, _action: str, text: str) -> None:
        if text.strip() != function:
            refuse(errno.ENODEV)
        self._drivers.unbind(self._state.drivers.get(function) or "", function)

    def _set_hugepages(self, size_kib: str, text: str) -> None:
        """The kernel gives as many as it has memory for, and keeps those in use, without an error."""
        others = sum(int(size) * count for size, count in self._state.hugepages.items() if size != size_kib)
        most = (self._machine.shape.memory_mib * 1024 * 9 // 10 - others) // int(size_kib)
        self._state.hugepages[size_kib] = max(min(number(text), most), self._state.used_pages(size_kib), 0)

    def _probe(self, text: str) -> None:
        self._drivers.probe(text.strip())

    def _unbind_lock(self, function: str, text: str) -> None:
        """A refused lock does not fail the write: the writer reads the value back."""
        locks = self._state.unbind_locks
        if not number(text):
            if function in locks:
                self._machine.log("NVRM: UnbindLock released")
                locks.remove(function)
        elif self._is_in_use(self._card_of(function)):
            self._machine.log("NVRM: Could not acquire UnbindLock")
        elif function not in locks:
            self._machine.log("NVRM: UnbindLock acquired")
            locks.append(function)

    def _is_in_use(self, card: CardShape) -> bool:
        held = self._state.fault(card, "unbind-lock") or self._state.fault(card, "fallen")
        return bool(held) or self._state.is_used(card) or usage.is_used(self._state, card)

    def _card_of(self, function: str) -> CardShape:
        card = self._drivers.card_of(function)
        if card is None:
            refuse(errno.ENODEV)
        return card

    def _vgpu_on(self, function: str) -> Vgpu | None:
        card = self._card_of(function)
        if card.interface == MDEV:
            return None
        return next((vgpu for vgpu in self._state.vgpus if vgpu.function == function), None)


def number(text: str) -> int:
    """Read an unsigned number as kstrtouint(base 0) does. Raises OSError EINVAL."""
    if not _NUMBER.fullmatch(text):
        refuse(errno.EINVAL)
    digits = text.strip().lstrip("+")
    base = 16 if digits[:2].lower() == "0x" else 8 if digits[0] == "0" and digits != "0" else 10
    try:
        return int(digits, base)
    except ValueError:
        refuse(errno.EINVAL)


def _param(name: str, text: str) -> str:
    """Read a parameter of a function as Intel's driver does. Raises OSError EINVAL."""
    if name == "sched_priority":
        if text.strip() not in PRIORITIES:
            refuse(errno.EINVAL)
        return text.strip()
    value = number(text)
    if value > (_MOST_QUOTA if name == "vram_quota" else _MOST_VF_PARAM):
        refuse(errno.EINVAL)
    return str(min(value, VF_MOST.get(name, value)))


def refuse(number: int) -> NoReturn:
    """End a write with an errno."""
    raise OSError(number, os.strerror(number))
