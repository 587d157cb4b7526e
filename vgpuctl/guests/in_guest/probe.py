# SPDX-License-Identifier: Apache-2.0
"""Tell what the guest sees of its GPU, as one JSON object on stdout. It reads, and changes nothing.

`vgpuctl check-vm` runs it by the guest agent where the tenant allows it (docs/promises.md). Python 3.6, its library.
"""

import ctypes
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Tuple
from xml.etree import ElementTree

VERSION = 1
_COPY_BYTES = 1 << 20
_PEER_MIB = 32
_TIMED_COPIES = 8
_PEER_SECONDS = 20
_MOST_PEERS = 16
_MOST_DEVICES = 64
_MPS_SECONDS = 50
_PEER_ACCESS_ALREADY_ENABLED = 704
_SYNCHRONIZE = ("cuCtxSynchronize", ())
_Held = Dict[int, Tuple[Any, Any]]
"""The context and the memory on each device, by its number."""
_MOST_LINES = 20
_LONGEST = 200


def main() -> None:
    """Print the answer. Every part that cannot be read is a text in `errors`."""
    errors: List[str] = []
    answer: Dict[str, Any] = {"version": VERSION, "errors": errors}
    answer.update(_driver(errors))
    answer.update(_nvidia_smi(errors))
    answer["mps"] = _mps(errors)
    answer.update(_cuda(errors, answer["mps"]))
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
        "compute_mode": text("compute_mode"),
    }


def _mps(errors: List[str]) -> Optional[Dict[str, Any]]:
    """The limits of the control daemon of MPS, and how many programs use it; None where none answers."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        return None

    def ask(command: str) -> List[str]:
        told = subprocess.run(
            ("nvidia-cuda-mps-control",),
            input=command.encode() + b"\n",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=10,
            check=True,
        )
        return told.stdout.decode("utf-8", "replace").split()

    try:
        threads = ask("get_default_active_thread_percentage")
        devices = len(_run("nvidia-smi", "-L").splitlines())
        limits = [_mib(ask("get_default_device_pinned_mem_limit %d" % number)) for number in range(devices)]
        servers = [one for one in ask("get_server_list") if one.isdigit()]
        clients = sum(one.isdigit() for server in servers for one in ask("get_client_list " + server))
        return {"threads": float(threads[0]), "memory_mib": limits[:_MOST_DEVICES], "clients": clients}
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as problem:
        _note(errors, "mps", problem)
        return None


def _mib(words: List[str]) -> Optional[int]:
    """A limit as the daemon writes it, `2G` or `2048M`; None for another form."""
    found = re.match(r"([0-9]{1,9})([KMG])B?$", words[0]) if words else None
    return None if found is None else int(found.group(1)) * {"K": 1, "M": 1 << 10, "G": 1 << 20}[found.group(2)] >> 10


def _cuda(errors: List[str], mps: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    """CUDA's devices, and whether copies to each and between them are whole. The names are those of cuda.h.

    With MPS this program is one of its clients, and waits for those of another user. So it does not begin beside any,
    and ends after a time.
    """
    nothing = {"cuda_devices": None, "cuda_copies": None, "peer_copies": None}
    if mps is not None and mps["clients"]:
        errors.append("cuda: not tried beside %d programs that use MPS" % mps["clients"])
        return nothing
    if mps is not None:
        signal.alarm(_MPS_SECONDS)
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as problem:
        _note(errors, "cuda", problem)
        return nothing
    count = ctypes.c_int()
    for name, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),))):
        code = getattr(cuda, name)(*arguments)
        if code:
            errors.append(f"cuda: {name} answers {code}")
            return nothing
    copies = 0
    for number in range(count.value):
        failure = _copy(cuda, number)
        if failure is None:
            copies += 1
        else:
            errors.append(f"cuda: device {number}: {failure}")
    peers = _between(cuda, min(count.value, _MOST_PEERS), errors)
    return {"cuda_devices": count.value, "cuda_copies": copies, "peer_copies": peers}


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
        failure = _call(
            cuda,
            ("cuCtxSetCurrent", (context,)),
            ("cuMemAlloc_v2", (ctypes.byref(place), size)),
            ("cuMemcpyHtoD_v2", (place, pattern, size)),
            ("cuMemcpyDtoH_v2", (back, place, size)),
        )
        if failure is not None:
            return failure
        return None if bytes(back) == bytes(pattern) else "what was copied came back changed"
    finally:
        if place.value:
            cuda.cuMemFree_v2(place)
        cuda.cuDevicePrimaryCtxRelease(number)


def _between(cuda: Any, count: int, errors: List[str]) -> List[Dict[str, Any]]:
    """Copies from each device to each other one. One that could not be tried is left out, with the reason in errors.

    It has _PEER_MIB of each device, four times as much of the guest's memory, and begins no copy after _PEER_SECONDS.
    """
    held: _Held = {}
    copies: List[Dict[str, Any]] = []
    until = time.monotonic() + _PEER_SECONDS
    try:
        for number in range(count) if count > 1 else ():
            failure = _hold(cuda, number, held)
            if failure is not None:
                errors.append(f"cuda: device {number}: {failure}: no copies between it and others")
        pairs = list(itertools.permutations(sorted(number for number in held if held[number][1].value), 2))
        noise = os.urandom((_PEER_MIB << 20) + len(pairs)) if pairs else b""
        for start, (source, target) in enumerate(pairs):
            if time.monotonic() >= until:
                errors.append(f"cuda: {len(pairs) - start} copies between devices not tried in {_PEER_SECONDS} s")
                break
            # Another pattern for each pair: no device has it from an earlier copy.
            pattern = noise[start : start + (_PEER_MIB << 20)]
            problem, speed = _copy_to_peer(cuda, source, target, held, pattern)
            mib_s = speed if problem is None else None
            copies.append({"source": source, "target": target, "problem": problem, "mib_s": mib_s})
    finally:
        for number, (context, place) in held.items():
            if place.value and not cuda.cuCtxSetCurrent(context):
                cuda.cuMemFree_v2(place)
            cuda.cuDevicePrimaryCtxRelease(number)
    return copies


def _hold(cuda: Any, number: int, held: _Held) -> Optional[str]:
    """Take a device's context and memory, which are added to held. Return what failed, or None."""
    context, place = ctypes.c_void_p(), ctypes.c_uint64()
    code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), number)
    if code:
        return f"cuDevicePrimaryCtxRetain answers {code}"
    held[number] = (context, place)
    return _call(
        cuda,
        ("cuCtxSetCurrent", (context,)),
        ("cuMemAlloc_v2", (ctypes.byref(place), ctypes.c_size_t(_PEER_MIB << 20))),
    )


