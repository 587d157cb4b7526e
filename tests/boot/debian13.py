# SPDX-License-Identifier: Apache-2.0
"""A Debian 13 host with emulated GPUs whose own systemd is process 1: the lab's QEMU, kernel and module."""

import base64
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import paramiko

from vgpuctl_lab.builds import ensure_empty_disk, ensure_guest, ensure_module, ensure_nvml, ensure_shim
from vgpuctl_lab.cards import parse_host
from vgpuctl_lab.folder import LabFolder
from vgpuctl_lab.identity import host_files
from vgpuctl_lab.initramfs import Archive, add_modules, busybox
from vgpuctl_lab.kernel import ensure_kernel
from vgpuctl_lab.machine import Machine
from vgpuctl_lab.process import RecordedProcess

NAME = "gpu13"
_HERE = Path(__file__).parent
_SCRIPT = _HERE.parents[1] / "scripts" / "debian13-root"
_LIMIT_S = 600.0
# Of the lab's files those that make no Debian 12 of the root.
_LAB_FILES = ("cards", "vgpuConfig.xml", "sriov-manage", "vgpulab.ko", "keep-mig-mode")
_LAB_FOLDERS = ("nvidia/", "sshd/", "guest/")
_CARDS_UNIT = """\
[Unit]
Description=Emulated GPUs
DefaultDependencies=no
After=systemd-udevd.service systemd-remount-fs.service
Before=sysinit.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/run/lab/bring-cards
"""
# NVIDIA's own are not free; these have their names and stay, as those do.
_STAND_IN = "[Unit]\nDescription=Stands in for {0}\n[Service]\nExecStart=/bin/sleep infinity\n"
STAND_INS = ("nvidia-vgpud.service", "nvidia-vgpu-mgr.service", "nvidia-fabricmanager.service", "nvidia-dcgm.service")
_UNITS = "root/etc/systemd/system"


