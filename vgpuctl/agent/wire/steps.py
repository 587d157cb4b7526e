# SPDX-License-Identifier: Apache-2.0
"""The wanted changes an agent can be asked for, each with its undo's shape. Python 3.9, standard library only.

A step travels as {"op": OP, **fields}. Every step is idempotent: a second time it reports no change.
"""

from typing import ClassVar, Optional, Tuple, Union

from vgpuctl.agent.wire.cdi import SetContainerGpus
from vgpuctl.agent.wire.fabric import PARTITION_STEPS, ActivatePartition, DeactivatePartition, RestorePartitions
from vgpuctl.agent.wire.network_function import SetNetworkFunction
from vgpuctl.agent.wire.sharing import VGPU_STEPS, SetFunctionParams, SetVfParams, StopFunction, VgpuStep
from vgpuctl.agent.wire.tuning import TUNING_STEPS, TuningStep
from vgpuctl.agent.wire.values import dataclass


@dataclass(frozen=True)
class SetVirtualFunctions:
    """Bring the VF count of a physical function to `count` (0 or all for NVIDIA: sriov-manage has no count)."""

    op: ClassVar[str] = "sriov.set"
    address: str
    count: int


@dataclass(frozen=True)
class BindDriver:
    """Bind functions to `driver`, or to the driver that the kernel picks when None (driver_override cleared)."""

    op: ClassVar[str] = "driver.bind"
    addresses: Tuple[str, ...]
    driver: Optional[str]


@dataclass(frozen=True)
class ResetFunction:
    """Reset a function that nobody holds; the change says by which method."""

    op: ClassVar[str] = "function.reset"
    address: str


@dataclass(frozen=True)
class HashRom:
    """Read the expansion ROM of a function and say its SHA-256; nothing of the device changes."""

    op: ClassVar[str] = "function.hash-rom"
    address: str


@dataclass(frozen=True)
class SetMigMode:
    """Switch MIG of one GPU on or off (reference 5.1; NVML `nvmlDeviceSetMigMode`).

    Nothing is reset by this step: where the GPU answers that the mode is pending, the agent raises Problem
    "mig-mode-pending" and leaves it pending; ResetGpu commits it. Switching off is refused while VFs are enabled.
    Nothing changes where current and pending mode are as wanted.
    """

    op: ClassVar[str] = "mig.set-mode"
    address: str
    enabled: bool


@dataclass(frozen=True)
class ResetGpu:
    """Reset a GPU through its own driver, as `nvidia-smi --gpu-reset` does, so that a pending MIG mode counts.

    Needs that no process has the GPU open. Every VF, GPU instance and vGPU of it is gone afterwards (reference 5.1).
    Nothing changes on a GPU without a pending MIG mode. For vfio-pci's function reset see ResetFunction.
    """

    op: ClassVar[str] = "gpu.reset"
    address: str


@dataclass(frozen=True)
class CreateGpuInstance:
    """Create a MIG GPU instance of `profile` (reference 5.2; NVML `nvmlDeviceCreateGpuInstanceWithPlacement`).

    start: the memory slot it begins at; None lets the driver choose, and the step then is done as soon as the GPU has
    `count` instances of this profile. With a start, the step changes nothing when an instance of the profile is there;
    anything else there is Problem "mig-placement-taken". compute_instance: also make one compute instance that fills
    it; instances for vGPUs go without (reference 5.3). compute: with a start, the compute slices of each compute
    instance instead, the largest first. An idle instance with other compute instances gets these, one in use is
    Problem "mig-instance-in-use". The driver chooses the instance's id: read it, never predict it.
    """

    op: ClassVar[str] = "mig.create"
    address: str
    profile: str
    start: Optional[int]
    count: int = 1
    compute_instance: bool = False
    compute: Tuple[int, ...] = ()


@dataclass(frozen=True)
class DestroyGpuInstance:
    """Destroy a GPU instance and its idle compute instances (reference 5.2).

    The instance is named by profile and start, since ids are the driver's. Without an instance at this start the step
    changes nothing; another profile there is Problem "mig-instance-differs", and one in use is Problem
    "mig-instance-in-use" with its processes. start None: idle instances of the profile go until `count` are left.
    """

    op: ClassVar[str] = "mig.destroy"
    address: str
    profile: str
    start: Optional[int]
    count: int = 0


@dataclass(frozen=True)
class SetHeterogeneousMode:
    """Switch mixed-size vGPUs on or off: `nvidia-smi vgpu -i ID [-gi GI] -shm 1|0` (reference 3.3).

    After the VFs, before the first vGPU. gpu_instance_start: the GPU instance that begins at this memory slot instead
    of the whole GPU (boards with several vGPUs to an instance).
    """

    op: ClassVar[str] = "vgpu.set-heterogeneous"
    address: str
    enabled: bool
    gpu_instance_start: Optional[int] = None


@dataclass(frozen=True)
class SetVgpuScheduler:
    """Set the vGPU scheduler of one GPU: NVML `nvmlDeviceSetVgpuSchedulerState` (reference 3.4).

    policy: `best-effort`, `equal-share` or `fixed-share`. time_slice_us: None for the driver's default; given, the
    adaptive round robin is off. Refused while a VM runs on the GPU.
    """

    op: ClassVar[str] = "vgpu.set-scheduler"
    address: str
    policy: str
    time_slice_us: Optional[int] = None


