# SPDX-License-Identifier: Apache-2.0
"""Facts of NVIDIA's driver outside NVML: its version and its /proc entries (reference 3.1)."""

import re
from typing import Dict, Optional

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import vf_health

PROC = "/proc/driver/nvidia"
DRIVER = vf_health.DRIVER
PF_STUB = vf_health.PF_STUB

_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")


def read_driver_version(host: Host) -> Optional[str]:
    """Return the version of the loaded driver, None when it is not loaded."""
    version = host.read_optional("/sys/module/nvidia/version")
    match = _VERSION.search(host.read_optional(f"{PROC}/version") or "") if version is None else None
    return match[1] if match else version


def read_information(host: Host, address: str) -> Dict[str, str]:
    """Return the driver's `information` of one GPU (`Model`, `GPU UUID`, `Device Minor`), empty when it has none."""
    text = host.read_optional(f"{PROC}/gpus/{address}/information") or ""
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def uuid_of(information: Dict[str, str]) -> Optional[str]:
    """Return the UUID of a GPU's `information`, None while the driver does not know it.

    Until something has used the GPU, drivers up to 580 print `GPU-????????-…`, and newer ones leave the line out.
    """
    uuid = information.get("GPU UUID")
    return None if uuid is None or "?" in uuid else uuid


def read_minor(host: Host, address: str) -> Optional[int]:
    """Return N of the GPU's /dev/nvidiaN, None when the driver does not say."""
    minor = read_information(host, address).get("Device Minor", "")
    return int(minor) if minor.isdigit() else None


def is_vgpu_host(host: Host, address: str) -> bool:
    """Tell whether the vGPU host driver has this GPU: only that one has an unbindLock."""
    return host.exists(f"{PROC}/gpus/{address}/unbindLock")
