# SPDX-License-Identifier: Apache-2.0
"""The answer of `nvidia-smi -q -x`, read as strictly as the probe's: on Windows this program is the probe.

Its document type is nvidia_smi_log, whose DTD lies beside the driver and is never read.
"""

from typing import Any
from xml.parsers import expat

from vgpuctl.errors import GuestError
from vgpuctl.guests.facts.guest_report import VERSION, GuestReport, report_of, unusable

SMI_PATHS = (
    "C:\\Windows\\System32\\nvidia-smi.exe",
    "C:\\Program Files\\NVIDIA Corporation\\NVSMI\\nvidia-smi.exe",
)
"""The places of drivers since R450 and of older ones; qemu-ga gives a program's name to Windows without any shell."""
SMI_ARGUMENTS = ("-q", "-x")
MOST_LOG_BYTES = 512 * 1024
"""Eight GPUs with their processes take some 200 KiB."""
_WHOSE = "nvidia-smi in the guest"
_DEEPEST = 16
_LONGEST = 200
_ROOT, _GPU = ("nvidia_smi_log",), ("nvidia_smi_log", "gpu")
_DRIVER = (*_ROOT, "driver_version")
_PARTS = {
    (*_GPU, "product_name"): "name",
    (*_GPU, "uuid"): "uuid",
    (*_GPU, "fb_memory_usage", "total"): "memory_mib",
    (*_GPU, "vgpu_software_licensed_product", "license_status"): "licence",
    # No public text shows which of the two names it is.
    (*_GPU, "vgpu_software_licensed_product", "licensed_product_name"): "product",
    (*_GPU, "vgpu_software_licensed_product", "product_name"): "product",
    (*_GPU, "mig_mode", "current_mig"): "mig",
}
_KEPT = {_DRIVER, *_PARTS}


class _NoSmiLog(ValueError):
    """A document that nvidia-smi does not write."""


def read_smi_log(answer: bytes) -> GuestReport:
    """Read what nvidia-smi wrote. Names of processes may be in a code page of Windows: they are not looked at.

    Raises GuestError for another document.
    """
    if len(answer) > MOST_LOG_BYTES:
        raise GuestError(f"{_WHOSE} wrote {len(answer)} bytes, and more than {MOST_LOG_BYTES} are not read")
    reader = _SmiReader()
    try:
        reader.read(answer.decode(errors="replace"))
    except (expat.ExpatError, _NoSmiLog) as broken:
        raise unusable(answer, _WHOSE, broken) from broken
    return report_of({"version": VERSION, "driver": reader.driver, "gpus": reader.gpus}, _WHOSE)


class _SmiReader:
    """Keeps the texts that are asked for, and refuses entities, deep nesting and values that stand twice."""

    def __init__(self) -> None:
        self.driver: str | None = None
        self.gpus: list[dict[str, Any]] = []
        self._path: tuple[str, ...] = ()
        self._seen: set[tuple[str, ...]] = set()
        self._text: list[str] | None = None

    def read(self, document: str) -> None:
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._refuse_entity
        parser.Parse(document, True)
        if _ROOT not in self._seen:
            raise _NoSmiLog("it is no nvidia_smi_log")

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        path = self._path = (*self._path, name)
        if len(path) > _DEEPEST:
            raise _NoSmiLog(f"nested too deeply: more than {_DEEPEST} levels")
        if path == _GPU:
            self.gpus.append({})
            self._seen = {one for one in self._seen if one[:2] != _GPU}
        if path == _ROOT or path in _KEPT:
            if path in self._seen:
                raise _NoSmiLog(f"{name[:40]} stands twice")
            self._seen.add(path)
            self._text = None if path == _ROOT else []

    def _characters(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _end(self, _name: str) -> None:
        path, self._path = self._path, self._path[:-1]
        if path not in _KEPT or self._text is None:
            return
        told, self._text = "".join(self._text).strip()[:_LONGEST], None
        if told in ("", "N/A"):
            return
        if path == _DRIVER:
            self.driver = told
        else:
            key = _PARTS[path]
            self.gpus[-1][key] = _mib(told) if key == "memory_mib" else told

    def _refuse_entity(self, name: str, *_declared: object) -> None:
        raise _NoSmiLog(f"it declares the entity {name[:40]!a}")


def _mib(text: str) -> int | None:
    """`8192 MiB`; None for other words."""
    number, _, unit = text.partition(" ")
    return int(number) if unit == "MiB" and number.isascii() and number.isdigit() and len(number) < 10 else None
