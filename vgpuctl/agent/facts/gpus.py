# SPDX-License-Identifier: Apache-2.0
"""Every GPU of the host with all that hangs on it. A part that cannot be read is a line in the GPU's problems."""

from functools import partial
from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from vgpuctl.agent.facts import (
    clock_notes,
    display,
    fabric,
    iommu,
    mdev,
    mig,
    nvidia,
    pci,
    scheduler,
    sharing,
    sriov,
    sriov_admin,
    topology,
    vf_notes,
    vgpu_config,
    vgpu_params,
    vgpu_room,
)
from vgpuctl.agent.facts.holders import OpenNodes
from vgpuctl.agent.facts.nvml_gpus import NvmlGpu
from vgpuctl.agent.facts.vgpu_types import Description
from vgpuctl.agent.host import Host
from vgpuctl.agent.mistakes import guarded
from vgpuctl.agent.nvml import MIB
from vgpuctl.agent.wire import vf_health
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import (
    CompanionFunction,
    Gpu,
    Mdev,
    MigFacts,
    SchedulerFacts,
    UnreadFunction,
    VgpuType,
    VirtualFunction,
)
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.agent.wire.tuning import GPU_CLOCKS, MEMORY_CLOCKS, ClockDomain, Clocks, GpuTuning
from vgpuctl.agent.wire.values import dataclass, field, replace

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

T = TypeVar("T")
M = TypeVar("M")


@dataclass(frozen=True)
class Shared:
    """Facts that all GPUs of one reading share: open nodes, every mdev, data of NVML and vgpuConfig.xml.

    schedulers, clocks: by address, as they were set last. uses: by VF, the number of its last use. problems: of what
    could not be read, which then is a problem of every GPU.
    """

    nodes: OpenNodes
    mdevs: Tuple[mdev.ActiveMdev, ...]
    nvml: Optional[Mapping[str, NvmlGpu]]
    vgpu_config: "Optional[Element]"
    vgpu_config_problem: Optional[str] = None
    unread_mdevs: Tuple[mdev.UnreadMdev, ...] = ()
    schedulers: Mapping[str, SchedulerFacts] = field(default_factory=dict)
    uses: Mapping[str, int] = field(default_factory=dict)
    clocks: Mapping[str, Clocks] = field(default_factory=dict)
    problems: Tuple[str, ...] = ()


def read_shared(host: Host, nvml: Optional[Mapping[str, NvmlGpu]]) -> Shared:
    """Read what all GPUs share; nvml is None where NVML cannot be used.

    A failed read is a problem of every GPU; that of vgpuConfig.xml is a problem of NVIDIA's GPUs only.
    """
    config, problem = None, None
    try:
        config = vgpu_config.read(host)
    except Problem as error:
        problem = error.message
    problems: List[str] = []
    nothing: Tuple[List[mdev.ActiveMdev], List[mdev.UnreadMdev]] = ([], [])
    mdevs, unread = guarded(problems, "the mediated devices", lambda: mdev.read_every(host), nothing)
    schedulers, uses = scheduler.read(host), vf_notes.read_uses(host)
    clocks = clock_notes.read(host)
    nodes = OpenNodes(host)
    if nodes.problem is not None:
        problems.append(f"who holds a device cannot be told: {nodes.problem}")
    return Shared(nodes, tuple(mdevs), nvml, config, problem, tuple(unread), schedulers, uses, clocks, tuple(problems))


def read_gpus(host: Host, shared: Shared) -> Tuple[Tuple[Gpu, ...], Tuple[UnreadFunction, ...]]:
    """Read every GPU, by address, and return the functions beside them that could not be read.

    A function that is not one of a known vendor's GPUs is left out.
    """
    found: List[Gpu] = []
    unread: List[UnreadFunction] = []
    for address in pci.read_addresses(host):
        try:
            function = pci.read_gpu(host, address)
        except Problem as problem:
            unread.append(UnreadFunction(address, problem.message))
            continue
        if function is not None:
            found.append(_GpuReader(host, function, shared).read())
    return tuple(found), tuple(unread)