@dataclass(frozen=True)
class SetServiceActive:
    """Start or stop a systemd service by its full unit name, and wait until it is so (reference 9, rows 6 and 20).

    It is neither enabled nor disabled. A unit the host does not have is Problem "no-such-service" when it should be
    active, and no change otherwise.
    """

    op: ClassVar[str] = "service.set-active"
    name: str
    active: bool


@dataclass(frozen=True)
class SetHugepages:
    """Bring the host's pool of huge pages of one size to `count`, over all NUMA nodes.

    Writes /sys/kernel/mm/hugepages/hugepages-SIZEkB/nr_hugepages. The kernel gives as many as it can without an error,
    so the read-back decides: fewer is Problem "hugepages-short" (fragmented memory; boot arguments get them).
    """

    op: ClassVar[str] = "hugepages.set"
    size_kib: int
    count: int


@dataclass(frozen=True)
class SetFabricMode:
    """Write FABRIC_MODE and FABRIC_MODE_RESTART into Fabric Manager's configuration.

    mode: 0 for the host itself, 1 for VMs with whole GPUs, 2 for VMs with vGPUs. keeps_partitions: a restart of Fabric
    Manager keeps its partitions. Fabric Manager reads the file when it starts: RestartFabricManager has it read.
    """

    op: ClassVar[str] = "fabric.set-mode"
    mode: int
    keeps_partitions: bool


@dataclass(frozen=True)
class RestartFabricManager:
    """Have Fabric Manager run with its configuration, and wait until it answers.

    It is restarted where it does not run or was started before the configuration was written. That is Problem
    "fabric-in-use" while a VM has a GPU or a partition is active.
    """

    op: ClassVar[str] = "fabric.restart"


@dataclass(frozen=True)
class Chassis:
    """The host as OVN's chassis in Open vSwitch's database; empty text for unset values.

    remote: OVN's southbound databases, comma between them. encapsulation, address: of the tunnels. mappings:
    ovn-bridge-mappings, `NETWORK:BRIDGE` with commas. uses_tls: whether the certificate of wire.ovn is used.
    """

    system_id: str = ""
    remote: str = ""
    encapsulation: str = ""
    address: str = ""
    mappings: str = ""
    uses_tls: bool = False

    def __str__(self) -> str:
        words = (self.system_id, self.remote, self.encapsulation, self.address, self.mappings)
        return " ".join(word for word in words if word) or "none"


@dataclass(frozen=True)
class SetOvnDaemon:
    """Start or stop one part of OVN on the host, `switch` (Open vSwitch) or `controller` (ovn-controller).

    By systemd, and by the packages' own scripts where systemd does not run the host.
    """

    op: ClassVar[str] = "ovn.set-daemon"
    part: str
    active: bool


@dataclass(frozen=True)
class SetOvnChassis:
    """Bring the settings by which ovn-controller finds its databases and builds its tunnels to `chassis`.

    An integration bridge goes with them; a chassis without name has none.
    """

    op: ClassVar[str] = "ovn.set-chassis"
    chassis: Chassis


@dataclass(frozen=True)
class SetUplinkBridge:
    """Have the bridge `bridge` with `interface` in it and up; None deletes the bridge."""

    op: ClassVar[str] = "ovn.set-uplink"
    bridge: str
    interface: Optional[str]


@dataclass(frozen=True)
class TakeOutUplink:
    """Have `interface` in the bridge `bridge` no more; the bridge stays, for it was there before."""

    op: ClassVar[str] = "ovn.take-out-uplink"
    bridge: str
    interface: str


Step = Union[
    SetVirtualFunctions,
    VgpuStep,
    SetVfParams,
    SetFunctionParams,
    StopFunction,
    BindDriver,
    ResetFunction,
    HashRom,
    SetMigMode,
    ResetGpu,
    CreateGpuInstance,
    DestroyGpuInstance,
    SetHeterogeneousMode,
    SetVgpuScheduler,
    TuningStep,
    SetServiceActive,
    SetHugepages,
    SetFabricMode,
    RestartFabricManager,
    SetOvnDaemon,
    SetOvnChassis,
    SetUplinkBridge,
    TakeOutUplink,
    SetContainerGpus,
    ActivatePartition,
    DeactivatePartition,
    RestorePartitions,
    SetNetworkFunction,
]
STEPS = (
    SetVirtualFunctions,
    *VGPU_STEPS,
    SetVfParams,
    SetFunctionParams,
    StopFunction,
    BindDriver,
    ResetFunction,
    HashRom,
    SetMigMode,
    ResetGpu,
    CreateGpuInstance,
    DestroyGpuInstance,
    SetHeterogeneousMode,
    SetVgpuScheduler,
    *TUNING_STEPS,
    SetServiceActive,
    SetHugepages,
    SetFabricMode,
    RestartFabricManager,
    SetOvnDaemon,
    SetOvnChassis,
    SetUplinkBridge,
    TakeOutUplink,
    SetContainerGpus,
    *PARTITION_STEPS,
    SetNetworkFunction,
)


@dataclass(frozen=True)
class Change:
    """The result of a step. before/after: the value read before and read back after, as text."""

    op: str
    target: str
    before: Optional[str]
    after: Optional[str]
    changed: bool
