# SPDX-License-Identifier: Apache-2.0
"""Targets of hosts from plain texts: what is secret gets its type."""

from typing import Any

from vgpuctl.model.host_target import HostTarget
from vgpuctl.model.secret import ProgramLine, Secret

_TYPES = {"common_args": ProgramLine, "password": Secret, "become_password": Secret}


def typed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a target, texts of secret ones as their types."""
    return {name: _TYPES[name](one) if name in _TYPES and isinstance(one, str) else one for name, one in fields.items()}


def host_target(name: str = "gpu1", address: str = "gpu1", **fields: Any) -> HostTarget:
    """A target of plain texts."""
    return HostTarget(name, address, **typed(fields))
