# SPDX-License-Identifier: Apache-2.0
"""Builds that the lab makes once and keeps in its cache: kernel module, NVML, libnvfm, shim of libvirt, guest, disk."""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from vgpuctl_lab.folder import LabFolder, built
from vgpuctl_lab.kernel import Kernel
from vgpuctl_lab.process import checked, needed_program

MODULE_SOURCES = Path(__file__).parent / "kernel_module"
IN_HOST = Path(__file__).parent / "in_host"
NVML_SOURCES = Path(__file__).parent / "nvml_library"
SMI_SOURCES = Path(__file__).parent / "nvidia_smi"
FABRIC_SOURCES = Path(__file__).parent / "fabric_library"
_C_OPTIONS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration")
DISK_GIB = 16


def ensure_module(folder: LabFolder, kernel: Kernel) -> Path:
    """Build the kernel module against the kernel's headers. Returns the path of `vgpulab.ko`."""
    sources = sorted(
        file
        for file in MODULE_SOURCES.iterdir()
        if (file.suffix in (".c", ".h") and not file.name.endswith(".mod.c")) or file.name in ("Makefile", "Kbuild")
    )
    target = folder.cache / "module" / _key(sources, kernel.release)
    with built(target) as building:
        if building:
            for file in sources:
                shutil.copy(file, building)
            make = needed_program("make", package="make gcc")
            checked(
                [make, "-C", str(kernel.headers), f"M={building}", "modules"],
                what="building the lab's kernel module",
                timeout_s=300,
            )
    return target / "vgpulab.ko"


def ensure_shim(folder: LabFolder) -> Path:
    """Build the library that the host's libvirtd is loaded with (in_host/driver_link_shim.c says why)."""
    source = IN_HOST / "driver_link_shim.c"
    target = folder.cache / "shim" / _key([source], "")
    with built(target) as building:
        if building:
            compiler = needed_program("cc", package="gcc")
            output = building / "driver_link_shim.so"
            checked(
                [compiler, "-shared", "-fPIC", "-O2", "-o", str(output), str(source), "-ldl"],
                what="building libvirt's shim",
                timeout_s=60,
            )
    return target / "driver_link_shim.so"


def ensure_program_client(folder: LabFolder) -> Path:
    """Build what a login of a simulated host starts as each of its programs (simulated/program_client.c says why)."""
    source = Path(__file__).parent / "simulated/program_client.c"
    target = folder.cache / "program-client" / _key([source], "")
    with built(target) as building:
        if building:
            command = [needed_program("cc", package="gcc"), *_C_OPTIONS, "-o", str(building / "client"), str(source)]
            checked(command, what="building the programs of the simulated hosts", timeout_s=60)
    return target / "client"


def ensure_guest(folder: LabFolder) -> Path:
    """Assemble the tiny guest, a disk and a kernel in one (in_host/guest.S). Returns the raw image, 1 MiB."""
    source = IN_HOST / "guest.S"
    target = folder.cache / "guest" / _key([source], "")
    with built(target) as building:
        if building:
            options = ["-m32", "-nostdlib", "-static", "-Wl,-N,-Ttext=0,--oformat=binary,--build-id=none,-e,0"]
            checked(
                [needed_program("cc", package="gcc"), *options, "-o", str(building / "idle.img"), str(source)],
                what="assembling the tiny guest",
                timeout_s=60,
            )
    return target / "idle.img"


def ensure_nvml(folder: LabFolder) -> Path:
    """Build NVIDIA's part of a host. Returns the folder with `libnvidia-ml.so.1`, `nvidia-smi` and `libnvfm.so.1`."""
    sources = [file for one in (NVML_SOURCES, SMI_SOURCES, FABRIC_SOURCES) for file in _sources(one)]
    target = folder.cache / "nvml" / _key(sources, "")
    with built(target) as building:
        if building:
            build_nvidia_smi(building, build_nvml(building))
            build_nvfm(building)
    return target


def build_nvml(folder: Path) -> Path:
    """Compile the lab's NVML into a folder. Returns the library's path."""
    return _build_library(folder / "libnvidia-ml.so.1", _sources(NVML_SOURCES))


def build_nvfm(folder: Path) -> Path:
    """Compile the lab's libnvfm, the SDK of Fabric Manager, into a folder. Returns the library's path."""
    shared = [NVML_SOURCES / name for name in ("fabric_state.c", "lab_text.c")]
    return _build_library(folder / "libnvfm.so.1", [*_sources(FABRIC_SOURCES), *shared])


def _build_library(library: Path, sources: Sequence[Path]) -> Path:
    options = ["-fPIC", "-fvisibility=hidden", "-shared", f"-Wl,-soname,{library.name}", f"-I{NVML_SOURCES}"]
    command = [needed_program("cc", package="gcc"), *_C_OPTIONS, *options, "-o", str(library)]
    files = [str(file) for file in sources if file.suffix == ".c"]
    checked([*command, *files], what=f"building the lab's {library.name}", timeout_s=120)
    return library


def build_nvidia_smi(folder: Path, library: Path) -> Path:
    """Compile the lab's nvidia-smi, which asks that NVML, into a folder. Returns the program's path."""
    program = folder / "nvidia-smi"
    sources = [str(file) for file in _sources(SMI_SOURCES) if file.suffix == ".c"]
    command = [needed_program("cc", package="gcc"), *_C_OPTIONS, "-o", str(program)]
    checked([*command, *sources, str(library)], what="building the lab's nvidia-smi", timeout_s=120)
    return program


def ensure_empty_disk(folder: LabFolder) -> Path:
    """Make the disk that every host starts with: an empty ext4 in a qcow2 file of a few MiB."""
    target = folder.cache / "disk" / f"{DISK_GIB}GiB"
    with built(target) as building:
        if building:
            raw, image = building / "empty.raw", building / "empty.qcow2"
            with raw.open("wb") as file:
                file.truncate(DISK_GIB * 2**30)
            mkfs = needed_program("mkfs.ext4", package="e2fsprogs")
            options = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
            checked(
                [mkfs, "-q", "-F", "-m", "0", "-J", "size=16", "-L", "vgpulab", "-E", options, str(raw)],
                what="making the empty disk",
                timeout_s=120,
            )
            convert = needed_program("qemu-img", package="qemu-utils")
            checked(
                [convert, "convert", "-q", "-f", "raw", "-O", "qcow2", str(raw), str(image)],
                what="making the empty disk",
                timeout_s=120,
            )
            raw.unlink()
    return target / "empty.qcow2"


def _sources(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in (".c", ".h"))


def _key(files: list[Path], salt: str) -> str:
    digest = hashlib.sha256(salt.encode())
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:24]
