# SPDX-License-Identifier: Apache-2.0
"""The parameters of NVIDIA's vGPU plugin, one file per vGPU: `nvidia/vgpu_params` (reference 2.3, 4.1)."""

from typing import Optional

from vgpuctl.agent.host import Host


def path_of(folder: str) -> str:
    """Return the file with the parameters. folder: of the mediated device, or of the VF that carries the type."""
    return f"{folder}/nvidia/vgpu_params"


def read(host: Host, folder: str) -> Optional[str]:
    """Return the text that the driver stores, such as `enable_uvm=1,frame_rate_limiter=0`; empty for none.

    None where the driver has no such file. The text proves nothing about the plugin, which reads it when a VM starts.
    """
    text = host.read_optional(path_of(folder))
    return None if text is None else normal(text)


def normal(text: str) -> str:
    """Return the text without blanks around its parts: NVIDIA's own example has one after the comma."""
    return ",".join(part.strip() for part in text.split(",") if part.strip())
