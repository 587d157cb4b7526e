# SPDX-License-Identifier: Apache-2.0
"""Root file systems with Debian's smallest set of packages, and programs in them without a network."""

import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

_SCRIPT = Path(__file__).parents[2] / "scripts" / "debian-root"


class CleanRoot:
    """One root. It needs root and the mirror that this machine's own apt uses; only the making uses a network."""

    def __init__(self, folder: Path, packages: Iterable[str]) -> None:
        self.folder = folder
        codename = platform.freedesktop_os_release()["VERSION_CODENAME"]
        command = [str(_SCRIPT), codename, str(folder), ",".join(packages)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, done.stderr[-2000:]

    def run(self, *command: str, user: str = "root", umask: int = 0o022) -> subprocess.CompletedProcess[str]:
        """Run a program in the root with /proc, and no network but its own loopback."""
        inner = ["runuser", "-u", user, "--", *command] if user != "root" else list(command)
        script = f'mount -t proc proc "{self.folder}/proc" && exec chroot "{self.folder}" "$@"'
        return subprocess.run(
            ["unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c", script, "sh", *inner],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"},
            umask=umask,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def does(self, *command: str, user: str = "root", umask: int = 0o022) -> str:
        """Run a program that must succeed. Returns its output."""
        done = self.run(*command, user=user, umask=umask)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def put(self, file: Path) -> str:
        """Copy a file into /srv. Returns its path in the root."""
        shutil.copy(file, self.folder / "srv")
        return f"/srv/{file.name}"

    def boot(self, script: str) -> str:
        """Boot it with systemd, without a network. Returns the output of a script that runs there as root."""
        units, result = self.folder / "etc/systemd/system", self.folder / "srv/result"
        (self.folder / "srv/check").write_text(
            f"exec >/srv/result 2>&1\n{script}\nsystemctl --force --force poweroff\n"
        )
        (units / "check.service").write_text("[Service]\nType=oneshot\nExecStart=/bin/sh /srv/check\n")
        (units / "default.target").unlink(missing_ok=True)
        (units / "default.target").symlink_to("/lib/systemd/system/multi-user.target")
        # Debian 13 has networkd on; without a network its wait would last two minutes.
        (units / "systemd-networkd-wait-online.service").symlink_to("/dev/null")
        (units / "multi-user.target.wants").mkdir(exist_ok=True)
        (units / "multi-user.target.wants/check.service").symlink_to("/etc/systemd/system/check.service")
        command = ["systemd-nspawn", "--quiet", f"--directory={self.folder}", f"--machine=release-{time.time_ns()}"]
        command += ["--private-network", "--register=no", "--keep-unit", "--console=pipe", "--boot"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert result.exists(), done.stdout[-3000:] + done.stderr[-1000:]
        return result.read_text()


def dependencies(package: Path) -> list[str]:
    """The packages that a Debian package needs: the first of alternatives, without versions."""
    field = subprocess.run(
        ["dpkg-deb", "-f", str(package), "Depends"], capture_output=True, text=True, check=True
    ).stdout
    return sorted({re.split(r"[ (|]", one.strip())[0] for one in field.split(",")})
