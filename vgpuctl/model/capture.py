# SPDX-License-Identifier: Apache-2.0
"""Captures of hosts: the file of one recorded host, as it is written and as it is read again.

A capture is a gzip file of one JSON object. It may come from anybody, so it is read within bounds of size and depth.
"""

import base64
import gzip
import io
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgpuctl.agent.wire.decode import WireError, from_json, to_json
from vgpuctl.agent.wire.strict_json import JsonRefused, read_strict_json
from vgpuctl.errors import UsageError
from vgpuctl.model.capture_answers import check_host_answer, check_nvml_answer, check_nvml_tables
from vgpuctl.trusted_files import NAMED, opened

FORMAT = 1
SUFFIX = ".capture.json.gz"
MOST_FILE_BYTES = 16 * 2**20
MOST_BYTES = 64 * 2**20
"""A host of 16 GPUs with all VFs and vGPU types has under 8 MiB."""


@dataclass(frozen=True)
class CapturedBoard:
    """One GPU of a captured host. board: its name in the catalogue, None for a board that is not there."""

    address: str
    vendor_id: str
    device_id: str
    subsystem_id: str | None
    name: str | None
    board: str | None
    driver: str | None
    sharing: tuple[str, ...]


@dataclass(frozen=True)
class ReplacedCount:
    """How many different values of a kind were replaced."""

    kind: str
    count: int


@dataclass(frozen=True)
class CaptureManifest:
    """How a capture was taken. agent: sha256 of the agent's file. taken_at: date and time in UTC.

    is_emulated: the lab plays the GPUs. calls: what was asked of the agent. replaced: how many different values of
    each kind were replaced. note: the contributor's own words.
    """

    format: int
    vgpuctl: str
    agent: str
    taken_at: str
    host: str
    is_emulated: bool
    kernel: str
    operating_system: str
    distribution: tuple[str, ...]
    python: str
    nvidia_driver: str | None
    nvml: str | None
    libvirt: str | None
    qemu: str | None
    boards: tuple[CapturedBoard, ...]
    calls: tuple[str, ...]
    replaced: tuple[ReplacedCount, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Capture:
    """One captured host.

    machine: the agent's recording. libvirt: what libvirt said, by the question, None where it has no answer.
    """

    manifest: CaptureManifest
    machine: dict[str, Any]
    libvirt: dict[str, str | None] = field(default_factory=dict)

    def as_file(self) -> bytes:
        """Return the bytes of the file; equal captures give equal bytes."""
        whole = {"manifest": to_json(self.manifest), "machine": self.machine, "libvirt": self.libvirt}
        text = json.dumps(whole, separators=(",", ":"), sort_keys=True)
        buffer = io.BytesIO()
        with gzip.GzipFile(fileobj=buffer, mode="wb", compresslevel=9, mtime=0) as file:
            file.write(text.encode())
        return buffer.getvalue()


def read_capture(path: Path) -> Capture:
    """Read a capture's file. Raises UsageError for a file that is none, is too large, or has another format."""
    try:
        with opened(path, NAMED) as file:
            data = file.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the capture {path} cannot be read: {error.strerror}") from error
    if len(data) > MOST_FILE_BYTES:
        raise _refused(path, f"it has more than {MOST_FILE_BYTES >> 20} MiB")
    try:
        return capture_from(unpack(data, is_gzip=True))
    except WireError as error:
        raise _refused(path, str(error)) from error


def unpack(data: bytes, *, is_gzip: bool) -> Any:
    """Return the JSON value of compressed bytes (gzip or zlib). Raises WireError."""
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | (16 if is_gzip else 0))
    try:
        text = reader.decompress(data, MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise WireError("", f"unpacked it has more than {MOST_BYTES >> 20} MiB")
        if not reader.eof:
            raise WireError("", "it is cut off")
        return read_strict_json(text.decode())
    except zlib.error as error:
        raise WireError("", f"it is damaged, or not compressed by {'gzip' if is_gzip else 'zlib'}: {error}") from error
    except (UnicodeDecodeError, JsonRefused) as error:
        raise WireError("", f"it is not JSON: {error}") from error


def recording_from(text: str) -> dict[str, Any]:
    """Return what the agent recorded, from the text in its reply. Raises WireError."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise WireError("recording", f"is no Base64: {error}") from error
    machine = unpack(data, is_gzip=False)
    check_machine(machine)
    recording: dict[str, Any] = machine
    return recording


def capture_from(value: Any) -> Capture:
    """Return the capture of a JSON value. Raises WireError that names the field."""
    if not isinstance(value, dict) or set(value) != {"manifest", "machine", "libvirt"}:
        raise WireError("", "must have the keys manifest, machine and libvirt")
    told = value["manifest"].get("format") if isinstance(value["manifest"], dict) else None
    if told != FORMAT:
        raise WireError("manifest.format", f"is {told!r}, this vgpuctl reads {FORMAT}")
    manifest = from_json(CaptureManifest, value["manifest"], "manifest")
    machine, libvirt = value["machine"], value["libvirt"]
    if not isinstance(libvirt, dict) or not all(one is None or isinstance(one, str) for one in libvirt.values()):
        raise WireError("libvirt", "must be an object of texts")
    check_machine(machine)
    return Capture(manifest, machine, libvirt)


def check_machine(machine: Any) -> None:
    """Check the form of a recording. Raises WireError that names the field."""
    if not isinstance(machine, dict) or set(machine) != {"is_emulated", "answers", "nvml"}:
        raise WireError("machine", "must have the keys is_emulated, answers and nvml")
    nvml = machine["nvml"]
    if not isinstance(nvml, dict) or set(nvml) != {"constants", "errors", "answers"}:
        raise WireError("machine.nvml", "must have the keys constants, errors and answers")
    for name in ("constants", "errors"):
        if not isinstance(nvml[name], dict):
            raise WireError(f"machine.nvml.{name}", "must be an object")
    if not isinstance(machine["is_emulated"], bool):
        raise WireError("machine.is_emulated", "must be true or false")
    check_nvml_tables(nvml["constants"], nvml["errors"], "machine.nvml")
    _check_answers(machine["answers"], "machine.answers", check_host_answer)
    _check_answers(nvml["answers"], "machine.nvml.answers", check_nvml_answer)


def _check_answers(answers: Any, path: str, check: Callable[[str, Mapping[str, Any], str], None]) -> None:
    if not isinstance(answers, dict):
        raise WireError(path, "must be an object")
    for key, given in answers.items():
        if not isinstance(given, list) or not given:
            raise WireError(f"{path}.{key}", "must be a list of answers")
        for one in given:
            is_pair = isinstance(one, list) and len(one) == 2
            if not is_pair or not isinstance(one[0], int) or not isinstance(one[1], dict):
                raise WireError(f"{path}.{key}", "must be pairs of a count and an answer")
            check(key, one[1], f"{path}.{key}")


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is not a capture that can be used: {why}", hint="`vgpuctl record-host` writes captures")
