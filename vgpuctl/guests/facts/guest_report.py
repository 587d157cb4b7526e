# SPDX-License-Identifier: Apache-2.0
"""The answer of the probe in a guest (in_guest/probe.py), read strictly: whoever owns the guest can write anything."""

from importlib import resources
from typing import Annotated, Any

import msgspec

from vgpuctl.agent.wire.strict_json import JsonRefused, read_strict_json
from vgpuctl.errors import GuestError
from vgpuctl.model.printable import visible

VERSION = 1
PROBE_PATH = "/usr/local/lib/vgpuctl/probe"
"""The only program that is ever run in a Linux guest; in a Windows guest it is nvidia-smi (smi_log.py)."""
MOST_BYTES = 64 * 1024

_Text = Annotated[str, msgspec.Meta(max_length=200)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=64)]
_Version = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{3}(\.[0-9]{1,5}){1,3}\Z")]


class GuestGpu(msgspec.Struct, frozen=True):
    """One GPU as the guest's driver shows it. memory_mib: its framebuffer. licence: nvidia-smi's words.

    product: that it is licensed as, compute_mode: nvidia-smi's word; None from a probe of an older vgpuctl.
    """

    name: _Text | None = None
    uuid: _Text | None = None
    memory_mib: Annotated[int, msgspec.Meta(ge=0, le=2**24)] | None = None
    licence: _Text | None = None
    mig: _Text | None = None
    product: _Text | None = None
    compute_mode: _Text | None = None


class GuestPeerCopy(msgspec.Struct, frozen=True):
    """A copy from one CUDA device to another by peer access. problem: what failed, None where all of it arrived."""

    source: _Count
    target: _Count
    problem: _Text | None = None
    mib_s: Annotated[int, msgspec.Meta(ge=0, le=2**24)] | None = None


class GuestMps(msgspec.Struct, frozen=True):
    """The control daemon of MPS. threads: percent that a program may use. memory_mib: of each device, for a program.

    clients: programs that use it.
    """

    threads: Annotated[float, msgspec.Meta(ge=0, le=100)]
    memory_mib: Annotated[
        tuple[Annotated[int, msgspec.Meta(ge=0, le=2**24)] | None, ...], msgspec.Meta(max_length=64)
    ] = ()
    clients: Annotated[int, msgspec.Meta(ge=0, le=2**16)] = 0


class GuestReport(msgspec.Struct, frozen=True):
    """One answer. cuda_copies: CUDA devices to which and from which a copy was whole. None: not known in the guest.

    peer_copies: those that were tried, None from a probe of an older vgpuctl. mps: None where no daemon answers.
    """

    version: int
    driver: _Version | None = None
    open_module: bool | None = None
    gpus: Annotated[tuple[GuestGpu, ...], msgspec.Meta(max_length=64)] = ()
    cuda_devices: _Count | None = None
    cuda_copies: _Count | None = None
    peer_copies: Annotated[tuple[GuestPeerCopy, ...], msgspec.Meta(max_length=240)] | None = None
    errors: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=64)] = ()
    kernel_log: Annotated[tuple[_Text, ...], msgspec.Meta(max_length=20)] = ()
    mps: GuestMps | None = None


def describe(report: GuestReport) -> tuple[str, ...]:
    """One line for each thing that a report tells beside the promise: the kernel module, the GPUs, errors, its log."""
    kinds = {True: ", open kernel module", False: ", proprietary kernel module", None: ""}
    module = () if report.driver is None else (f"driver {report.driver}{kinds[report.open_module]}",)
    gpus = (f"{gpu.uuid}: {gpu.name}" + (f", MIG {gpu.mig}" if gpu.mig else "") for gpu in report.gpus if gpu.uuid)
    peers = report.peer_copies or ()
    whole = sum(one.problem is None for one in peers)
    copies = (f"{whole} of {len(peers)} copies between its CUDA devices are whole",) if peers else ()
    return (*module, *gpus, *copies, *report.errors, *report.kernel_log)


def probe_script() -> str:
    """The probe's text, for the seed of a VM. It runs by the guest's own Python."""
    text = resources.files("vgpuctl.guests.in_guest").joinpath("probe.py").read_text(encoding="utf-8")
    return "#!/usr/bin/env python3\n" + text


def read_report(answer: bytes) -> GuestReport:
    """Read what the probe wrote. Raises GuestError for anything else."""
    if len(answer) > MOST_BYTES:
        raise GuestError(f"the guest's probe wrote {len(answer)} bytes, and more than {MOST_BYTES} are not read")
    try:
        raw = read_strict_json(answer.decode())
    except (UnicodeDecodeError, JsonRefused) as broken:
        raise unusable(answer, "the guest's probe", broken) from broken
    return report_of(raw, "the guest's probe")


def unusable(answer: bytes, whose: str, why: Exception) -> GuestError:
    """The error for an answer that is refused, with its beginning."""
    shown = ascii(answer[:60].decode(errors="replace"))
    return GuestError(f"the answer of {whose} cannot be used: {why}", context=[shown])


def report_of(raw: Any, whose: str) -> GuestReport:
    """Make the report of what was read. Its texts lose what a terminal, a log or an eye would trip over.

    Raises GuestError for values of other types and sizes, and for another version.
    """
    try:
        report = msgspec.convert(raw, GuestReport)
    except msgspec.ValidationError as broken:
        raise GuestError(f"the answer of {whose} cannot be used: {broken}") from broken
    if report.version != VERSION:
        raise GuestError(f"{whose} answers in version {report.version}; this vgpuctl reads {VERSION}")
    gpus = tuple(
        GuestGpu(
            _seen(gpu.name),
            _seen(gpu.uuid),
            gpu.memory_mib,
            _seen(gpu.licence),
            _seen(gpu.mig),
            _seen(gpu.product),
            _seen(gpu.compute_mode),
        )
        for gpu in report.gpus
    )
    peers = report.peer_copies
    if peers is not None:
        peers = tuple(msgspec.structs.replace(one, problem=_seen(one.problem)) for one in peers)
    errors, log = tuple(map(visible, report.errors)), tuple(map(visible, report.kernel_log))
    return msgspec.structs.replace(report, gpus=gpus, peer_copies=peers, errors=errors, kernel_log=log)


def _seen(text: str | None) -> str | None:
    return None if text is None else visible(text)
