# SPDX-License-Identifier: Apache-2.0
"""A host of emulated GPUs that does the planner's steps, as the agent and the driver would."""

from collections.abc import Iterable

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import host
from vgpuctl.agent.wire.sharing import CreateMdev, DeleteMdev, SetVfProfile
from vgpuctl.agent.wire.steps import BindDriver, ResetFunction, Step
from vgpuctl.model.placement import HostCapacity


class EmulatedHost:
    """One host; every refusal of its GPUs is a RuleBroken."""

    def __init__(self, name: str, gpus: Iterable[EmulatedGpu]) -> None:
        self.name = name
        self.gpus = list(gpus)

    def read(self) -> HostCapacity:
        """The host as it is now."""
        return host(self.name, *self.gpus)

    def apply(self, steps: Iterable[Step]) -> None:
        """Do the steps in order."""
        for step in steps:
            match step:
                case CreateMdev(parent=parent, type_id=type_id, uuid=uuid):
                    gpu = self._gpu_of(parent)
                    gpu.create(self._name(gpu, type_id), parent if gpu.on_vfs else uuid, uuid)
                case DeleteMdev(uuid=uuid):
                    gpu, key = self._mdev(uuid)
                    gpu.delete(key)
                case SetVfProfile(address=address, type_id="0"):
                    self._gpu_of(address).delete(address)
                case SetVfProfile(address=address, type_id=type_id):
                    gpu = self._gpu_of(address)
                    gpu.create(self._name(gpu, type_id), address)
                case BindDriver() | ResetFunction():
                    pass
                case _:
                    raise AssertionError(step)

    def _gpu_of(self, function: str) -> EmulatedGpu:
        return next(gpu for gpu in self.gpus if function == gpu.address or function in gpu.functions)

    def _mdev(self, uuid: str) -> tuple[EmulatedGpu, str]:
        for gpu in self.gpus:
            if uuid in gpu.vgpus:
                return gpu, uuid
            for key, other in gpu.uuids.items():
                if other == uuid:
                    return gpu, key
        raise AssertionError(f"no mdev {uuid}")

    def _name(self, gpu: EmulatedGpu, type_id: str) -> str:
        return next(one.name for one in gpu.types() if gpu.type_id(one) == type_id)
