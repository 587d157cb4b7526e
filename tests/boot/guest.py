# SPDX-License-Identifier: Apache-2.0
"""A Debian guest with our seed, alone in an emulated machine, and a repository on loopback that it installs from."""

import base64
import functools
import hashlib
import http.server
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpuctl.guests.seed.image import seed_image
from vgpuctl.model.network import mac_address
from vgpuctl.model.vm import Vm, VmRequest, VmState
from vgpuctl_lab.licensing import client

HOST = "10.0.2.2"
"""This machine's loopback, as the guest sees it (QEMU, user-mode network)."""
VERSION, NEWER = "580.95.05", "590.44.01"
_SCRIPT = Path(__file__).parents[2] / "scripts" / "guest-image"
_LIMIT_S = 800.0
UUID = "0d0d0d0d-0000-4000-8000-000000000016"
_SMI = """\
#!/bin/sh
[ "$*" = '-q -x' ] || {{ echo {version}; exit; }}
status='Unlicensed (Unrestricted)'
! tail -n 1 /run/gridd-state 2>/dev/null | grep -q '"licensed": true' || status=Licensed
echo "<nvidia_smi_log><driver_version>{version}</driver_version><gpu id='00000000:00:05.0'>"
echo "<product_name>NVIDIA A40</product_name><vgpu_software_licensed_product>"
echo "<license_status>$status</license_status></vgpu_software_licensed_product></gpu></nvidia_smi_log>"
"""
_CLIENT = "usr/lib/nvidia/licence_client.py"
# As NVIDIA's: what gridd.conf asks for, with the token of the folder, of the machine that the firmware names.
_GRIDD = f"""\
#!/bin/sh
case $(sed -n 's/^FeatureType=//p' /etc/nvidia/gridd.conf) in 2) edition=vws ;; *) edition=vcs ;; esac
exec /usr/bin/python3 -I /{_CLIENT} /etc/nvidia/ClientConfigToken/*.tok "$(cat /sys/class/dmi/id/product_uuid)" $edition
"""
_GRIDD_UNIT = """\
[Service]
ExecStart=/usr/bin/nvidia-gridd
StandardOutput=file:/run/gridd-state
[Install]
WantedBy=multi-user.target
"""
_CTK = """\
#!/bin/sh
[ "$1 $2" = 'cdi generate' ] || exit 1
mkdir -p /var/run/cdi
echo '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu"}' >"${3#--output=}"
"""
_RUN_FILE = """\
#!/bin/sh
echo "$*" >/run/installer-flags
[ -d /lib/modules/$(uname -r)/build ] || exit 1
cat >/usr/bin/nvidia-smi <<'SMI'
{smi}SMI
chmod 0755 /usr/bin/nvidia-smi
"""


@dataclass(frozen=True)
class GuestImage:
    """The files of scripts/guest-image."""

    folder: Path

    @classmethod
    def made(cls) -> "GuestImage":
        """The image, made at the first call. Raises AssertionError with what the script said."""
        done = subprocess.run([str(_SCRIPT)], capture_output=True, text=True, check=False, timeout=1200)
        assert done.returncode == 0, done.stderr
        return cls(Path(done.stdout.strip()))

    @property
    def release(self) -> str:
        """The kernel's release."""
        return (self.folder / "release").read_text().strip()


@dataclass(frozen=True)
class Served:
    """The files for the guest. key: of the repository. sha256: of the run-file."""

    address: str
    key: str
    sha256: str

    @property
    def repository(self) -> str:
        """Its line for APT."""
        return f"deb {self.address}/repository stable main"


@contextmanager
def served(folder: Path, release: str) -> Iterator[Served]:
    """Serve a signed repository with stand-ins of the driver and what it needs, and a stand-in of the run-file."""
    key = _make_repository(folder / "repository", folder, release)
    run_file = _RUN_FILE.format(smi=_SMI.format(version=VERSION)).encode()
    (folder / "driver.run").write_bytes(run_file)
    handler = functools.partial(_QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield Served(f"http://{HOST}:{server.server_port}", key, hashlib.sha256(run_file).hexdigest())
        finally:
            server.shutdown()
            thread.join()


class _QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_words: Any) -> None:
        """Say nothing."""


def _make_repository(root: Path, work: Path, release: str) -> str:
    pool = root / "pool"
    pool.mkdir(parents=True)
    for version in (VERSION, NEWER):
        files = {
            "usr/bin/nvidia-smi": _SMI.format(version=version),
            "usr/bin/nvidia-gridd": _GRIDD,
            _CLIENT: Path(client.__file__).read_text(),
            "lib/systemd/system/nvidia-gridd.service": _GRIDD_UNIT,
            "etc/nvidia/gridd.conf.template": "# FeatureType=0\n",
        }
        _make_package(pool, work, "nvidia-driver", f"{version}-1", files)
    _make_package(pool, work, "nvidia-container-toolkit", "1.17.0-1", {"usr/bin/nvidia-ctk": _CTK})
    _make_package(pool, work, f"linux-headers-{release}", "1", {f"lib/modules/{release}/build/Makefile": "all:\n"})
    for name in ("gcc", "make", "dkms"):
        _make_package(pool, work, name, "99", {f"usr/bin/{name}": "#!/bin/sh\n"})
    index = root / "dists/stable/main/binary-amd64"
    index.mkdir(parents=True)
    listed = _run("dpkg-scanpackages", "--multiversion", "pool", cwd=root)
    (index / "Packages").write_text(listed)
    digest = hashlib.sha256(listed.encode()).hexdigest()
    release_text = (
        "Origin: stand-in\nSuite: stable\nCodename: stable\nArchitectures: amd64\nComponents: main\n"
        f"Date: {time.strftime('%a, %d %b %Y %H:%M:%S +0000', time.gmtime())}\n"
        f"SHA256:\n {digest} {len(listed.encode())} main/binary-amd64/Packages\n"
    )
    (root / "dists/stable/Release").write_text(release_text)
    home = work / "gnupg"
    home.mkdir(mode=0o700)
    gpg = ("gpg", "--homedir", str(home), "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "")
    _run(*gpg, "--quick-generate-key", "stand-in", "ed25519", "sign", "never")
    signed = root / "dists/stable/InRelease"
    _run(*gpg, "--clearsign", "--output", str(signed), str(root / "dists/stable/Release"))
    key = _run(*gpg, "--export", "--armor", "stand-in")
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=True)
    return key


