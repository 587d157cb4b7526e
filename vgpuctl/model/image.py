# SPDX-License-Identifier: Apache-2.0
"""Images of the operator's catalogue: base images of disks, kernels and initrds, by name."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from vgpuctl.errors import UsageError
from vgpuctl.model.vm import DirectKernel

_CHECKSUM = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")


class ImageKind(StrEnum):
    """The use of an image."""

    DISK = "disk"
    KERNEL = "kernel"
    INITRD = "initrd"
    ISO = "iso"


class ImageFormat(StrEnum):
    """The format of an image's content, as the operator gave it. It is never guessed from the content."""

    QCOW2 = "qcow2"
    RAW = "raw"


@dataclass(frozen=True)
class ImageLocation:
    """The place of an image on every host that has it: an absolute path, or a volume of a libvirt storage pool."""

    path: str | None = None
    pool: str | None = None
    volume: str | None = None

    @property
    def shown(self) -> str:
        """The place in words."""
        return self.path if self.path is not None else f"volume {self.volume} of pool {self.pool}"


@dataclass(frozen=True)
class Image:
    """One image. sha256: 64 hexadecimal digits of its whole content. os: free text, such as `debian-12`.

    guest_driver: version or branch of the NVIDIA driver in it; None where nobody said.
    """

    name: str
    kind: ImageKind
    format: ImageFormat
    sha256: str
    location: ImageLocation
    os: str | None = None
    guest_driver: str | None = None


@dataclass(frozen=True)
class ImageCopy:
    """The copy of an image that was verified on a host. While the other fields stay equal, the content is trusted.

    changed_ns: the inode's change time. verified_at: seconds since the epoch, UTC.
    """

    image: str
    host: str
    real_path: str
    size_bytes: int
    device: int
    inode: int
    changed_ns: int
    verified_at: float


@dataclass(frozen=True)
class BaseImage:
    """A base image as one host has it. virtual_bytes: the size that the guest sees."""

    path: str
    format: ImageFormat
    virtual_bytes: int


@dataclass(frozen=True)
class HostImages:
    """The images of one VM as its host has them. kernel: with the paths of kernel and initrd there.

    media: the paths of the media to install from. base_format: of the base image, also where
    the base itself is not looked at any more.
    """

    base: BaseImage | None = None
    kernel: DirectKernel | None = None
    base_format: ImageFormat | None = None
    media: tuple[str, ...] = ()


def parse_checksum(text: str) -> str:
    """Read `sha256:` and 64 hexadecimal digits. Raises UsageError."""
    match = _CHECKSUM.fullmatch(text)
    if match is None:
        raise UsageError(
            f"the checksum {text[:80]!a} is no SHA-256",
            hint="give sha256: and 64 hexadecimal digits, as `sha256sum FILE` prints them",
        )
    return match[1].lower()


def check_image_path(path: str) -> str:
    """Accept an absolute path on a host without `.`, `..` and control characters. Raises UsageError."""
    parts = PurePosixPath(path).parts
    if not path.startswith("/") or str(PurePosixPath(path)) != path or ".." in parts or not path.isprintable():
        raise UsageError(f"the image path {path[:200]!a} cannot be used", hint="give an absolute path without `..`")
    return path
