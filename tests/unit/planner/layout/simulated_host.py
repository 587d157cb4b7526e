# SPDX-License-Identifier: Apache-2.0
"""A host that takes a layout's steps by the rules of reference 3, 5 and 9, and refuses what a real one refuses.

Written apart from the planner it judges. `facts()` is what an agent would read.
"""

from dataclasses import replace

from tests.unit.fleet_factory import host_facts
from tests.unit.lab.mig_card import Card
from vgpuctl import catalog
from vgpuctl.agent.wire.cdi import CdiFacts, SetContainerGpus
from vgpuctl.agent.wire.fabric import PARTITION_STEPS
from vgpuctl.agent.wire.facts import (
    Gpu,
    GpuInstance,
    Holder,
    HostFacts,
    Mdev,
    MigFacts,
    SchedulerFacts,
    ServiceFacts,
    VgpuType,
    VirtualFunction,
)
from vgpuctl.agent.wire.memory import HugepageFacts
from vgpuctl.agent.wire.network_function import SetNetworkFunction
from vgpuctl.agent.wire.sharing import CreateMdev, DeleteMdev, SetVfProfile
from vgpuctl.agent.wire.steps import (
    BindDriver,
    CreateGpuInstance,
    DestroyGpuInstance,
    ResetGpu,
    RestartFabricManager,
    SetFabricMode,
    SetHeterogeneousMode,
    SetHugepages,
    SetMigMode,
    SetOvnChassis,
    SetOvnDaemon,
    SetServiceActive,
    SetUplinkBridge,
    SetVgpuScheduler,
    SetVirtualFunctions,
    Step,
    TakeOutUplink,
)
from vgpuctl.agent.wire.tuning import (
    TUNING_STEPS,
    UNLOCKED,
    ClockRun,
    GpuTuning,
    KeepPowerLimit,
    SetEccMode,
    SetGpuClocks,
    SetMemoryClocks,
    SetPowerLimit,
    TuningStep,
)

VF_COUNTS = {"nvidia-a40": 32, "nvidia-a100-pcie-40gb": 16, "nvidia-rtx-pro-6000-blackwell-server": 48}

TUNING = GpuTuning(
    power_limit_mw=300_000,
    power_default_mw=300_000,
    power_limits_mw=(100_000, 300_000),
    clocks=(ClockRun(210, 1740, 15),),
    memory_clocks=(ClockRun(405, 7251, 6846),),
    ecc=True,
    ecc_pending=True,
    compute_mode="default",
)


class Refused(Exception):
    """The host's answer instead of doing the step."""


