# SPDX-License-Identifier: Apache-2.0
"""The emulated hosts' kernel: Debian's stock one, this machine's own or unpacked into the lab, never installed."""

import lzma
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import LabError
from vgpuctl_lab.folder import LabFolder, built
from vgpuctl_lab.process import checked, needed_program

# As in 6.1.0-56-amd64 of Debian 12 and 6.12.117+deb13-amd64 of Debian 13.
_HEADERS = re.compile(r"linux-headers-(?P<release>\d+\.\d+\.\d+(?:-\d+|\+deb\d+)-amd64)")
# How the kernel of Debian 12 is compressed, and that of Debian 13.
_XZ_MAGIC, _ZSTD_MAGIC = b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
_DOWNLOAD_LIMIT_S = 600


@dataclass(frozen=True)
class Kernel:
    """A kernel with its modules.

    release: as `uname -r` says. image: the kernel without its decompressor, which is slow under TCG.
    headers: the folder that modules build against.
    """

    release: str
    image: Path
    modules: Path
    headers: Path


def ensure_kernel(folder: LabFolder) -> Kernel:
    """Find the newest kernel that has headers here, and its image: this machine's own, the cache's, or a download.

    Raises LabError when this is not Debian on amd64, has no headers, or the package cannot be fetched.
    """
    release, version = _newest_headers()
    headers = Path(f"/usr/src/linux-headers-{release}")
    own_image, own_modules = Path(f"/boot/vmlinuz-{release}"), Path(f"/lib/modules/{release}")
    if _is_readable(own_image) and _is_readable(own_modules / "modules.dep"):
        return Kernel(release, _unpacked(folder, own_image, f"{release}_{version}"), own_modules, headers)
    package = f"linux-image-{release}"
    target = folder.cache / "kernel" / f"{release}_{version}"
    with built(target) as building:
        if building:
            # As root, apt would drop to a user that cannot write here.
            fetch = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", f"{package}={version}"]
            try:
                checked(fetch, what=f"fetching {package}", timeout_s=_DOWNLOAD_LIMIT_S, cwd=building)
            except LabError as error:
                raise LabError(
                    error.message,
                    context=error.context,
                    hint="`apt-get update` as root renews the package lists; kernel and headers must be of one version",
                ) from error
            (file,) = building.glob("*.deb")
            checked(["dpkg-deb", "-x", str(file), str(building)], what=f"unpacking {package}", timeout_s=120)
            file.unlink()
            if not (building / "lib").exists():  # since Debian 13 the package has only usr/lib
                (building / "lib").symlink_to("usr/lib")
            depmod = needed_program("depmod", package="kmod")
            checked([depmod, "-b", str(building), release], what="indexing the kernel's modules", timeout_s=120)
            # mkdtemp's mode would hide the modules from the host's own users.
            building.chmod(0o755)
    image = _unpacked(folder, target / "boot" / f"vmlinuz-{release}", f"{release}_{version}")
    return Kernel(release, image, target / "lib" / "modules" / release, headers)


def _unpacked(folder: LabFolder, image: Path, key: str) -> Path:
    """The ELF inside a compressed kernel image, which QEMU starts directly (PVH); else the image as it is."""
    target = folder.cache / "vmlinux" / key
    with built(target) as building:
        if building:
            content = image.read_bytes()
            unpacked = (one for one in (_from_xz(content), _from_zstd(content)) if one.startswith(b"\x7fELF"))
            (building / "vmlinux").write_bytes(next(unpacked, content))
    return target / "vmlinux"


def _from_xz(image: bytes) -> bytes:
    start = image.find(_XZ_MAGIC)
    try:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(image[start:]) if start >= 0 else b""
    except lzma.LZMAError:
        return b""


def _from_zstd(image: bytes) -> bytes:
    """As scripts/extract-vmlinux of the kernel does it: zstd complains about what follows the ELF, after writing it."""
    start = image.find(_ZSTD_MAGIC)
    program = shutil.which("zstd")
    if start < 0 or program is None:
        return b""
    command = [program, "--decompress", "--quiet", "--stdout"]
    return subprocess.run(command, input=image[start:], capture_output=True, check=False, timeout=60).stdout


def _newest_headers() -> tuple[str, str]:
    query = needed_program("dpkg-query", package="dpkg (the lab runs on Debian)")
    listed = checked(
        [query, "--showformat=${Package} ${Version} ${db:Status-Status}\n", "--show", "linux-headers-*"],
        what="looking for kernel headers",
        timeout_s=30,
    )
    found: list[tuple[list[int], str, str]] = []
    for line in listed.splitlines():
        package, _, rest = line.partition(" ")
        version, _, state = rest.partition(" ")
        match = _HEADERS.fullmatch(package)
        if match and state == "installed":
            found.append(([int(number) for number in re.findall(r"\d+", version)], match["release"], version))
    if not found:
        raise LabError(
            "no kernel headers of a stock Debian kernel for amd64 are installed",
            hint="run `make setup`, or apt-get install linux-headers-amd64",
        )
    _, release, version = max(found)
    return release, version


def _is_readable(path: Path) -> bool:
    try:
        with path.open("rb"):
            return True
    except OSError:
        return False
