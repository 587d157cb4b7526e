# SPDX-License-Identifier: Apache-2.0
"""The UEFI builds that libvirt can choose from for q35 guests (QEMU docs/interop/firmware.json)."""

import fnmatch
import json
from typing import Any, Dict, List, Optional, Tuple

from vgpuctl.agent.host import Host
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
        features = _read_features(host, texts[name])
        if features is not None:
            found.append(GuestFirmware(name, features))
    return tuple(found)


def _read_features(host: Host, text: str) -> Optional[Tuple[str, ...]]:
    """Return the features of one descriptor, None where it is not of a build that such a guest can boot."""
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
    is_split = mapping.get("device") == "flash" and isinstance(mapping.get("nvram-template"), dict)
    if not is_split or not isinstance(path, str) or not path.startswith("/") or not host.exists(path):
        return None
    return tuple(one for one in _list(content, "features") if isinstance(one, str))


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
