# SPDX-License-Identifier: Apache-2.0
"""Tell what the guest sees of its GPU, as one JSON object on stdout. It reads, and changes nothing.

`vgpuctl check-vm` runs it by the guest agent where the tenant allows it (docs/promises.md). Python 3.6, its library.
"""

import ctypes
import json
import re
import subprocess
import sys
from typing import Any, Dict, List, Optional
from xml.etree import ElementTree

VERSION = 1
_COPY_BYTES = 1 << 20
_MOST_LINES = 20
_LONGEST = 200


def main() -> None:
    """Print the answer. Every part that cannot be read is a text in `errors`."""
    errors: List[str] = []
    answer: Dict[str, Any] = {"version": VERSION, "errors": errors}
    answer.update(_driver(errors))
    answer.update(_nvidia_smi(errors))
    answer.update(_cuda(errors))
    answer["kernel_log"] = _kernel_log()
    json.dump(answer, sys.stdout)
    sys.stdout.write("\n")


def _run(*command: str) -> str:
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, check=True)
    return result.stdout.decode("utf-8", "replace")


def _note(errors: List[str], what: str, problem: Exception) -> None:
    text = getattr(problem, "stdout", None)
    told = text.decode("utf-8", "replace") if text else str(problem)
    errors.append(f"{what}: {' '.join(told.split())}"[:_LONGEST])


def _driver(errors: List[str]) -> Dict[str, Any]:
    """The kernel module's version and kind, from the text of nvidia.ko: `NVRM version: NVIDIA UNIX Open Kernel ...`."""
    try:
        with open("/proc/driver/nvidia/version") as file:
            line = file.readline()
    except OSError as problem:
        _note(errors, "driver", problem)
        return {"driver": None, "open_module": None}
    found = re.search(r"\s([0-9]{3}(?:\.[0-9]+)+)\s", line)
    return {"driver": found.group(1) if found else None, "open_module": "Open Kernel Module" in line}


def _nvidia_smi(errors: List[str]) -> Dict[str, Any]:
    """The GPUs as `nvidia-smi -q -x` shows them (its own document type: nvidia_smi_log)."""
    try:
        log = ElementTree.fromstring(_run("nvidia-smi", "-q", "-x"))
    except (OSError, subprocess.SubprocessError, ElementTree.ParseError) as problem:
        _note(errors, "nvidia-smi", problem)
        return {"gpus": []}
    return {"gpus": [_gpu(one) for one in log.iter("gpu")]}


def _gpu(gpu: ElementTree.Element) -> Dict[str, Any]:
    def text(path: str) -> Optional[str]:
        found = gpu.findtext(path)
        return found.strip()[:_LONGEST] if found and found.strip() not in ("N/A", "") else None

    memory = (text("fb_memory_usage/total") or "").split()
    licence = "vgpu_software_licensed_product"
    return {
        "name": text("product_name"),
        "uuid": text("uuid"),
        "memory_mib": int(memory[0]) if len(memory) == 2 and memory[0].isdigit() and memory[1] == "MiB" else None,
        "licence": text(licence + "/license_status"),
        "product": text(licence + "/licensed_product_name") or text(licence + "/product_name"),
        "mig": text("mig_mode/current_mig"),
    }


def _cuda(errors: List[str]) -> Dict[str, Any]:
    """CUDA's devices, and whether a small copy to each and back is whole. The names are those of cuda.h."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as problem:
        _note(errors, "cuda", problem)
        return {"cuda_devices": None, "cuda_copies": None}
    count = ctypes.c_int()
    for name, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),))):
        code = getattr(cuda, name)(*arguments)
        if code:
            errors.append(f"cuda: {name} answers {code}")
            return {"cuda_devices": None, "cuda_copies": None}
    copies = 0
    for number in range(count.value):
        failure = _copy(cuda, number)
        if failure is None:
            copies += 1
        else:
            errors.append(f"cuda: device {number}: {failure}")
    return {"cuda_devices": count.value, "cuda_copies": copies}


def _copy(cuda: Any, number: int) -> Optional[str]:
    """Copy a pattern to a device and back. Return what failed, or None."""
    context, place = ctypes.c_void_p(), ctypes.c_uint64()
    pattern = (ctypes.c_ubyte * _COPY_BYTES)(*(number + index * 7 & 255 for index in range(_COPY_BYTES)))
    back = (ctypes.c_ubyte * _COPY_BYTES)()
    size = ctypes.c_size_t(_COPY_BYTES)
    code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), number)
    if code:
        return f"cuDevicePrimaryCtxRetain answers {code}"
    try:
        for name, arguments in (
            ("cuCtxSetCurrent", (context,)),
            ("cuMemAlloc_v2", (ctypes.byref(place), size)),
            ("cuMemcpyHtoD_v2", (place, pattern, size)),
            ("cuMemcpyDtoH_v2", (back, place, size)),
        ):
            code = getattr(cuda, name)(*arguments)
            if code:
                return f"{name} answers {code}"
        return None if bytes(back) == bytes(pattern) else "what was copied came back changed"
    finally:
        if place.value:
            cuda.cuMemFree_v2(place)
        cuda.cuDevicePrimaryCtxRelease(number)


def _kernel_log() -> List[str]:
    """The last lines of this boot's kernel log that the driver wrote."""
    try:
        lines = [line for line in _run("dmesg").splitlines() if "NVRM" in line]
    except (OSError, subprocess.SubprocessError):
        return []
    return [line[:_LONGEST] for line in lines[-_MOST_LINES:]]


if __name__ == "__main__":
    main()
