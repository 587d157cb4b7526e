# SPDX-License-Identifier: Apache-2.0
"""What NVML tells about moves: of each GPU and its running vGPUs, and the comparison with another host's GPU."""

import re
from base64 import b64decode, b64encode
from typing import Any, Callable, List, Optional, Tuple

from vgpuctl.agent import nvml_metadata
from vgpuctl.agent.host import Host
from vgpuctl.agent.nvml import Nvml, required, text
from vgpuctl.agent.wire.bus_id import normalise_bus_id
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.migration import GpuMigration, VgpuComparison, VgpuCompatibility, VgpuMigration
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import replace

# Numbers of nvmlDeviceVgpuCapability_t.
_READ_DEVICE_BUFFER_BW = 3
_WRITE_DEVICE_BUFFER_BW = 4
_DEVICE_STREAMING = 5
_WARM_UPDATE = 8
_LONGEST_SIGNATURE = 4096
# A guest says it.
_VERSION = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,5}){1,4}")
_VF = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")


def read(nvml: Nvml, device: Any) -> GpuMigration:
    """Read one GPU that offers vGPUs. Raises NVMLError for a GPU that is lost."""
    library = nvml.library
    problems: List[str] = []
    note = problems.append

    def ask(what: str, function: Callable[..., Any], *arguments: object) -> Any:
        return nvml.part(note, what, lambda: nvml.optional(function, *arguments), None)

    def capability(number: int) -> Optional[int]:
        found = ask(f"its vGPU capability {number}", library.nvmlDeviceGetVgpuCapabilities, device, number)
        return None if found is None else int(found)

    data = ask("its vGPU metadata", nvml_metadata.read_gpu, library, device)
    metadata = None if data is None else _parsed(note, "its vGPU metadata", nvml_metadata.gpu_metadata, data)
    ecc = ask("its ECC mode", library.nvmlDeviceGetEccMode, device)
    gsp = ask("the mode of its GSP firmware", library.nvmlDeviceGetGspFirmwareMode, device)
    streams, warm_update = capability(_DEVICE_STREAMING), capability(_WARM_UPDATE)
    signature = ask("its pGPU metadata", nvml_metadata.read_signature, library, device)
    return GpuMigration(
        metadata=None if metadata is None else _encoded(data),
        signature=signature[:_LONGEST_SIGNATURE] if signature else None,
        host_driver=None if metadata is None else _version(metadata.host_driver),
        versions=None if metadata is None else metadata.versions,
        can_migrate=None if metadata is None else metadata.can_migrate,
        read_mb_s=capability(_READ_DEVICE_BUFFER_BW) or None,
        write_mb_s=capability(_WRITE_DEVICE_BUFFER_BW) or None,
        streams=None if streams is None else bool(streams),
        warm_update=None if warm_update is None else bool(warm_update),
        ecc=None if ecc is None else bool(ecc[0]),
        gsp=None if gsp is None else bool(gsp[0]),
        vgpus=_read_vgpus(nvml, device, note),
        problems=tuple(problems),
    )


def compare(host: Host, comparison: VgpuComparison) -> VgpuCompatibility:
    """Ask this host's NVML whether one of its vGPUs can go to a GPU of another host. Raises Problem."""
    what = f"comparing a vGPU of {comparison.gpu} with another GPU"
    with required(host) as nvml:
        device = nvml.device(comparison.gpu)
        with nvml.refusals(what):
            active = nvml.library.nvmlDeviceGetActiveVgpus(device)
            wanted = [one for one in active if _name(nvml, one).is_of(comparison.vm_uuid, comparison.device)]
            if len(wanted) != 1:
                text_of = (
                    f"NVML has {len(wanted)} running vGPUs of VM {comparison.vm_uuid} on {comparison.gpu}, not one"
                )
                raise Problem(ProblemCode.NOT_FOUND, text_of)
            try:
                gpu = b64decode(comparison.metadata, validate=True)
                data = nvml_metadata.read_vgpu(nvml.library, wanted[0])
                return VgpuCompatibility(*nvml_metadata.compare(nvml.library, data, gpu))
            except ValueError as error:
                raise Problem(ProblemCode.UNEXPECTED_VALUE, f"{what}: {error}") from error


def _read_vgpus(nvml: Nvml, device: Any, note: Callable[[str], None]) -> Tuple[VgpuMigration, ...]:
    library = nvml.library
    active = nvml.part(note, "its vGPUs", lambda: nvml.optional(library.nvmlDeviceGetActiveVgpus, device), None)
    found: List[VgpuMigration] = []
    for instance in active or ():
        try:
            found.append(_read_vgpu(nvml, instance, note))
        except library.NVMLError as error:
            if error.value == library.NVML_ERROR_GPU_IS_LOST:
                raise
            # Its VM has ended meanwhile.
            if error.value != library.NVML_ERROR_NOT_FOUND:
                note(f"NVML does not tell a running vGPU: {error} (NVML {error.value})")
    return tuple(sorted(found, key=lambda one: (one.vm_uuid or "", one.device or "")))


def _read_vgpu(nvml: Nvml, instance: Any, note: Callable[[str], None]) -> VgpuMigration:
    library, found = nvml.library, _name(nvml, instance)
    what = f"the metadata of a vGPU of VM {found.vm_uuid}"
    state = nvml.optional(library.nvmlVgpuInstanceGetRuntimeStateSize, instance)
    found = replace(found, state_bytes=None if state is None else int(state.size))
    data = nvml.part(note, what, lambda: nvml.optional(nvml_metadata.read_vgpu, library, instance), None)
    metadata = None if data is None else _parsed(note, what, nvml_metadata.vgpu_metadata, data)
    if data is None or metadata is None:
        return found
    return replace(
        found,
        metadata=_encoded(data),
        guest_driver=_version(metadata.guest_driver),
        guest_version=metadata.guest_version or None,
        can_migrate=metadata.can_migrate,
    )


def _name(nvml: Nvml, instance: Any) -> VgpuMigration:
    """Return what tells a running vGPU from others, and nothing else. Raises NVMLError."""
    named = text(nvml.optional(nvml.library.nvmlVgpuInstanceGetMdevUUID, instance))
    told, _kind = nvml.library.nvmlVgpuInstanceGetVmID(instance)
    uuid = text(told)
    device = None if not named else normalise_bus_id(named) if _VF.fullmatch(named) else named.lower()
    return VgpuMigration(device, uuid.lower() if uuid else None)


def _parsed(note: Callable[[str], None], what: str, parse: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return parse(data)
    except ValueError as error:
        note(f"NVML does not tell {what}: {error}")
        return None


def _encoded(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _version(told: str) -> Optional[str]:
    return told if _VERSION.fullmatch(told) else None
