# SPDX-License-Identifier: Apache-2.0
"""The UEFI builds that libvirt can choose from for q35 guests (QEMU docs/interop/firmware.json)."""

import fnmatch
import json
from typing import Any, Dict, List, Optional, Tuple

from vgpuctl.agent.facts import image
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import GuestFirmware

# libvirt also reads a user's folder, but not in the system's daemon. A name in a later folder hides the same name in
# those before it, and an empty file disables the build.
_FOLDERS = ("/usr/share/qemu/firmware", "/etc/qemu/firmware")
_MACHINES = ("pc-q35-9.0", "pc-q35-rhel9.0.0")


def read(host: Host) -> Tuple[GuestFirmware, ...]:
    """Return the builds for x86-64 guests on q35 by the descriptors' names, without damaged ones."""
    texts: Dict[str, str] = {}
    for folder in _FOLDERS:
        for name in host.listdir_optional(folder) or []:
            if name.endswith(".json"):
                texts[name] = host.read_optional(f"{folder}/{name}") or ""
    found = []
    for name in sorted(texts):
        build = _read_build(host, name, texts[name])
        if build is not None:
            found.append(build)
    return tuple(found)


def _read_build(host: Host, name: str, text: str) -> Optional[GuestFirmware]:
    """Return the build of one descriptor, None where it is not one that such a guest can boot."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    if not isinstance(content, dict) or "uefi" not in _list(content, "interface-types"):
        return None
    mapping = content.get("mapping")
    if not isinstance(mapping, dict) or not _is_for_q35(content):
        return None
    # Builds without a store for variables (`stateless`, or loaded as memory) are for confidential guests.
    executable = mapping.get("executable")
    path = executable.get("filename") if isinstance(executable, dict) else None
    template = mapping.get("nvram-template")
    if mapping.get("device") != "flash" or not isinstance(template, dict):
        return None
    if not isinstance(path, str) or not path.startswith("/") or not host.exists(path):
        return None
    features = tuple(one for one in _list(content, "features") if isinstance(one, str))
    kind, size = _variables(host, template.get("filename"))
    return GuestFirmware(name, features, path, kind, size)


def _variables(host: Host, path: object) -> Tuple[str, int]:
    """Format and size of a template of variables; size 0 where it cannot be read. Its own header tells the format."""
    if not isinstance(path, str) or not path.startswith("/"):
        return "raw", 0
    try:
        file = image.read(host, path, with_digest=False)
    except Problem:
        return "raw", 0
    return ("raw", file.size_bytes) if file.qcow2 is None else ("qcow2", file.qcow2.virtual_bytes)


def _is_for_q35(content: Dict[str, Any]) -> bool:
    for target in _list(content, "targets"):
        if isinstance(target, dict) and target.get("architecture") == "x86_64":
            patterns = [one for one in _list(target, "machines") if isinstance(one, str)]
            if any(fnmatch.fnmatchcase(machine, one) for machine in _MACHINES for one in patterns):
                return True
    return False


def _list(content: Dict[str, Any], key: str) -> List[Any]:
    value = content.get(key)
    return value if isinstance(value, list) else []
