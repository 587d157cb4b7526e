# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's vendor-specific VFIO (reference 4): the type set on a VF, and the types it can still take."""

from typing import Dict, Optional

from vgpuctl.agent.facts import pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode

NO_TYPE = "0"


def current_path(address: str) -> str:
    """Return the file that holds a VF's type."""
    return f"{pci.folder(address)}/nvidia/current_vgpu_type"


def is_offered(host: Host, address: str) -> bool:
    """Tell whether a VF is handed out by its `nvidia` folder."""
    return host.exists(f"{pci.folder(address)}/nvidia/creatable_vgpu_types")


def read_current(host: Host, address: str) -> str:
    """Return the decimal type id set on a VF, `0` for none. Raises Problem."""
    text = host.read(current_path(address)).strip()
    if not text.isdigit():
        raise Problem(ProblemCode.UNREADABLE, f"{current_path(address)} reads {text!r}", path=current_path(address))
    return text


def read_creatable(host: Host, address: str) -> Dict[str, str]:
    """Return {type id: name} of what a VF can still take; empty when nothing (only the header is left)."""
    lines = host.read(f"{pci.folder(address)}/nvidia/creatable_vgpu_types").splitlines()
    found = {}
    for line in lines:
        type_id, colon, name = line.partition(":")
        if colon and type_id.strip().isdigit():
            found[type_id.strip()] = name.strip()
    return found


def check_type(text: str) -> str:
    """Return a decimal type id. Raises Problem `bad-type`."""
    if not (text.isascii() and text.isdigit()):
        raise Problem(ProblemCode.BAD_TYPE, f"{text!r} is not a decimal vGPU type id")
    return text.lstrip("0") or NO_TYPE


def type_or_none(current: Optional[str]) -> Optional[str]:
    """Return a set type, None for the `0` that means free."""
    return None if current in (None, NO_TYPE) else current
