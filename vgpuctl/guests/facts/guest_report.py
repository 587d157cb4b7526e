# SPDX-License-Identifier: Apache-2.0
"""The answer of the probe in a guest (in_guest/probe.py), read strictly: whoever owns the guest can write anything."""

from importlib import resources
from typing import Annotated

import msgspec

from vgpuctl.agent.wire.strict_json import JsonRefused, read_strict_json
from vgpuctl.errors import GuestError

VERSION = 1
PROBE_PATH = "/usr/local/lib/vgpuctl/probe"
"""The only program that is ever run in a guest."""
MOST_BYTES = 64 * 1024

_Text = Annotated[str, msgspec.Meta(max_length=200)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=64)]


class GuestGpu(msgspec.Struct, frozen=True):
    """One GPU as the guest's driver shows it. memory_mib: its framebuffer. licence: nvidia-smi's words."""

    name: _Text | None = None
    uuid: _Text | None = None
    memory_mib: Annotated[int, msgspec.Meta(ge=0, le=2**24)] | None = None
    licence: _Text | None = None
    mig: _Text | None = None


class GuestReport(msgspec.Struct, frozen=True):
    """One answer. cuda_copies: CUDA devices to which and from which a copy was whole. None: not known in the guest."""

    version: int
    driver: _Text | None = None
    open_module: bool | None = None
    gpus: Annotated[tuple[GuestGpu, ...], msgspec.Meta(max_length=64)] = ()
    cuda_devices: _Count | None = None
    cuda_copies: _Count | None = None
    errors: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=64)] = ()
    kernel_log: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=20)] = ()


def describe(report: GuestReport) -> tuple[str, ...]:
    """One line for each thing that a report tells beside the promise: the kernel module, the GPUs, errors, its log."""
    kinds = {True: "open", False: "proprietary", None: "unknown"}
    module = () if report.driver is None else (f"driver {report.driver}, {kinds[report.open_module]} kernel module",)
    gpus = (f"{gpu.uuid}: {gpu.name}" + (f", MIG {gpu.mig}" if gpu.mig else "") for gpu in report.gpus if gpu.uuid)
    return (*module, *gpus, *report.errors, *report.kernel_log)


def probe_script() -> str:
    """The probe's text, for the seed of a VM. It runs by the guest's own Python."""
    text = resources.files("vgpuctl.guests.in_guest").joinpath("probe.py").read_text(encoding="utf-8")
    return "#!/usr/bin/env python3\n" + text


def read_report(answer: bytes) -> GuestReport:
    """Read what the probe wrote. Raises GuestError for anything else."""
    if len(answer) > MOST_BYTES:
        raise GuestError(f"the guest's probe wrote {len(answer)} bytes, and more than {MOST_BYTES} are not read")
    try:
        report = msgspec.convert(read_strict_json(answer.decode()), GuestReport)
    except (UnicodeDecodeError, JsonRefused, msgspec.ValidationError) as broken:
        shown = answer[:60].decode(errors="replace")
        raise GuestError(f"the answer of the guest's probe cannot be used: {broken}", context=[repr(shown)]) from broken
    if report.version != VERSION:
        raise GuestError(f"the guest's probe answers in version {report.version}; this vgpuctl reads {VERSION}")
    return report
