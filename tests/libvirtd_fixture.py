# SPDX-License-Identifier: Apache-2.0
"""A real libvirtd with its QEMU driver that shares nothing with the machine's own.

It runs in namespaces of its own (mount, network, process): its state, logs and configuration are folders of the
test, its networks stay inside, and every QEMU, dnsmasq and virtlogd ends with the namespace's first process.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import libvirt

_START_LIMIT_S = 20.0
_PRIVATE = (
    "/etc/libvirt",
    "/etc/qemu",
    "/var/lib/libvirt",
    "/var/lib/swtpm-localca",
    "/var/cache/libvirt",
    "/var/log/libvirt",
    "/var/log/swtpm",
    "/run",
)

# All of it ends with the tests, also when they are killed.
_NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
)

_LIBVIRTD_CONF = """
unix_sock_dir = "{sockets}"
unix_sock_rw_perms = "0700"
auth_unix_ro = "none"
auth_unix_rw = "none"
log_outputs = "2:file:{log}"
"""

# The guests run as root without labels: the machine may have no libvirt-qemu user, AppArmor or cgroups to give.
_QEMU_CONF = """
user = "root"
group = "root"
swtpm_user = "root"
swtpm_group = "root"
security_driver = "none"
cgroup_controllers = []
remember_owner = 0
namespaces = []
"""

_SCRIPT = """
set -e
mount --make-rprivate /
for folder in {private}; do
    mkdir -p "$folder"
    mount --bind {root}"$folder" "$folder"
done
# A /dev without kvm: where it exists and does not work, libvirt probes QEMU again at every call.
mount -t tmpfs none {root}/dev
cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty {root}/dev
mkdir {root}/dev/pts {root}/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 none {root}/dev/pts
ln -s pts/ptmx {root}/dev/ptmx
if [ -e /dev/net/tun ]; then mkdir {root}/dev/net; cp -a /dev/net/tun {root}/dev/net; fi
ln -s /proc/self/fd {root}/dev/fd
mount --rbind {root}/dev /dev
mount -t tmpfs -o size=1m none {root}/full
ip link set lo up 2>/dev/null || true
virtlogd --daemon
libvirtd --config {root}/libvirtd.conf --pid-file {root}/libvirtd.pid &
# The shell stays as the namespace's first process: it reaps the QEMUs that libvirtd waits for, libvirtd would not.
wait $!
"""


def missing_for_libvirtd() -> str | None:
    """Say what this machine lacks to run a private libvirtd; None when it has all."""
    if os.geteuid() != 0:
        return "a private libvirtd needs root for its namespaces"
    for program in ("libvirtd", "virtlogd", "setpriv", "unshare", "qemu-system-x86_64"):
        if shutil.which(program, path=_path()) is None:
            return f"{program} is not installed"
    probe = subprocess.run([*_NAMESPACES, "true"], capture_output=True, check=False)
    return None if probe.returncode == 0 else f"namespaces cannot be made: {probe.stderr.decode().strip()}"


class LocalLibvirtd:
    """The daemon as a context manager. folder: a new folder with a short path; everything lies in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """The URI for libvirt's QEMU driver in this daemon."""
        return f"qemu+unix:///system?socket={self.folder}/sockets/libvirt-sock&mode=legacy"

    @property
    def full_folder(self) -> Path:
        """A folder with room for 1 MiB, seen by the daemon only."""
        return self.folder / "full"

    @property
    def log(self) -> Path:
        """The daemon's log."""
        return self.folder / "libvirtd.log"

    def inside(self, *command: str) -> list[str]:
        """A command as it runs in the daemon's network namespace."""
        assert self._process is not None
        return ["nsenter", f"--net=/proc/{self._process.pid}/ns/net", *command]

    def __enter__(self) -> Self:
        for private in _PRIVATE:
            (self.folder / private.lstrip("/")).mkdir(parents=True)
        sockets = self.folder / "sockets"
        sockets.mkdir()
        for child in (
            "var/lib/libvirt/qemu",
            "var/lib/libvirt/images",
            "var/log/libvirt/qemu",
            "run/lock",
            "dev",
            "full",
        ):
            (self.folder / child).mkdir()
        (self.folder / "libvirtd.conf").write_text(_LIBVIRTD_CONF.format(sockets=sockets, log=self.log))
        (self.folder / "etc/libvirt/qemu.conf").write_text(_QEMU_CONF)
        script = _SCRIPT.format(root=shlex.quote(str(self.folder)), private=" ".join(_PRIVATE))
        with (self.folder / "console.log").open("wb") as console:
            self._process = subprocess.Popen(
                [*_NAMESPACES, "sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={"PATH": _path(), "HOME": str(self.folder), "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the daemon and everything it started."""
        process, self._process = self._process, None
        if process is None:
            return
        # The end of the namespace's first process, unshare's only child, ends all others in it.
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in children or [str(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        process.wait(timeout=10)

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_LIMIT_S
        while True:
            if self._process is not None and self._process.poll() is not None:
                raise RuntimeError(f"libvirtd ended: {self._output()}")
            if (self.folder / "sockets/libvirt-sock").exists():
                with contextlib.suppress(libvirt.libvirtError):
                    libvirt.open(self.uri).close()
                    return
            if time.monotonic() > deadline:
                raise RuntimeError(f"libvirtd does not answer within {_START_LIMIT_S:.0f} s: {self._output()}")
            time.sleep(0.05)

    def _output(self) -> str:
        return (self.folder / "console.log").read_text() + (self.log.read_text() if self.log.exists() else "")


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
