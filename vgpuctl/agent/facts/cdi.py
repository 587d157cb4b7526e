# SPDX-License-Identifier: Apache-2.0
"""The file that describes the host's own GPUs to container engines, and other programs' files about GPUs.

Nodes: NVIDIA MIG User Guide, "Device Nodes and Capabilities"; kernel-open/nvidia/nv-caps.c (DeviceFileMinor).
"""

import json
import re
from functools import partial
from typing import Dict, List, Optional, Tuple

from vgpuctl.agent.facts import capabilities, nvidia, nvml_gpus
from vgpuctl.agent.host import Host
from vgpuctl.agent.mistakes import guarded
from vgpuctl.agent.wire import cdi as wire
from vgpuctl.agent.wire.cdi import CdiFacts, CdiState
from vgpuctl.agent.wire.decode import WireError, from_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.values import dataclass

TOOLKIT = "nvidia-ctk"
CONTROL, UVM = "/dev/nvidiactl", "/dev/nvidia-uvm"
_OF_DRIVER = (CONTROL, UVM, "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_OF_NVIDIA = re.compile(r"""["']?kind["']?\s*:\s*["']?nvidia\.com/gpu["']?\s*[,}\n]""")
_PART = re.compile(r"ci[0-9]+")
_MINOR = re.compile(r"^DeviceFileMinor:\s*([0-9]{1,9})$", re.MULTILINE)


@dataclass(frozen=True)
class OwnDevice:
    """One device for containers: a whole GPU, or a compute instance of MIG. nodes: paths beside those of the driver.

    made_by: each with the option by which nvidia-modprobe makes it, such as `-c 0`.
    """

    name: str
    made_by: Tuple[Tuple[str, str], ...]

    @property
    def nodes(self) -> Tuple[str, ...]:
        """The paths of its nodes."""
        return tuple(path for path, _ in self.made_by)


def read(host: Host) -> CdiFacts:
    """Read both. A failure with the one leaves the other known."""
    others, unread = _read_others(host)
    try:
        state = read_state(host)
        if state is None and host.exists(wire.FILE):
            others = (wire.FILE, *others)
    except Problem as problem:
        return CdiFacts(others=others, unknown=problem.message, unread=unread)
    if state is None:
        return CdiFacts(others=others, unread=unread)
    try:
        is_current = host.digest(wire.FILE) == state.sha256
        is_current = is_current and basis_of(host, own_devices(host, state.gpus)) == state.basis
    except Problem:
        is_current = False  # a card of it has left its driver
    missing = tuple(path for path in (CONTROL, UVM) if not host.exists(path))
    has_modprobe = not missing or host.find_program(wire.MODPROBE) is not None
    return CdiFacts(state.gpus, is_current, others, unread=unread, missing_nodes=missing, has_modprobe=has_modprobe)


def read_state(host: Host) -> Optional[CdiState]:
    """Return what the file was written for, None where vgpuctl has written none.

    Raises Problem where that cannot be told, `unexpected-value` for what vgpuctl never wrote there: the file is not
    known to be vgpuctl's then.
    """
    text = host.read_optional(wire.STATE)
    if text is None:
        return None
    try:
        return from_json(CdiState, json.loads(text))
    except (WireError, ValueError) as error:
        if not host.exists(wire.FILE):
            return None
        raise Problem(
            ProblemCode.UNEXPECTED_VALUE,
            f"{wire.STATE} does not say which GPUs {wire.FILE} gives to containers: {error}",
            path=wire.STATE,
            hint=f"look whose {wire.FILE} is, and remove both",
        ) from error


def own_devices(host: Host, gpus: Tuple[str, ...]) -> List[OwnDevice]:
    """Return the devices of these GPUs: the instances of one in MIG mode, else the GPU.

    The driver knows the UUID of a GPU that nobody has opened yet only once NVML asks it, as after its VFs have gone.
    Raises Problem `not-found` for a GPU that the driver does not have, or that NVML does not tell the UUID of either.
    """
    found: List[OwnDevice] = []
    for address in gpus:
        uuid = nvidia.uuid_of(nvidia.read_information(host, address)) or nvml_gpus.read_uuid(host, address)
        minor = nvidia.read_minor(host, address)
        if minor is None or uuid is None:
            raise Problem(
                ProblemCode.NOT_FOUND,
                f"the driver does not tell number and UUID of {address}, so no container can be given it",
                path=f"{nvidia.PROC}/gpus/{address}/information",
                hint="run nvidia-smi once, and see which driver the card is bound to",
            )
        node, folder = (f"/dev/nvidia{minor}", f"-c {minor}"), f"{nvidia.PROC}/capabilities/gpu{minor}/mig"
        instances = capabilities.read_instances(host, address)
        if not instances:
            found.append(OwnDevice(uuid, (node,)))
        for instance in sorted(instances):
            parts = [name for name in host.listdir_optional(f"{folder}/{instance}") or [] if _PART.fullmatch(name)]
            for part in sorted(parts):
                ways = (f"{folder}/{instance}/access", f"{folder}/{instance}/{part}/access")
                caps = ((f"/dev/nvidia-caps/nvidia-cap{_minor(host, way)}", f"-f {way}") for way in ways)
                found.append(OwnDevice(f"MIG-{uuid}:{instance[2:]}:{part[2:]}", (node, *caps)))
    return found


def driver_nodes(host: Host) -> List[str]:
    """Return those of the driver's own nodes that there are; some come only once a program has computed."""
    return [path for path in _OF_DRIVER if host.exists(path)]


def basis_of(host: Host, devices: List[OwnDevice]) -> str:
    """All that the file's content follows from, as text: the driver and its nodes, the toolkit, the devices."""
    toolkit = host.find_program(TOOLKIT) or "no toolkit"
    told: Dict[str, List[str]] = {one.name: list(one.nodes) for one in devices}
    return json.dumps([nvidia.read_driver_version(host), driver_nodes(host), toolkit, told], sort_keys=True)


def _minor(host: Host, path: str) -> str:
    found = _MINOR.search(host.read(path))
    if found is None:
        raise Problem(ProblemCode.UNEXPECTED_VALUE, f"{path} has no DeviceFileMinor", path=path)
    return found.group(1)


def _read_others(host: Host) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """The files of other programs that describe GPUs, and what could not be read, in words."""
    unread: List[str] = []
    paths = [
        f"{folder}/{name}"
        for folder in wire.FOLDERS
        for name in guarded(unread, folder, partial(host.listdir_optional, folder), None) or []
        if name.endswith((".json", ".yaml", ".yml"))
    ]
    others = [one for one in paths if one != wire.FILE]
    found = [one for one in others if guarded(unread, one, partial(_describes_gpus, host, one), False)]
    return tuple(found), tuple(unread)


def _describes_gpus(host: Host, path: str) -> bool:
    return _OF_NVIDIA.search((host.read_optional(path) or "") + "\n") is not None