class SimulatedGpu:
    """One GPU of a board. needs_reset: a change of MIG stays pending, as on an Ampere that somebody watches."""

    def __init__(self, board: str, address: str = "0000:41:00.0", *, needs_reset: bool = False) -> None:
        self.board = catalog.board(board)
        self.address = address
        self.needs_reset = needs_reset
        self.is_nvidia = self.board.vendor == "nvidia"
        self.driver: str | None = "nvidia" if self.is_nvidia else "xe"
        self.total_vfs = VF_COUNTS.get(board, (self.board.sriov.totalvfs or 7) if self.board.sriov else 0)
        self.vf_count = 0
        table = catalog.mig_table(self.board)
        self.card = Card(table) if table else None
        self.mig = self.mig_pending = False
        self.heterogeneous = False
        self.instance_modes: dict[int, bool] = {}
        self.scheduler = SchedulerFacts("best-effort")
        self.vf_types: dict[str, str] = {}
        self.mdevs: dict[str, tuple[str, str]] = {}
        self.holders: dict[str, Holder] = {}
        self.tuning = TUNING

    @property
    def on_vfs(self) -> bool:
        return self.board.interface == "sriov-vf"

    @property
    def functions(self) -> list[str]:
        numbers = [(int(self.address[5:7], 16) << 8) + 4 + index for index in range(self.vf_count)]
        return [f"0000:{one >> 8:02x}:{one >> 3 & 31:02x}.{one & 7}" for one in numbers]

    def hold(self, device: str) -> None:
        """Let a QEMU have the function or mdev open."""
        self.holders[device] = Holder(4711, "qemu-system-x86")

    def wipe(self) -> None:
        """State that a change of VFs or a reset removes."""
        if self.holders or (self.card and any(one.in_use for one in self.card.instances)):
            raise Refused("in use by another client")
        if self.vf_types or self.mdevs:
            raise Refused("vGPUs exist")
        self.heterogeneous, self.instance_modes = False, {}
        self.tuning = replace(TUNING, ecc=self.tuning.ecc, ecc_pending=self.tuning.ecc_pending)
        if self.card:
            self.card.instances.clear()

    def facts(self) -> Gpu:
        has_driver = self.driver not in (None, "vfio-pci", "pci-pf-stub")
        nvidia = self.is_nvidia and has_driver
        vgpus = bool(self.vf_count) if self.on_vfs else True
        kind = ("vf-profile" if self.on_vfs else "mdev") if self.is_nvidia else "vf"
        return Gpu(
            address=self.address,
            vendor_id=self.board.pci[:4],
            device_id=self.board.pci[5:],
            subsystem_id=self.board.subsystems[0] if self.board.subsystems else None,
            pci_class="030200",
            name=self.board.name,
            uuid="GPU-11111111-2222-3333-4444-555555555555" if nvidia else None,
            driver=self.driver,
            iommu_group=1,
            iommu_group_members=(self.address,),
            numa_node=0,
            local_cpus=None,
            companions=(),
            sharing=(kind,) if vgpus else ("passthrough",),
            total_vfs=self.total_vfs,
            vfs=tuple(self._vf(number, address) for number, address in enumerate(self.functions)),
            types=self._types() if nvidia and vgpus else (),
            mdevs=tuple(Mdev(uuid, *what, 1, self._held(uuid)) for uuid, what in sorted(self.mdevs.items())),
            bars_bytes=(),
            reset_methods=("flr",),
            memory_mib=self.board.memory_mib,
            mig_mode=None,
            holders=self._held(self.address),
            mig=self._mig() if nvidia else None,
            heterogeneous=self.heterogeneous if nvidia and self.vf_count and not self.mig else None,
            scheduler=self.scheduler if nvidia and vgpus else None,
            tuning=self.tuning if nvidia else None,
        )

    def tune(self, step: TuningStep) -> None:
        """Take a step of the whole card by the rules of NVML."""
        found = self.tuning
        assert found.power_default_mw is not None and found.power_limits_mw is not None
        if isinstance(step, SetPowerLimit):
            limit = found.power_default_mw if step.limit_mw is None else step.limit_mw
            if not found.power_limits_mw[0] <= limit <= found.power_limits_mw[1]:
                raise Refused("power limit")
            self.tuning = replace(found, power_limit_mw=limit)
        elif isinstance(step, SetGpuClocks):
            if step.clocks_mhz != UNLOCKED and any(one not in range(210, 1741, 15) for one in step.clocks_mhz):
                raise Refused("clocks")
            self.tuning = replace(found, locked_clocks_mhz=step.clocks_mhz)
        elif isinstance(step, SetMemoryClocks):
            if step.clocks_mhz != UNLOCKED and not {405, 7251}.issuperset(step.clocks_mhz):
                raise Refused("memory clocks")
            self.tuning = replace(found, locked_memory_clocks_mhz=step.clocks_mhz)
        elif isinstance(step, SetEccMode):
            self.tuning = replace(found, ecc_pending=step.enabled)
        elif isinstance(step, KeepPowerLimit):
            raise Refused("a boot unit, which this host has not")
        elif self.mig:
            raise Refused("compute mode in MIG mode")
        else:
            self.tuning = replace(found, compute_mode=step.mode)

    def _held(self, device: str) -> tuple[Holder, ...]:
        return (self.holders[device],) if device in self.holders else ()

    def _vf(self, number: int, address: str) -> VirtualFunction:
        held = self._held(address)
        return VirtualFunction(address, number, self.driver, number, self.vf_types.get(address), holders=held)

    def _mig(self) -> MigFacts | None:
        if self.card is None:
            return None
        instances = [
            replace(one, heterogeneous=self.instance_modes.get(one.start, False))
            for one in sorted(self.card.instances, key=lambda one: one.start)
        ]
        return MigFacts(self.mig, self.mig_pending, tuple(instances))

    def _types(self) -> tuple[VgpuType, ...]:
        room = len(self.functions) - len(self.vf_types) if self.on_vfs else 16 - len(self.mdevs)
        return tuple(
            VgpuType(str(one.type_id), one.name, one.full_name or one.name, one.fb_mib, one.max_instances, room)
            for one in catalog.types_of(self.board)
            if one.is_mig_backed == self.mig and one.type_id is not None
        )


