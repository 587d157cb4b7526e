# SPDX-License-Identifier: Apache-2.0
"""One QEMU process: its command line, its start, and questions over QMP."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from vgpuctl.errors import LabError
from vgpuctl_lab.cards import HostShape, numa_arguments, qemu_devices
from vgpuctl_lab.folder import LabFolder, write_private
from vgpuctl_lab.initramfs import initramfs
from vgpuctl_lab.kernel import Kernel
from vgpuctl_lab.network import qemu_card
from vgpuctl_lab.process import RecordedProcess, boot_id, needed_program, record

# Under TCG five-level page tables and protection keys make every access slower, `rep movsb` copies byte by byte, and
# vectors of AVX are calls.
_PROCESSOR = {
    "kvm": "host",
    "tcg": "max,la57=off,pku=off,smap=off,smep=off,umip=off,pcid=off,erms=off,fsrm=off,avx=off,avx2=off",
}
_QMP_LIMIT_S = 20.0
_PROBE_LIMIT_S = 12.0
_QMP_SOCKET = "qmp.sock"
# Drivers that take a card before the module does, or that the host does not need and that cost boot time.
_BLACKLIST = (
    "nvme,nouveau,nvidiafb,i915,xe,snd_hda_intel,bochs,lpc_ich,i2c_i801,iTCO_wdt,ahci,pcspkr,psmouse,kvm_amd,"
    "kvm_intel,floppy"
)
# acpiphp: QEMU tells ACPI of every VF as of a card that was plugged in, and the kernel's handler scans the bus then,
# while the driver of the PF may be taking the VFs away; a file of /proc/bus/pci outlived its VF so.
# norandmaps: TCG translates a library once for all processes that have it at the same address. With random addresses
# the start of a program takes twice to three times as long.
_KERNEL_ARGUMENTS = (
    "console=ttyS0 quiet loglevel=4 log_buf_len=4M panic=-1 net.ifnames=0 intel_iommu=on iommu=pt nokaslr"
    " acpiphp.disable=1 mitigations=off rcupdate.rcu_expedited=1 cryptomgr.notests random.trust_cpu=on tsc=reliable"
    " no_timer_check norandmaps"
)


@dataclass(frozen=True)
class Machine:
    """The parameters of one QEMU. accelerator: `tcg` or `kvm`. folder: of its files. port: 0 for any free one.

    number: of the host in its lab, from 1; its address between the hosts follows from it.
    """

    folder: Path
    shape: HostShape
    kernel: Kernel
    memory_mib: int
    accelerator: str
    uuid: str
    number: int
    processors: int = 2
    port: int = 0

    @property
    def console_log(self) -> Path:
        """The host's output on its serial console since its process started."""
        return self.folder / "console.log"

    def command(self) -> list[str]:
        """QEMU's whole command line; relative paths are in `folder`."""
        accelerator = "kvm" if self.accelerator == "kvm" else "tcg,thread=single,tb-size=512"
        arguments = (
            f"{_KERNEL_ARGUMENTS} modprobe.blacklist={_BLACKLIST} lab.modules={os.path.realpath(self.kernel.modules)}"
            f" lab.kernel={os.path.realpath(self.kernel.image)}"
        )
        return [
            needed_program("qemu-system-x86_64", package="qemu-system-x86"),
            *("-name", f"{self.shape.name},process=vgpuctl-lab", "-uuid", self.uuid),
            *("-nodefaults", "-no-user-config", "-display", "none"),
            *("-machine", "q35,hpet=off,sata=off,smbus=off,vmport=off,kernel-irqchip=split", "-accel", accelerator),
            *("-cpu", _PROCESSOR[self.accelerator], "-smp", str(self.processors)),
            *("-m", f"{self.memory_mib}M"),
            *numa_arguments(self.shape, self.memory_mib, self.processors),
            *("-kernel", str(self.kernel.image), "-initrd", "initramfs", "-append", arguments),
            *("-chardev", "file,id=console,path=console.log", "-serial", "chardev:console"),
            *("-qmp", f"unix:{_QMP_SOCKET},server=on,wait=off"),
            *("-device", "intel-iommu,intremap=on,caching-mode=on"),
            *("-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"),
            *("-device", "virtio-9p-pci,fsdev=root,mount_tag=root"),
            *("-drive", "file=disk.qcow2,if=none,id=disk,format=qcow2,cache=writeback,discard=unmap"),
            *("-device", "virtio-blk-pci,drive=disk"),
            *("-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self.port}-:22"),
            *("-device", "virtio-net-pci,netdev=net,romfile="),
            *qemu_card(self.number),
            *("-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng"),
            *qemu_devices(self.shape),
        ]

    def start(self, on_started: Callable[[RecordedProcess], None]) -> None:
        """Start QEMU in a session of its own and wait until it answers.

        on_started: told the process at once, so that it is on record before anything can fail.
        Raises LabError with what QEMU said when it ends or does not answer; the process is gone then.
        """
        errors = self.folder / "qemu.log"
        self.console_log.write_text("")
        (self.folder / _QMP_SOCKET).unlink(missing_ok=True)
        with errors.open("wb") as log:
            child = _start(self.command(), self.folder, log)
        try:
            on_started(record(child.pid))
            limit = time.monotonic() + _QMP_LIMIT_S
            while True:
                try:
                    self.ask("query-status")
                    return
                except LabError:
                    if child.poll() is not None or time.monotonic() > limit:
                        raise
                    time.sleep(0.05)
        except BaseException as error:
            child.kill()
            child.wait()
            if isinstance(error, LabError):
                said = errors.read_text(errors="replace").splitlines()[-10:]
                raise LabError(f"QEMU did not start for {self.shape.name}", context=said) from error
            raise

    def forwarded_port(self) -> int:
        """The TCP port of this machine that leads to the host's sshd. Raises LabError when QEMU does not answer."""
        text = str(self.ask("human-monitor-command", {"command-line": "info usernet"}))
        for line in text.splitlines():
            words = line.split()
            if len(words) > 3 and words[0].startswith("TCP[HOST_FORWARD]"):
                return int(words[3])
        raise LabError(f"QEMU of {self.shape.name} forwards no TCP port", context=text.splitlines())

    def ask(self, command: str, arguments: Mapping[str, object] | None = None) -> Any:
        """Ask QEMU over QMP. Raises LabError when it does not answer or refuses."""
        return ask(self.folder, command, arguments)


