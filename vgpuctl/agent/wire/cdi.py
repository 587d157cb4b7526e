# SPDX-License-Identifier: Apache-2.0
"""The file by which container engines of the host know its own GPUs. Python 3.9, standard library only.

Source: Container Device Interface, SPEC.md 1.1.0 (github.com/cncf-tags/container-device-interface).
"""

from typing import ClassVar, Optional, Tuple

from vgpuctl.agent.wire.values import dataclass

FILE = "/etc/cdi/vgpuctl.json"
STATE = "/etc/vgpuctl/cdi.json"
KIND = "nvidia.com/gpu"
MODPROBE = "nvidia-modprobe"
FOLDERS = ("/etc/cdi", "/run/cdi")
"""Where engines look; /var/run is /run."""


@dataclass(frozen=True)
class CdiState:
    """The record of FILE. gpus: PCI addresses. basis: all that its content follows from, as text.

    sha256: of FILE.
    """

    gpus: Tuple[str, ...]
    basis: str
    sha256: str


@dataclass(frozen=True)
class CdiFacts:
    """The files by which container engines of the host know NVIDIA's GPUs.

    gpus: PCI addresses that FILE was written for; empty without it. is_current: the file is as it was written, and
    would be written so again. others: files of other programs that describe GPUs of NVIDIA's too; FILE is among them
    where vgpuctl did not write it, or has lost STATE. unknown: why it is not known which GPUs FILE gives away; gpus
    means nothing then. unread: what of the folders could not be read, in words; it may be one of the others.
    missing_nodes: of the driver's, those without which no program of a container computes, and that nothing has made;
    only told where there is FILE. has_modprobe: the host has the program that makes them.
    """

    gpus: Tuple[str, ...] = ()
    is_current: bool = True
    others: Tuple[str, ...] = ()
    unknown: Optional[str] = None
    unread: Tuple[str, ...] = ()
    missing_nodes: Tuple[str, ...] = ()
    has_modprobe: bool = True


@dataclass(frozen=True)
class SetContainerGpus:
    """Have FILE describe these GPUs (PCI addresses) and no other; no file without any."""

    op: ClassVar[str] = "cdi.set"
    gpus: Tuple[str, ...]