def ensure_root() -> Path:
    """The root file system, installed at the first call. Raises AssertionError with what the script said."""
    done = subprocess.run([str(_SCRIPT)], capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@dataclass(frozen=True)
class SystemdMachine(Machine):
    """A machine with a root file system of its own, and one more network card that nobody answers."""

    root: Path = Path("/")

    def command(self) -> list[str]:
        """QEMU's whole command line; it ends when the host reboots."""
        words = [
            word.replace("local,id=root,path=/,", f"local,id=root,path={self.root},") for word in super().command()
        ]
        # The lab's network between hosts needs a switch; this host is alone.
        start = next(number for number, word in enumerate(words) if word.startswith("vde,"))
        del words[start - 1 : start + 3]
        return [
            *words,
            *("-fsdev", f"local,id=modules,path={self.kernel.modules},security_model=none,readonly=on,multidevs=remap"),
            *("-device", "virtio-9p-pci,fsdev=modules,mount_tag=modules"),
            *("-netdev", "hubport,id=uplink,hubid=1", "-device", "virtio-net-pci,netdev=uplink,romfile="),
            "-no-reboot",
        ]


class Debian13:
    """The host. folder: of its disk and of what is built. root: from `ensure_root`."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._lab = LabFolder(folder)
        self._lab.claim()
        kernel = ensure_kernel(self._lab)
        shape = parse_host(f"{NAME}=a40")
        home = self._lab.host(NAME)
        home.mkdir(parents=True, exist_ok=True)
        shutil.copy(ensure_empty_disk(self._lab), home / "disk.qcow2")
        module, shim, nvml = ensure_module(self._lab, kernel), ensure_shim(self._lab), ensure_nvml(self._lab)
        files = host_files(self._lab, shape, module, shim, nvml, ensure_guest(self._lab), None)
        (home / "initramfs").write_bytes(_archive(kernel.modules, files))
        uuid = "0d0d0d0d-0000-4000-8000-000000000013"
        self._machine = SystemdMachine(home, shape, kernel, 2048, "tcg", uuid, 1, root=root)
        self._process: RecordedProcess | None = None
        self._client: paramiko.SSHClient | None = None
        self.port = 0

    @property
    def private_key(self) -> Path:
        """The key that root logs in with."""
        return self._lab.private_key

    @property
    def known_host(self) -> str:
        """The host's line for known_hosts."""
        public = (self._lab.host(NAME) / "host_key.pub").read_text().split()
        return f"[127.0.0.1]:{self.port} {public[0]} {public[1]}\n"

    @property
    def console(self) -> str:
        """Return the text of the host's console since its start."""
        return self._machine.console_log.read_text(errors="replace")

    def start(self) -> None:
        """Switch it on and wait until systemd has started everything."""
        self._machine.start(self._note)
        self.port = self._machine.forwarded_port()
        # The inventory has it, also after a reboot.
        self._machine = replace(self._machine, port=self.port)
        self.wait_for(self._logs_in, "sshd answers")
        self.wait_for(lambda: self.run("systemctl is-system-running")[1].strip() in ("running", "degraded"), "it is up")

    def reboot(self) -> None:
        """Let systemd reboot it, and wait until it is up again."""
        self.run("systemctl reboot")
        self._close()
        process = self._process
        assert process is not None
        self.wait_for(lambda: not process.is_running(), "systemd has shut it down")
        self.start()

    def end(self) -> None:
        """Switch it off."""
        self._close()
        if self._process is not None:
            self._process.end(grace_s=1)

    def run(self, text: str, timeout_s: float = 240) -> tuple[int, str]:
        """Run shell text as root: exit status, stdout and stderr together."""
        if self._client is None:
            self._connect()
        assert self._client is not None
        _input, output, _errors = self._client.exec_command(f"exec 2>&1; {text}", timeout=timeout_s)
        said = output.read().decode(errors="replace")
        return output.channel.recv_exit_status(), said

    def does(self, text: str) -> str:
        """Run shell text that must succeed. Returns what it said."""
        code, said = self.run(text)
        assert code == 0, f"{text}: {code}\n{said}"
        return said

    def _note(self, process: RecordedProcess) -> None:
        self._process = process

    def wait_for(self, is_so: Callable[[], bool], what: str) -> None:
        """Ask until it is so, with a limit."""
        end = time.monotonic() + _LIMIT_S
        while not is_so():
            assert time.monotonic() < end, f"not within {_LIMIT_S:g} s: {what}\n{self.console[-4000:]}"
            time.sleep(1)

    def _logs_in(self) -> bool:
        try:
            self._connect()
        except (OSError, paramiko.SSHException):
            return False
        return True

    def _connect(self) -> None:
        client = paramiko.SSHClient()
        name, kind, key = self.known_host.split()
        client.get_host_keys().add(name, kind, paramiko.PKey.from_type_string(kind, base64.b64decode(key)))
        client.connect(
            "127.0.0.1",
            port=self.port,
            username="root",
            key_filename=str(self.private_key),
            allow_agent=False,
            look_for_keys=False,
            timeout=20,
            banner_timeout=60,
            auth_timeout=60,
        )
        self._client = client

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _archive(modules: Path, lab_files: dict[str, tuple[bytes, int]]) -> bytes:
    archive = Archive()
    for folder in ("dev", "proc", "sys", "lower", "kernel", "upper", "newroot"):
        archive.add_folder(folder)
    archive.add_character_device("dev/console", 5, 1)
    archive.add("bin/busybox", busybox(), 0o755)
    archive.add_link("bin/sh", "busybox")
    archive.add("init", (_HERE / "init").read_bytes(), 0o755)
    add_modules(archive, modules)
    for path, (content, mode) in {**lab_files, **_own_files()}.items():
        if path in _LAB_FILES or path.startswith((*_LAB_FOLDERS, "root/")) or path == "bring-cards":
            archive.add(f"lab/{path}", content, mode)
    archive.add("lab/root/etc/ssh/sshd_config", lab_files["sshd/sshd_config"][0])
    # Without one, systemd assumes the system's first start and enables units that the packages do not.
    archive.add("lab/root/etc/machine-id", lab_files["etc/machine-id"][0], 0o444)
    archive.add_link(f"lab/{_UNITS}/sysinit.target.wants/vgpulab-cards.service", "../vgpulab-cards.service")
    for name in STAND_INS:
        archive.add_link(f"lab/{_UNITS}/multi-user.target.wants/{name}", f"../{name}")
    return archive.finished()


def _own_files() -> dict[str, tuple[bytes, int]]:
    files = {
        f"{_UNITS}/vgpulab-cards.service": (_CARDS_UNIT.encode(), 0o644),
        "root/etc/hostname": (f"{NAME}\n".encode(), 0o644),
        "bring-cards": ((_HERE / "cards").read_bytes(), 0o755),
    }
    return files | {f"{_UNITS}/{name}": (_STAND_IN.format(name).encode(), 0o644) for name in STAND_INS}