def ask(folder: Path, command: str, arguments: Mapping[str, object] | None = None) -> Any:
    """Ask the QEMU of a host's folder over QMP. Raises LabError when it does not answer or refuses."""
    try:
        with closing(_connect(folder)) as connection, connection.makefile("rb") as answers:
            _read_answer(answers)
            connection.sendall(b'{"execute": "qmp_capabilities"}\n')
            _read_answer(answers)
            question = {"execute": command, "arguments": dict(arguments or {})}
            connection.sendall(json.dumps(question).encode() + b"\n")
            answer = _read_answer(answers)
    except (OSError, ValueError) as error:
        raise LabError(f"QEMU of {folder.name} does not answer {command}: {error}") from error
    if "error" in answer:
        raise LabError(f"QEMU of {folder.name} refuses {command}: {answer['error'].get('desc')}")
    return answer.get("return")


def _start(command: list[str], folder: Path, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    except OSError as error:
        raise LabError(f"{command[0]} cannot be run: {error.strerror}") from error


def _connect(folder: Path) -> socket.socket:
    """Connect to QMP; through /proc, since a socket's path has at most 107 bytes."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_QMP_LIMIT_S)
        try:
            connection.connect(f"/proc/self/fd/{descriptor}/{_QMP_SOCKET}")
        except OSError:
            connection.close()
            raise
        return connection
    finally:
        os.close(descriptor)


def _read_answer(stream: IO[bytes]) -> dict[str, Any]:
    """Read one answer, passing over events."""
    while line := stream.readline():
        value = json.loads(line)
        if isinstance(value, dict) and "event" not in value:
            return value
    raise ValueError("it closed the connection")


def probed_accelerator(folder: LabFolder, kernel: Kernel) -> str:
    """`kvm` when a guest really boots with it here, else `tcg`. Asked once per boot of this machine.

    /dev/kvm may exist and run no stock kernel, so only a kernel that reaches our init counts.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    answer = folder.cache / "accelerator"
    question = f"{boot_id()} {kernel.release} {os.geteuid()}"
    with suppress(OSError):
        asked, _, known = answer.read_text().rpartition(" ")
        if asked == question and known in ("kvm", "tcg"):
            return known
    image = folder.cache / "probe.initramfs"
    write_private(image, initramfs(kernel, {}))
    command = [
        needed_program("qemu-system-x86_64", package="qemu-system-x86"),
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-machine", "q35", "-accel", "kvm", "-cpu", "host", "-m", "256M"),
        *("-kernel", str(kernel.image), "-initrd", str(image), "-append", "console=ttyS0 quiet panic=-1 lab.probe"),
    ]
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_LIMIT_S, check=False
        )
        works = b"probe answered" in ended.stdout
    except (subprocess.TimeoutExpired, OSError):
        works = False
    finally:
        image.unlink(missing_ok=True)
    accelerator = "kvm" if works else "tcg"
    write_private(answer, f"{question} {accelerator}")
    return accelerator