def _copy_to_peer(cuda: Any, source: int, target: int, held: _Held, pattern: bytes) -> Tuple[Optional[str], int]:
    """Copy a pattern by peer access and read it back from the other device; then copy it some times more, timed.

    Return what failed, or None, and the MiB per second.
    """
    (here, place), (there, other) = held[source], held[target]
    can, size = ctypes.c_int(), ctypes.c_size_t(len(pattern))
    back = ctypes.create_string_buffer(len(pattern))
    copy = ("cuMemcpyPeer", (other, there, place, here, size))
    failure = _call(cuda, ("cuDeviceCanAccessPeer", (ctypes.byref(can), source, target)))
    if failure is not None or not can.value:
        return failure or "no peer access", 0
    failure = _call(
        cuda,
        ("cuCtxSetCurrent", (here,)),
        ("cuCtxEnablePeerAccess", (there, 0)),
        ("cuMemcpyHtoD_v2", (place, pattern, size)),
        copy,
        _SYNCHRONIZE,
        ("cuCtxSetCurrent", (there,)),
        ("cuMemcpyDtoH_v2", (back, other, size)),
        ("cuCtxSetCurrent", (here,)),
    )
    if failure is not None or back.raw != pattern:
        return failure or "what was copied arrived changed", 0
    begin = time.perf_counter()
    failure = _call(cuda, *[copy] * _TIMED_COPIES, _SYNCHRONIZE)
    return failure, int(_PEER_MIB * _TIMED_COPIES / max(time.perf_counter() - begin, 1e-6))


def _call(cuda: Any, *calls: Tuple[str, Tuple[Any, ...]]) -> Optional[str]:
    """Call functions of libcuda by name until one fails. Return which, and its number."""
    for name, arguments in calls:
        code = getattr(cuda, name)(*arguments)
        if code and (name, code) != ("cuCtxEnablePeerAccess", _PEER_ACCESS_ALREADY_ENABLED):
            return f"{name} answers {code}"
    return None


def _kernel_log() -> List[str]:
    """The last lines of this boot's kernel log that the driver wrote."""
    try:
        lines = [line for line in _run("dmesg").splitlines() if "NVRM" in line]
    except (OSError, subprocess.SubprocessError):
        return []
    return [line[:_LONGEST] for line in lines[-_MOST_LINES:]]


if __name__ == "__main__":
    main()
