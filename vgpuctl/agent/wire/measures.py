# SPDX-License-Identifier: Apache-2.0
"""Every measure that a host can be asked for: name, unit, kind, meaning. Python 3.9, standard library only.

The one description of a measure. Metrics, the host's textfile, the kept history, JSON, pages and docs/telemetry.md
follow from it. Units are Prometheus's base units (telemetry reference 4): seconds, bytes, watts, joules, hertz,
celsius, and ratios from 0 to 1.
"""

from typing import Dict, Tuple

from vgpuctl.agent.wire.values import dataclass

GPU, INSTANCE, VGPU, VM, HOST = "gpu", "gpu_instance", "vgpu", "vm", "host"


@dataclass(frozen=True)
class Measure:
    """One measure of one kind of object.

    of: GPU, INSTANCE (a MIG GPU instance), VGPU, VM or HOST. name: with its unit. labels: what tells several values of
    one object apart, such as the code of an Xid. is_counter: the value only rises, from the start of the driver, guest
    or host. is_kept: the history keeps it. source: who tells it.
    """

    of: str
    name: str
    text: str
    labels: Tuple[str, ...] = ()
    is_counter: bool = False
    is_kept: bool = False
    source: str = "NVML"

    @property
    def metric(self) -> str:
        """The metric's name."""
        return f"vgpuctl_{self.of}_{self.name}{'_total' if self.is_counter else ''}"


def _gpu(
    name: str, text: str, *labels: str, counter: bool = False, kept: bool = False, source: str = "NVML"
) -> Measure:
    return Measure(GPU, name, text, labels, counter, kept, source)


def _vgpu(name: str, text: str, *labels: str, counter: bool = False, kept: bool = False) -> Measure:
    return Measure(VGPU, name, text, labels, counter, kept)


def _vm(name: str, text: str, *labels: str, counter: bool = False, kept: bool = False) -> Measure:
    return Measure(VM, name, text, labels, counter, kept, "libvirt")


MEASURES: Tuple[Measure, ...] = (
    _gpu("utilization_ratio", "Part of the last sample period in which a kernel ran on the GPU.", kept=True),
    _gpu("memory_activity_ratio", "Part of the last sample period in which the memory was read or written."),
    _gpu("framebuffer_total_bytes", "Framebuffer of the GPU."),
    _gpu("framebuffer_used_bytes", "Framebuffer that is handed out.", kept=True),
    _gpu("power_watts", "Power draw of the board.", kept=True),
    _gpu("power_limit_watts", "Power limit that is enforced."),
    _gpu("temperature_celsius", "Temperature of the GPU core.", kept=True),
    _vgpu("utilization_ratio", "Part of the whole GPU's compute time that the vGPU used.", kept=True),
    _vgpu("framebuffer_size_bytes", "Framebuffer that the profile promises."),
    _vgpu("framebuffer_used_bytes", "Framebuffer that the guest uses.", kept=True),
    _vgpu("promised_ratio", "Part of the GPU's compute time that profile and scheduler promise."),
    _vgpu("share_utilization_ratio", "Use of the compute time that is promised; above 1 it uses idle time.", kept=True),
)
_BY_NAME: Dict[Tuple[str, str], Measure] = {(one.of, one.name): one for one in MEASURES}


def measure(of: str, name: str) -> Measure:
    """Return the measure of a kind of object. Raises KeyError."""
    return _BY_NAME[of, name]