class _GpuReader:
    """Reads one GPU and collects what is wrong with it."""

    def __init__(self, host: Host, function: pci.Function, shared: Shared) -> None:
        self._host = host
        self._function = function
        self._address = function.address
        self._shared = shared
        self._nvml = (shared.nvml or {}).get(function.address)
        self._problems: List[str] = []
        self._unread: List[str] = []

    def read(self) -> Gpu:
        """Read the GPU; a part that cannot be read becomes a problem of it."""
        host, address, function, nvml = self._host, self._address, self._function, self._nvml
        group = self._part(lambda: iommu.read_group(host, address), None)
        members = self._part(lambda: iommu.read_members(host, group), ())
        companions = self._part(self._read_companions, ())
        total_vfs = self._part(lambda: sriov.read_total(host, address), 0)
        vfs = self._part(self._read_vfs, ())
        readable = tuple(vf for vf in vfs if vf.problem is None)
        mdevs = self._read_mdevs((address, *(vf.address for vf in vfs)))
        kinds: Tuple[str, ...]
        kinds, types = self._part(lambda: self._read_sharing(readable, mdevs), ((), ()))
        holders = self._part(lambda: self._shared.nodes.holders_of_function(address), ())
        users = self._part(lambda: self._shared.nodes.users(address), ())
        mig_facts = self._part(self._read_mig, None)
        self._check(total_vfs, vfs)
        strangers = self._part(lambda: self._find_strangers(members, companions), None)
        is_shared = bool(vfs or mdevs or holders or users or (mig_facts is not None and mig_facts.current))
        is_alone = group is not None and strangers == () and not any(_is_in_use(one) for one in companions)
        if is_alone and not is_shared:
            kinds = (str(Sharing.PASSTHROUGH), *kinds)
        information = self._part(lambda: nvidia.read_information(host, address), {})
        example = self._part(lambda: pci.read(host, readable[0].address) if readable else None, None)
        gpu = Gpu(
            address=address,
            vendor_id=function.vendor_id,
            device_id=function.device_id,
            subsystem_id=function.subsystem_id,
            pci_class=function.pci_class,
            name=(nvml.name if nvml else None) or information.get("Model"),
            uuid=(nvml.uuid if nvml else None) or nvidia.uuid_of(information),
            driver=function.driver,
            iommu_group=group,
            iommu_group_members=members,
            numa_node=self._part(lambda: pci.read_numa_node(host, address), None),
            local_cpus=self._part(lambda: host.read_optional(f"{pci.folder(address)}/local_cpulist") or None, None),
            companions=companions,
            sharing=kinds,
            total_vfs=total_vfs,
            vfs=vfs,
            types=types,
            mdevs=mdevs,
            bars_bytes=self._part(lambda: pci.read_bars(host, address), ()),
            reset_methods=self._part(lambda: pci.read_reset_methods(host, address), ()),
            memory_mib=self._part(self._read_memory_mib, None),
            mig_mode=None if mig_facts is None else _mode(mig_facts.current),
            holders=holders,
            users=users,
            mig=mig_facts,
            heterogeneous=nvml.heterogeneous if nvml else None,
            scheduler=scheduler.completed(nvml.scheduler, self._shared.schedulers.get(address)) if nvml else None,
            utilisation_percent=self._part(self._read_utilisation, None),
            strangers=strangers,
            displays=self._part(lambda: display.read(host, address), ()),
            persistence=self._part(lambda: self._shared.nodes.persistence(address), ()),
            topology=self._part(lambda: topology.read(host, address, nvml.topology if nvml else None), None),
            vf_device_id=example.device_id if example else None,
            vf_subsystem_id=example.subsystem_id if example else None,
            migration=nvml.migration if nvml else None,
            abilities=nvml.abilities if nvml else None,
            pf_params=self._part(lambda: self._read_own_params(None), None),
            tuning=self._read_tuning(),
        )
        # After the last part was read: each of them can have a problem.
        problems, unread = tuple(dict.fromkeys(self._problems)), tuple(dict.fromkeys(self._unread))
        return replace(gpu, problems=problems, unread=unread)

    def _part(self, read: Callable[[], T], missing: M) -> Union[T, M]:
        """Read one part; when that fails the GPU carries the problem, so nobody takes `missing` for the truth."""
        try:
            return read()
        except Problem as problem:
            self._note_unread(problem.message)
        except ValueError as error:
            self._note_unread(f"{self._address}: sysfs has an unexpected value: {error}")
        return missing

    def _note_unread(self, text: str) -> None:
        self._problems.append(text)
        self._unread.append(text)

    def _read_companions(self) -> Tuple[CompanionFunction, ...]:
        nodes = self._shared.nodes
        return tuple(
            CompanionFunction(
                other.address,
                other.pci_class,
                other.driver,
                iommu.read_group(self._host, other.address),
                nodes.holders_of_function(other.address),
                nodes.users_of_sound(other.address),
            )
            for other in pci.read_companions(self._host, self._address)
        )

    def _find_strangers(self, members: Tuple[str, ...], companions: Tuple[CompanionFunction, ...]) -> Tuple[str, ...]:
        """Return the endpoints in the groups of all functions of the card that are not the card's."""
        card = (self._address, *(companion.address for companion in companions))
        everyone = set(members)
        for companion in companions:
            everyone.update(iommu.read_members(self._host, companion.iommu_group))
        return tuple(iommu.find_strangers(self._host, tuple(sorted(everyone)), card))

    def _read_vfs(self) -> Tuple[VirtualFunction, ...]:
        parents = {device.parent: device.uuid for device in self._shared.mdevs}
        broken = {device.parent: device for device in self._shared.unread_mdevs}
        found = []
        for number, address in sriov.read_functions(self._host, self._address):
            try:
                if address in broken:
                    raise Problem(ProblemCode.UNREADABLE, broken[address].problem)
                vf = self._read_vf(number, address, parents.get(address))
                found.append(replace(vf, last_use=self._shared.uses.get(address, 0)))
            except (Problem, ValueError) as error:
                text = f"VF {address} could not be read: {error}"
                self._unread.append(text)
                uuid = broken[address].uuid if address in broken else parents.get(address)
                found.append(VirtualFunction(address, number, None, None, mdev_uuid=uuid, problem=text))
        return tuple(found)

    def _read_vf(self, number: int, address: str, uuid: Optional[str]) -> VirtualFunction:
        host, nodes = self._host, self._shared.nodes
        current, offers_types = sharing.read_vf(host, address)
        holders = nodes.holders_of_function(address)
        driver = pci.read_driver(host, address)
        if uuid is not None:
            holders += nodes.holders_of_mdev(uuid)
        return VirtualFunction(
            address,
            number,
            driver,
            iommu.read_group(host, address),
            current,
            uuid,
            holders,
            offers_types=offers_types,
            vgpu_params=self._read_params(number, address, current),
            migration=sriov.read_migration(host, address, driver),
            first_params=self._first_params(address),
        )

    def _read_params(self, number: int, address: str, current: Optional[str]) -> Optional[str]:
        if current is not None:
            return vgpu_params.read(self._host, pci.folder(address))
        return self._read_own_params(number)

    def _read_own_params(self, number: Optional[int]) -> Optional[str]:
        return sriov_admin.read(self._host, self._address, number) if self._has_vf_params() else None

    def _first_params(self, address: str) -> Optional[str]:
        first = sriov_admin.read_first(self._host) if self._has_vf_params() else {}
        return sriov_admin.write(first[address]) if address in first else None

    def _has_vf_params(self) -> bool:
        return self._function.vendor_id != pci.NVIDIA and sriov_admin.is_there(self._host, self._address)

    def _read_mdevs(self, parents: Sequence[str]) -> Tuple[Mdev, ...]:
        return tuple(
            Mdev(
                device.uuid,
                device.parent,
                device.type_id,
                device.iommu_group,
                self._part(partial(self._shared.nodes.holders_of_mdev, device.uuid), ()),
                self._part(partial(vgpu_params.read, self._host, f"{mdev.BUS}/{device.uuid}"), None),
            )
            for device in self._shared.mdevs
            if device.parent in parents
        )

    def _read_sharing(
        self, vfs: Sequence[VirtualFunction], mdevs: Sequence[Mdev]
    ) -> Tuple[Tuple[str, ...], Tuple[VgpuType, ...]]:
        """Probe how the GPU can be shared now, and with what types."""
        host, address, nvml = self._host, self._address, self._nvml
        kinds, types = sharing.read_offered(
            host,
            address,
            self._function.vendor_id,
            vfs,
            mdevs,
            self._described_types(),
            nvml.memory_mib if nvml else None,
            vgpu_room.read(host, address, nvml, self._shared.nodes),
            self._unread.append,
        )
        return kinds, tuple(vgpu_room.with_starts(types, nvml))

    def _described_types(self) -> Dict[str, Description]:
        """Return what NVML says of the GPU's types, and vgpuConfig.xml where NVML is silent."""
        if self._function.vendor_id != pci.NVIDIA:
            return {}
        if self._shared.vgpu_config_problem is not None:
            self._problems.append(self._shared.vgpu_config_problem)
        config = self._shared.vgpu_config
        configured = vgpu_config.configured_types(config, self._function) if config is not None else {}
        found = {
            type_id: Description(each.full_name, each.framebuffer_mib, each.max_instances)
            for type_id, each in configured.items()
        }
        for each in self._nvml.types if self._nvml else ():
            known = found.get(each.type_id)
            found[each.type_id] = Description(
                each.full_name if known is None or each.full_name != each.type_id else known.full_name,
                each.framebuffer_mib or (known.framebuffer_mib if known else None),
                each.max_instances or (known.max_instances if known else None),
                each.display,
                is_sure=each.full_name != each.type_id,
            )
        return found

    def _read_mig(self) -> Optional[MigFacts]:
        if self._nvml is None or self._nvml.mig is None:
            return None
        for problem in self._nvml.mig.problems:
            self._note_unread(f"{self._address}: {problem}")
        return mig.read(self._host, self._address, self._nvml.mig, self._shared.nodes)

    def _read_tuning(self) -> Optional[GpuTuning]:
        nvml = self._nvml
        if nvml is None or nvml.tuning is None:
            return None
        return replace(
            nvml.tuning,
            locked_clocks_mhz=self._locked(GPU_CLOCKS, nvml.sm_clock_mhz),
            locked_memory_clocks_mhz=self._locked(MEMORY_CLOCKS, nvml.memory_clock_mhz),
        )

    def _locked(self, domain: ClockDomain, clock_mhz: Optional[int]) -> Optional[Clocks]:
        noted = self._shared.clocks.get(clock_notes.key_of(self._address, domain))
        return clock_notes.confirmed(noted, clock_mhz)

    def _read_memory_mib(self) -> Optional[int]:
        if self._nvml is not None and self._nvml.memory_mib is not None:
            return self._nvml.memory_mib
        # amdgpu only.
        text = self._host.read_optional(f"{pci.folder(self._address)}/mem_info_vram_total")
        return None if text is None else int(text) // MIB

    def _read_utilisation(self) -> Optional[int]:
        if self._nvml is not None:
            return self._nvml.utilisation_percent
        # amdgpu only.
        text = self._host.read_optional(f"{pci.folder(self._address)}/gpu_busy_percent")
        return None if text is None else int(text)

    def _check(self, total_vfs: int, vfs: Sequence[VirtualFunction]) -> None:
        """Note what makes the GPU unfit for a new VM (reference 9)."""
        address, host = self._address, self._host
        for text in self._shared.problems:
            self._note_unread(text)
        for device in self._shared.unread_mdevs:
            if device.parent in (None, address):
                self._note_unread(device.problem)
        count = self._part(lambda: sriov.read_count(host, address), 0)
        if count != len(vfs):
            self._note_unread(f"{address}: {count} VFs are enabled but {len(vfs)} can be seen")
        if self._function.vendor_id == pci.NVIDIA and self._function.driver == nvidia.PF_STUB:
            self._problems.append(
                f"{address} was left on {nvidia.PF_STUB} by an interrupted sriov-manage; "
                "setting its VF count again repairs it"
            )
        nvml = self._nvml
        for text in nvml.problems if nvml is not None else ():
            self._note_unread(f"{address}: {text}")
        self._unread.extend(f"{address}: {text}" for text in (nvml.notes if nvml is not None else ()))
        if nvml is not None and nvml.mig is not None and nvml.mig.pending != nvml.mig.current:
            self._problems.append(
                f"{address}: MIG mode is {_mode(nvml.mig.current)} and becomes {_mode(nvml.mig.pending)} "
                "at the next reset"
            )
        problem = self._part(lambda: fabric.find_problem(host, nvml.topology.fabric if nvml else None), None)
        if problem is not None:
            self._problems.append(f"{address}: {problem}")
        if nvml is None and self._shared.nvml is not None and self._function.driver == nvidia.DRIVER:
            self._note_unread(f"{address} is on the driver nvidia, but NVML does not show it")
        if self._shared.nodes.unreadable:
            self._note_unread(
                f"{address}: who holds it cannot be seen: {self._shared.nodes.unreadable} processes are hidden "
                "from the agent (set ansible_become)"
            )
        if total_vfs and count and self._function.driver is None:
            self._problems.append(f"{address} has VFs but no driver; setting its VF count again repairs it")
        self._check_vfs(vfs)

    def _check_vfs(self, vfs: Sequence[VirtualFunction]) -> None:
        """Note a card without any VF that can carry a vGPU. A single sick VF is only skipped when a VF is chosen."""
        if self._function.vendor_id != pci.NVIDIA or self._function.driver != nvidia.DRIVER or not vfs:
            return
        states = [vf_health.state_of(vf.driver, vf.offers_types) for vf in vfs if vf.problem is None]
        if states and vf_health.VfState.HEALTHY not in states:
            self._problems.append(
                f"{self._address}: no VF can carry a vGPU: {vf_health.describe(states, len(vfs))}; "
                "setting its VF count again repairs it"
            )


def _is_in_use(companion: CompanionFunction) -> bool:
    return bool(companion.holders or companion.users or companion.iommu_group is None)


def _mode(is_on: bool) -> str:
    return "enabled" if is_on else "disabled"