class SimulatedHost:
    """Its GPUs by address, services, and the pool of 2 MiB pages."""

    def __init__(self, *gpus: SimulatedGpu) -> None:
        self.gpus = {gpu.address: gpu for gpu in gpus}
        self.services = {"nvidia-vgpu-mgr.service": True, "dcgm.service": True, "nvsm.service": False}
        self.hugepages = 0
        self.containers: tuple[str, ...] = ()

    def facts(self) -> HostFacts:
        read = host_facts([gpu.facts() for gpu in self.gpus.values()])
        return replace(
            read,
            services=tuple(ServiceFacts(name, active) for name, active in sorted(self.services.items())),
            hugepages=(HugepageFacts(2048, self.hugepages, self.hugepages),),
            network_interfaces=("lo", "ens1"),
            cdi=CdiFacts(self.containers),
        )

    def shares(self) -> set[str]:
        """Every vGPU: here all are made by layouts."""
        return {device for gpu in self.gpus.values() for device in (*gpu.mdevs, *gpu.vf_types)}

    def take(self, step: Step) -> None:
        """Take one step as the agent would. Raises Refused."""
        if isinstance(step, SetServiceActive):
            self.services[step.name] = step.active
        elif isinstance(step, SetHugepages):
            self.hugepages = step.count
        elif isinstance(step, SetContainerGpus):
            if any(self.gpus[one].driver != "nvidia" or self.gpus[one].holders for one in step.gpus):
                raise Refused("the driver does not have it")
            self.containers = step.gpus
        elif isinstance(step, BindDriver):
            self._bind(step)
        elif isinstance(step, CreateMdev):
            self.gpus[step.parent].mdevs[step.uuid] = (step.parent, step.type_id)
        elif isinstance(step, DeleteMdev):
            for gpu in self.gpus.values():
                gpu.mdevs.pop(step.uuid, None)
        elif isinstance(step, SetVfProfile):
            self._set_type(step)
        elif isinstance(
            step,
            (
                SetOvnDaemon,
                SetOvnChassis,
                SetUplinkBridge,
                TakeOutUplink,
                SetFabricMode,
                RestartFabricManager,
                SetNetworkFunction,
                *PARTITION_STEPS,
            ),
        ):
            raise Refused(step.op)
        else:
            self._take_on_gpu(self.gpus[step.address], step)

    def _take_on_gpu(self, gpu: SimulatedGpu, step: Step) -> None:
        if gpu.driver in (None, "vfio-pci"):
            raise Refused(f"{step.op} on {gpu.driver}")
        if isinstance(step, SetVirtualFunctions):
            self._alone()
            if step.count not in (0, gpu.total_vfs) and gpu.is_nvidia:
                raise Refused("0 or all")
            gpu.wipe()
            gpu.vf_count = step.count
            gpu.driver = "nvidia" if gpu.is_nvidia else gpu.driver
        elif isinstance(step, (SetMigMode, ResetGpu)):
            self._alone()
            self._mig_mode(gpu, step)
        elif isinstance(step, (CreateGpuInstance, DestroyGpuInstance)):
            self._instance(gpu, step)
        elif isinstance(step, SetHeterogeneousMode):
            if not gpu.vf_count or gpu.mig != (step.gpu_instance_start is not None) or gpu.vf_types:
                raise Refused("heterogeneous mode")
            if step.enabled and gpu.scheduler.policy == "fixed-share":
                raise Refused("mixed sizes under fixed-share")
            if step.gpu_instance_start is None:
                gpu.heterogeneous = step.enabled
            else:
                gpu.instance_modes[step.gpu_instance_start] = step.enabled
        elif isinstance(step, TUNING_STEPS):
            gpu.tune(step)
        elif isinstance(step, SetVgpuScheduler):
            if gpu.holders:
                raise Refused("a VM runs")
            if step.policy == "fixed-share" and (gpu.heterogeneous or any(gpu.instance_modes.values())):
                raise Refused("fixed-share with mixed sizes")
            gpu.scheduler = SchedulerFacts(step.policy, step.time_slice_us)
        else:
            raise Refused(step.op)

    def _mig_mode(self, gpu: SimulatedGpu, step: SetMigMode | ResetGpu) -> None:
        if gpu.card is None:
            raise Refused("no MIG")
        if isinstance(step, ResetGpu):
            gpu.wipe()
            gpu.vf_count, gpu.mig = 0, gpu.mig_pending
            return
        gpu.mig_pending = step.enabled
        if gpu.mig == step.enabled:
            return
        if gpu.vf_count or gpu.card.instances:
            raise Refused("in use by another client")
        if gpu.needs_reset:
            raise Refused("pending")
        gpu.mig = step.enabled

    def _instance(self, gpu: SimulatedGpu, step: CreateGpuInstance | DestroyGpuInstance) -> None:
        if gpu.card is None or not gpu.mig:
            raise Refused("MIG is off")
        there = [one for one in gpu.card.instances if one.profile == step.profile]
        if isinstance(step, DestroyGpuInstance):
            gone: list[GpuInstance] = [one for one in there if one.start == step.start]
            if step.start is None:
                gone = there[step.count :]
            for one in gone:
                gpu.card.destroy(one.id)
                gpu.instance_modes.pop(one.start, None)
        elif step.start is not None:
            if all(one.start != step.start for one in there):
                gpu.card.create(step.profile, step.start)
            self._part(gpu.card, step, step.start)
        elif len(there) < step.count:
            start = next(iter(gpu.card.starts(step.profile)), None)
            if start is None:
                raise Refused(f"no room for {step.profile}")
            gpu.card.create(step.profile, start)
            self._part(gpu.card, step, start)

    @staticmethod
    def _part(card: Card, step: CreateGpuInstance, start: int) -> None:
        """Have the compute instances that a step asks for."""
        parts = step.compute or ((int(step.profile[0]),) if step.compute_instance else ())
        (index,) = [number for number, one in enumerate(card.instances) if one.start == start]
        one = card.instances[index]
        if parts and one.compute != parts:
            if one.in_use:
                raise Refused(f"{one.profile} is in use")
            card.instances[index] = replace(one, compute_instances=len(parts), compute=parts)

    def _bind(self, step: BindDriver) -> None:
        gpu = self.gpus[step.addresses[0]]
        if gpu.vf_count or gpu.holders or gpu.mdevs:
            raise Refused("busy")
        gpu.driver = step.driver or ("nvidia" if gpu.is_nvidia else "xe")

    def _set_type(self, step: SetVfProfile) -> None:
        gpu = next(gpu for gpu in self.gpus.values() if step.address in gpu.functions)
        if step.type_id == "0":
            gpu.vf_types.pop(step.address, None)
        elif step.address in gpu.vf_types:
            raise Refused("EBUSY")
        else:
            gpu.vf_types[step.address] = step.type_id

    def _alone(self) -> None:
        if self.services["dcgm.service"]:
            raise Refused("dcgm has the GPU open")
