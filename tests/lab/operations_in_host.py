# SPDX-License-Identifier: Apache-2.0
"""Runs in the emulated host: a list of file and VFIO operations, one answer each, so that a rule costs one round trip.

An answer is the text read, the list found, "ok", or the name of the errno that the kernel gave.
Imports are few and nothing comes from pathlib: starting Python is what a test mostly waits for under TCG.
"""
# ruff: noqa: PTH115, PTH116, PTH123, PTH208

import array
import errno
import fcntl
import json
import os
import struct
import sys
import time

VFIO_GROUP_GET_STATUS = 0x3B67
VFIO_GROUP_SET_CONTAINER = 0x3B68
VFIO_SET_IOMMU = 0x3B66
VFIO_TYPE1_IOMMU = 1
VFIO_GROUP_GET_DEVICE_FD = 0x3B6A
VFIO_DEVICE_RESET = 0x3B6F
VFIO_DEVICE_FEATURE = 0x3B75
FEATURE_GET, FEATURE_SET = 1 << 16, 1 << 17
FEATURE_MIGRATION, FEATURE_DEVICE_STATE, FEATURE_DATA_SIZE = 1, 2, 9
LOGGING_START, LOGGING_STOP, LOGGING_REPORT = 6, 7, 8
STATES = {"stop": 1, "running": 2, "stop-copy": 3, "resuming": 4, "running-p2p": 5}
CONFIG_REGION = 7 << 40

held: dict[str, list[int]] = {}
messages = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
os.lseek(messages, 0, os.SEEK_END)


def write(path: str, text: str) -> str:
    """One write(2), as `echo TEXT > PATH` does it."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
    return "ok"


def read(path: str) -> str:
    with open(path) as file:
        return file.read().rstrip("\n")


def config(path: str) -> str:
    """The first four bytes of a configuration space: vendor and device."""
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 4).hex()
    finally:
        os.close(file)


def link(path: str) -> str:
    return os.readlink(path).rpartition("/")[2]


def types(function: str) -> dict[str, int]:
    """The available counts of a function's mdev types."""
    folder = f"/sys/class/mdev_bus/{function}/mdev_supported_types"
    return {name: int(read(f"{folder}/{name}/available_instances")) for name in os.listdir(folder)}


def creatable(function: str) -> list[int]:
    lines = read(f"/sys/bus/pci/devices/{function}/nvidia/creatable_vgpu_types").splitlines()
    assert lines[0] == "ID    : vGPU Name", lines[0]
    return [int(line.split(":")[0]) for line in lines[1:]]


def vfio_open(device: str, name: str) -> str:
    """Open a VFIO device as a QEMU does: container, group, IOMMU, device."""
    files = [os.open("/dev/vfio/vfio", os.O_RDWR)]
    try:
        group = link(f"{device}/iommu_group")
        files.append(os.open(f"/dev/vfio/{group}", os.O_RDWR))
        fcntl.ioctl(files[1], VFIO_GROUP_SET_CONTAINER, struct.pack("i", files[0]))
        fcntl.ioctl(files[0], VFIO_SET_IOMMU, VFIO_TYPE1_IOMMU)
        files.append(fcntl.ioctl(files[1], VFIO_GROUP_GET_DEVICE_FD, bytearray(name.encode() + b"\0")))
    except OSError:
        close(files)
        raise
    held[name] = files
    return "ok"


def close(files: list[int]) -> None:
    for file in reversed(files):
        os.close(file)


def vfio_close(name: str) -> str:
    close(held.pop(name))
    return "ok"


def vfio_config(name: str, where: int, count: int) -> str:
    return os.pread(held[name][2], count, CONFIG_REGION + where).hex()


def vfio_config_write(name: str, where: int, text: str) -> str:
    os.pwrite(held[name][2], bytes.fromhex(text), CONFIG_REGION + where)
    return "ok"


def vfio_reset(name: str) -> str:
    """The kernel answers EAGAIN while anybody else, such as a reader of /sys, has the device's lock."""
    for _ in range(50):
        try:
            fcntl.ioctl(held[name][2], VFIO_DEVICE_RESET)
            return "ok"
        except BlockingIOError:  # EAGAIN of pci_try_reset_function, Linux drivers/pci/pci.c
            time.sleep(0.1)
    return "EAGAIN"


def feature(name: str, flags: int, *values: int, layout: str) -> list[int]:
    """One VFIO_DEVICE_FEATURE with the data that the layout describes; the data after it."""
    header = struct.calcsize("=II")
    request = bytearray(struct.pack("=II" + layout, header + struct.calcsize("=" + layout), flags, *values))
    fcntl.ioctl(held[name][2], VFIO_DEVICE_FEATURE, request)
    return list(struct.unpack_from("=" + layout, request, header))


def vfio_move_flags(name: str) -> int:
    return feature(name, FEATURE_GET | FEATURE_MIGRATION, 0, layout="Q")[0]


def vfio_move_size(name: str) -> int:
    return feature(name, FEATURE_GET | FEATURE_DATA_SIZE, 0, layout="Q")[0]