def _make_package(pool: Path, work: Path, name: str, version: str, files: Mapping[str, str]) -> None:
    tree = work / "tree" / f"{name}-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody <nobody@example>\n"
        "Description: stand-in of a test\n"
    )
    for path, text in files.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_text(text)
        (tree / path).chmod(0o755 if "/bin/" in path else 0o644)
    _run("dpkg-deb", "--root-owner-group", "--build", str(tree), str(pool / f"{name}_{version}_amd64.deb"))


def _run(*argv: str, cwd: Path | None = None) -> str:
    return subprocess.run(argv, cwd=cwd, check=True, capture_output=True, text=True, timeout=60).stdout


class Guest:
    """One machine under QEMU's TCG: an overlay on the image, the seed of a request, and the guest agent's channel."""

    def __init__(self, folder: Path, image: GuestImage, request: VmRequest) -> None:
        self._folder = folder
        self._console = folder / "console"
        vm = Vm(UUID, request, "here", VmState.CREATING)
        (folder / "seed.iso").write_bytes(seed_image(request.cloud_init, vm))
        disk = folder / "disk.qcow2"
        _run("qemu-img", "create", "-q", "-f", "qcow2", "-b", str(image.folder / "disk.img"), "-F", "raw", str(disk))
        self._process = subprocess.Popen(
            [
                *(
                    "qemu-system-x86_64",
                    "-machine",
                    "q35,accel=tcg",
                    "-cpu",
                    "max",
                    "-smp",
                    "2",
                    "-m",
                    "1024",
                    "-uuid",
                    UUID,
                ),
                *("-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{self._console}"),
                *("-kernel", str(image.folder / "vmlinuz"), "-initrd", str(image.folder / "initrd.img")),
                *("-append", "root=/dev/vda console=ttyS0 mitigations=off"),
                *("-drive", f"if=virtio,format=qcow2,file={disk},cache=unsafe"),
                *("-drive", f"if=none,id=seed,format=raw,readonly=on,file={folder / 'seed.iso'}"),
                # As a VM with a Linux profile has it; Debian's cloud kernel has no driver for SATA.
                *("-device", "virtio-scsi-pci", "-device", "scsi-cd,drive=seed", "-netdev", "user,id=net"),
                *("-device", f"virtio-net-pci,netdev=net,mac={mac_address(UUID)},romfile="),
                *("-chardev", f"socket,id=agent,path={folder / 'agent'},server=on,wait=off"),
                *(
                    "-device",
                    "virtio-serial-pci",
                    "-device",
                    "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
                ),
            ],
            stderr=(folder / "qemu.log").open("wb"),
        )
        self._agent: socket.socket | None = None

    def end(self) -> None:
        """Switch it off."""
        if self._agent is not None:
            self._agent.close()
        self._process.kill()
        self._process.wait()

    def wait_for_end(self) -> None:
        """Wait until the guest has powered itself off."""
        self._process.wait(_LIMIT_S)

    @property
    def console(self) -> str:
        """All that the guest wrote to its console."""
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def wait_for(self, text: str) -> str:
        """Wait until the console has a text. Returns the line."""
        end = time.monotonic() + _LIMIT_S
        while (line := next((one for one in self.console.splitlines() if text in one), None)) is None:
            assert self._process.poll() is None, (self._folder / "qemu.log").read_text() + self.console[-4000:]
            assert time.monotonic() < end, f"not within {_LIMIT_S:g} s: {text}\n{self.console[-6000:]}"
            time.sleep(0.5)
        return line

    def runs(self, text: str) -> str:
        """Run shell text in the guest by its agent. Returns what it printed."""
        words = {"path": "/bin/sh", "arg": ["-c", text], "capture-output": True}
        pid = self._asks("guest-exec", words)["pid"]
        end = time.monotonic() + 60
        while not (status := self._asks("guest-exec-status", {"pid": pid}))["exited"]:
            assert time.monotonic() < end, text
            time.sleep(0.2)
        said = base64.b64decode(status.get("out-data", "")).decode()
        assert status["exitcode"] == 0, (text, said, base64.b64decode(status.get("err-data", "")).decode())
        return said

    def reads(self, path: str) -> str:
        """The content of a file in the guest."""
        return self.runs(f"cat {path}")

    def _asks(self, command: str, arguments: Mapping[str, Any]) -> Any:
        if self._agent is None:
            self._agent = socket.socket(socket.AF_UNIX)
            self._agent.settimeout(60)
            self._agent.connect(str(self._folder / "agent"))
        self._agent.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        data = b""
        while not data.endswith(b"\n"):
            data += self._agent.recv(65536)
        answer = json.loads(data)
        assert "return" in answer, answer
        return answer["return"]
