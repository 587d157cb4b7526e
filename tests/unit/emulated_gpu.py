# SPDX-License-Identifier: Apache-2.0
"""A GPU whose vGPUs follow the lab's statement of the resource manager's rules, which knows nothing of the scheduler.

SR-IOV boards carry one vGPU per VF; the others carry mdevs on the PF, by UUID. `facts()` is what an agent would read.
"""

from dataclasses import dataclass, field, replace
from functools import cache, cached_property

from vgpuctl import catalog
from vgpuctl.agent.wire.facts import CompanionFunction, Gpu, Holder, Mdev, VgpuType, VirtualFunction
from vgpuctl_lab.boards import type_id
from vgpuctl_lab.simulated.machine import rules
from vgpuctl_lab.simulated.machine.shape import VgpuType as CardType
from vgpuctl_lab.simulated.machine.state import Vgpu
from vgpuctl_lab.simulated.mix import vgpu_type


@cache
def _card_type(board: str, name: str) -> CardType | None:
    found = catalog.type_by_name(catalog.board(board), name)
    return None if found is None else vgpu_type(catalog.board(board), found, type_id(found))


class RuleBroken(Exception):
    """A refusal of the resource manager; `code` is its RM code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code:#x}: {text}")
        self.code = code


@dataclass
class EmulatedGpu:
    """One card. vgpus: type name by VF address, or by UUID for mdevs on the PF. uuids: of mdevs on VFs."""

    board: catalog.Board
    address: str
    sharing: str
    vf_count: int = 0
    vgpus: dict[str, str] = field(default_factory=dict)
    uuids: dict[str, str] = field(default_factory=dict)
    numa_node: int | None = 0
    is_mixed: bool = False
    starts: dict[str, int] = field(default_factory=dict)

    @property
    def on_vfs(self) -> bool:
        return self.sharing in ("mdev-vf", "vf-profile", "vf")

    @cached_property
    def functions(self) -> list[str]:
        bus = int(self.address[5:7], 16)
        first = 4
        numbers = [(bus << 8) + first + index for index in range(self.vf_count)]
        return [f"0000:{one >> 8:02x}:{one >> 3 & 31:02x}.{one & 7}" for one in numbers]

    def types(self) -> list[catalog.CatalogType]:
        return [one for one in catalog.types_of(self.board) if not one.is_mig_backed]

    def refusal(self, name: str, key: str) -> RuleBroken | None:
        """Why the type cannot be created on the VF (or with the UUID) now."""
        wanted = _card_type(self.board.key, name)
        if wanted is None or (self.on_vfs and key not in self.functions):
            return RuleBroken(rules.OBJECT_NOT_FOUND, f"no {name} on {key}")
        if key in self.vgpus:
            return RuleBroken(rules.INVALID_OPERATION, f"{key} is used")
        status = self._pool().status(wanted)
        return RuleBroken(status, f"{name} beside {sorted(self.vgpus.values())}") if status else None

    def create(self, name: str, key: str, uuid: str | None = None) -> None:
        """Create a vGPU. Raises RuleBroken where the resource manager would refuse."""
        broken = self.refusal(name, key)
        if broken is not None:
            raise broken
        if self.is_mixed:
            self.starts[key] = self.places_of(name)[0]
        self.vgpus[key] = name
        if self.sharing == "mdev-vf":
            self.uuids[key] = uuid or f"00000000-0000-4000-8000-{len(self.uuids):012d}"

    def delete(self, key: str) -> None:
        """Delete the vGPU of a VF, or by UUID."""
        del self.vgpus[key]
        self.starts.pop(key, None)
        self.uuids.pop(key, None)

    def places_of(self, name: str) -> list[int]:
        """The creatable placement ids of a type, in mixed-size mode."""
        wanted = _card_type(self.board.key, name)
        assert wanted is not None
        return self._pool().creatable(wanted)

    def _pool(self) -> rules.Pool:
        pairs = []
        for key, name in self.vgpus.items():
            known = _card_type(self.board.key, name)
            assert known is not None
            pairs.append((Vgpu(self.address, key, known.type_id, self.starts.get(key, 0)), known))
        return rules.Pool(tuple(pairs), self.is_mixed)

    def can_create(self, name: str) -> bool:
        """True if one more of this type could be created anywhere on the card."""
        key = next((one for one in self.functions if one not in self.vgpus), None) if self.on_vfs else "a-new-uuid"
        return key is not None and self.refusal(name, key) is None

    def creatable(self, one: catalog.CatalogType) -> int:
        if not self.can_create(one.name):
            return 0
        if self.is_mixed:
            end = left = 0
            for start in self.places_of(one.name):
                if start >= end:
                    left, end = left + 1, start + one.fb_mib // 1024
            return min(left, len(self.functions) - len(self.vgpus))
        left = one.max_instances - len(self.vgpus)
        return min(left, len(self.functions) - len(self.vgpus)) if self.on_vfs else left

    def type_id(self, one: catalog.CatalogType) -> str:
        return str(one.type_id) if self.sharing == "vf-profile" else f"nvidia-{one.type_id}"

    def facts(self) -> Gpu:
        """The card as an agent reads it now."""
        kinds = {"passthrough": (), "vf": ("vf",)}.get(self.sharing, (self.sharing,))
        whole = not self.vf_count and not self.vgpus
        bus = self.address[5:7]
        mdevs = []
        if self.sharing == "mdev":
            mdevs = [Mdev(uuid, self.address, self._id_of(name), 40) for uuid, name in self.vgpus.items()]
        elif self.sharing == "mdev-vf":
            mdevs = [Mdev(self.uuids[vf], vf, self._id_of(name), 40) for vf, name in self.vgpus.items()]
        group = int(bus, 16)
        vgpu_kind = self.sharing in ("mdev", "mdev-vf", "vf-profile")
        return Gpu(
            address=self.address,
            vendor_id=self.board.pci[:4],
            device_id=self.board.pci[5:],
            subsystem_id=self.board.subsystems[0] if self.board.subsystems else None,
            pci_class="030200",
            name=self.board.name,
            uuid=None,
            driver="nvidia" if self.board.vendor == "nvidia" else "xe",
            iommu_group=group,
            iommu_group_members=(self.address,),
            numa_node=self.numa_node,
            local_cpus="0-15",
            companions=(),
            sharing=(("passthrough",) if whole else ()) + kinds,
            total_vfs=self.vf_count or ((self.board.sriov and self.board.sriov.totalvfs) or 0),
            vfs=tuple(self._vf(number, address) for number, address in enumerate(self.functions)),
            types=tuple(self._type(one) for one in self.types()) if vgpu_kind else (),
            mdevs=tuple(mdevs),
            bars_bytes=(16 << 20, (self.board.bar1_mib or 256) << 20),
            reset_methods=("flr", "bus"),
            memory_mib=self.board.memory_reported_mib or self.board.memory_mib,
            mig_mode=None,
            heterogeneous=True if self.is_mixed else None,
            vf_device_id=self._vf_device_id() if self.vf_count else None,
        )

    def _vf_device_id(self) -> str:
        sriov = self.board.sriov
        return (sriov.vf_pci if sriov and sriov.vf_pci else self.board.pci)[5:]

    def _id_of(self, name: str) -> str:
        known = catalog.type_by_name(self.board, name)
        assert known is not None
        return self.type_id(known)

    def _vf(self, number: int, address: str) -> VirtualFunction:
        name = self.vgpus.get(address)
        on_profile = self.sharing == "vf-profile" and name is not None
        return VirtualFunction(
            address=address,
            number=number,
            driver="nvidia" if self.board.vendor == "nvidia" else None,
            iommu_group=100 + number,
            current_type=self._id_of(name) if on_profile and name else None,
            mdev_uuid=self.uuids.get(address),
        )

    def _type(self, one: catalog.CatalogType) -> VgpuType:
        return VgpuType(
            type_id=self.type_id(one),
            name=one.name,
            full_name=one.full_name or one.name,
            framebuffer_mib=one.fb_mib,
            max_instances=one.max_instances,
            creatable=self.creatable(one),
            creatable_starts=tuple(self.places_of(one.name)) if self.is_mixed else None,
            placement_size=one.fb_mib // 1024 if self.is_mixed else 0,
        )


def with_audio(gpu: Gpu, driver: str | None = "snd_hda_intel") -> Gpu:
    """The card with an audio function in its IOMMU group."""
    audio = gpu.address[:-1] + "1"
    return replace(
        gpu,
        companions=(CompanionFunction(audio, "040300", driver, gpu.iommu_group),),
        iommu_group_members=(gpu.address, audio),
    )


def qemu(pid: int = 4711) -> Holder:
    """A QEMU that holds a device."""
    return Holder(pid, "qemu-system-x86")
