# SPDX-License-Identifier: Apache-2.0
"""Runs in the emulated host behind a part of pynvml: calls of pynvml, programs and files, one answer each.

An answer of NVML's that is an error is its number; a program's is its exit code and what it printed.
"""
# ruff: noqa: F821, PTH115, PTH123

import json
import os
import subprocess
import sys

# Opens a VF's VFIO device as a QEMU does, and is named as one.
VM = """
import fcntl, os, struct, sys
container, group = os.open("/dev/vfio/vfio", os.O_RDWR), os.open(sys.argv[1], os.O_RDWR)
fcntl.ioctl(group, 0x3B68, struct.pack("i", container))
fcntl.ioctl(container, 0x3B66, 1)
device = fcntl.ioctl(group, 0x3B6A, bytearray(sys.argv[2].encode() + b"\\0"))
print("open", flush=True)
sys.stdin.read()
"""

known: dict[str, object] = {}
machines: dict[str, "subprocess.Popen[str]"] = {}


def nvml(text: str) -> object:
    """The value of a Python expression over pynvml's names and what was kept."""
    try:
        value = eval(text, globals() | known)
    except NVMLError as error:  # type: ignore[name-defined]
        return int(error.value)
    return value.decode() if isinstance(value, bytes) else value


def keep(name: str, text: str) -> str:
    known[name] = eval(text, globals() | known)
    return "ok"


def smi(*arguments: str) -> list[object]:
    return program("nvidia-smi", *arguments)


def program(*arguments: str) -> list[object]:
    done = subprocess.run(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120
    )
    return [done.returncode, done.stdout]


def closed(*arguments: str) -> list[object]:
    """Run a program while NVML is shut down here."""
    nvmlShutdown()  # type: ignore[name-defined]
    try:
        return program(*arguments)
    finally:
        nvmlInit()  # type: ignore[name-defined]


def read(path: str) -> str:
    with open(path) as file:
        return file.read().rstrip("\n")


def write(path: str, text: str) -> str:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
    return "ok"


def creatable(path: str) -> list[int]:
    return [int(line.split(":")[0]) for line in read(path).splitlines()[1:]]


def start_vm(function: str, name: str, uuid: str) -> str:
    group = os.readlink(f"/sys/bus/pci/devices/{function}/iommu_group").rpartition("/")[2]
    machines[name] = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", VM, f"/dev/vfio/{group}", function, "-name", f"guest={name}", "-uuid", uuid],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    output = machines[name].stdout
    assert output is not None
    return output.readline().strip()


def stop_vm(name: str) -> int:
    with machines.pop(name) as machine:
        assert machine.stdin is not None
        machine.stdin.close()
    return machine.returncode


def answer(operation: str, *arguments: str) -> object:
    try:
        return globals()[operation](*arguments)
    except OSError as error:
        return os.strerror(error.errno or 0)


if __name__ == "__main__":
    nvmlInit()  # type: ignore[name-defined]
    answers = [answer(*one) for one in json.loads(sys.argv[1])]
    nvmlShutdown()  # type: ignore[name-defined]
    sys.stdout.write(json.dumps(answers))