def vfio_move_state(name: str, state: str) -> str:
    """Set the migration state; the stream that begins with it is held."""
    stream = feature(name, FEATURE_SET | FEATURE_DEVICE_STATE, STATES[state], -1, layout="Ii")[1]
    if stream >= 0:
        vfio_move_end(name)
        held[f"stream of {name}"] = [stream]
    return "ok"


def vfio_move_end(name: str) -> str:
    """Close the stream of a device, if there is one."""
    close(held.pop(f"stream of {name}", []))
    return "ok"


def vfio_move_stream(source: str, target: str) -> int:
    """Copy one device's stream to the end into the other's; how many bytes."""
    (reader,), (writer,) = held[f"stream of {source}"], held[f"stream of {target}"]
    count = 0
    while data := os.read(reader, 1 << 20):
        count += os.write(writer, data)
    return count


def vfio_dma_log(name: str) -> list[int]:
    """Start the log of the device's DMA over 1 MiB, read it and stop it; the words of its bitmap, of pages of 4 KiB."""
    ranges, bitmap = array.array("Q", [0, 1 << 20]), array.array("Q", [0] * 4)
    feature(name, FEATURE_SET | LOGGING_START, 4096, 1, 0, ranges.buffer_info()[0], layout="QIIQ")
    feature(name, FEATURE_GET | LOGGING_REPORT, 0, 1 << 20, 4096, bitmap.buffer_info()[0], layout="QQQQ")
    feature(name, FEATURE_SET | LOGGING_STOP, layout="")
    return bitmap.tolist()


def control(line: str) -> str:
    """One command of /proc/vgpulab/control and its answer."""
    file = os.open("/proc/vgpulab/control", os.O_RDWR)
    try:
        os.write(file, line.encode())
        return os.read(file, 4096).decode().rstrip("\n")
    finally:
        os.close(file)


def attach(line: str) -> str:
    """A command of the control file whose effect lasts while the file is open, until `release`."""
    file = os.open("/proc/vgpulab/control", os.O_RDWR)
    held[line] = [file]
    os.write(file, line.encode())
    return os.read(file, 4096).decode().rstrip("\n")


def another(line: str) -> str:
    """The answer to another process than this one, which may hold devices."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, control(line).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as output:
        return output.read()


def state(word: str, address: str) -> list[str]:
    """The lines of /proc/vgpulab/state that begin so, without that."""
    start = f"{word} {address} "
    return [line[len(start) :] for line in read("/proc/vgpulab/state").splitlines() if line.startswith(start)]


def hold(path: str) -> str:
    held[path] = [os.open(path, os.O_RDWR)]
    return "ok"


def kernel_log() -> list[str]:
    """The kernel's log since these operations began."""
    lines: list[str] = []
    while True:
        try:
            record = os.read(messages, 8192)
        except BlockingIOError:
            return lines
        lines.append(record.decode().split(";", 1)[1].split("\n")[0])


def program(*arguments: str) -> list[object]:
    """Exit status, stdout and stderr as one text."""
    reader, writer = os.pipe()
    both = [(os.POSIX_SPAWN_DUP2, writer, stream) for stream in (1, 2)]
    child = os.posix_spawn(arguments[0], arguments, os.environ, file_actions=both)
    os.close(writer)
    with os.fdopen(reader) as output:
        text = output.read()
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text]


def clean() -> str:
    """Delete every vGPU of the host."""
    for line in read("/proc/vgpulab/state").splitlines():
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if not line.startswith("vgpu "):
            continue
        if words["uuid"] == "-":
            write(f"/sys/bus/pci/devices/{words['function']}/nvidia/current_vgpu_type", "0")
        else:
            write(f"/sys/bus/mdev/devices/{words['uuid']}/remove", "1")
    return "ok"


def until(path: str, text: str, limit_s: float) -> str:
    """Write until it succeeds; the last answer when it never does."""
    end = time.monotonic() + limit_s
    while True:
        try:
            return write(path, text)
        except OSError as error:
            if time.monotonic() > end:
                return errno.errorcode[error.errno or 0]
            time.sleep(0.05)


OPERATIONS = {
    "write": write,
    "write-until": until,
    "read": read,
    "exists": os.path.exists,
    "config": config,
    "list": lambda path: sorted(os.listdir(path)),
    "link": link,
    "mode": lambda path: oct(os.stat(path).st_mode & 0o777),
    "types": types,
    "creatable": creatable,
    "vfio-open": vfio_open,
    "vfio-close": vfio_close,
    "vfio-config": vfio_config,
    "vfio-config-write": vfio_config_write,
    "vfio-reset": vfio_reset,
    "vfio-move-flags": vfio_move_flags,
    "vfio-move-size": vfio_move_size,
    "vfio-move-state": vfio_move_state,
    "vfio-move-stream": vfio_move_stream,
    "vfio-move-end": vfio_move_end,
    "vfio-dma-log": vfio_dma_log,
    "hold": hold,
    "control": control,
    "attach": attach,
    "another": another,
    "state": state,
    "release": vfio_close,
    "log": kernel_log,
    "program": program,
    "clean": clean,
}


def answer(operation: list[object]) -> object:
    try:
        return OPERATIONS[str(operation[0])](*operation[1:])  # type: ignore[operator]
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))


json.dump([answer(operation) for operation in json.loads(sys.argv[1])], sys.stdout)
