# SPDX-License-Identifier: Apache-2.0
"""Simulated hosts that replay captures: each answers readings as the captured host did, and takes no change."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from vgpuctl.errors import UsageError
from vgpuctl.model.capture import SUFFIX, Capture, CaptureManifest, read_capture
from vgpuctl_lab.folder import LabFolder
from vgpuctl_lab.simulated.fleet import Say, SimulatedHostStatus, bring_up, make_host
from vgpuctl_lab.simulated.layout import SimulatedFolder
from vgpuctl_lab.simulated.machine.replayed_host import CAPTURE
from vgpuctl_lab.simulated.machine.shape import Shape

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def replay(
    files: Sequence[Path], *, latency_ms: float = 0.0, folder: LabFolder | None = None, say: Say | None = None
) -> list[SimulatedHostStatus]:
    """Bring up one host for each capture, named as its file; those that are there stay as they are.

    Raises UsageError for a file that cannot be used or cannot name a host, LabError.
    """
    captures = _read(files)

    def make_hosts(lab: SimulatedFolder, new: Sequence[str]) -> None:
        for name in new:
            capture = captures[name]
            content = json.dumps({"machine": capture.machine, "libvirt": capture.libvirt}).encode()
            boards = (one.board or f"{one.vendor_id}:{one.device_id}" for one in capture.manifest.boards)
            make_host(lab, name, "+".join(boards), _shape_of(capture.manifest), latency_ms, files={CAPTURE: content})

    return bring_up(list(captures), make_hosts, folder=folder, say=say)


def _read(files: Sequence[Path]) -> Mapping[str, Capture]:
    captures: dict[str, Capture] = {}
    for file in files:
        name = file.name.removesuffix(SUFFIX).partition(".")[0].lower().replace("_", "-")
        if not _NAME.fullmatch(name):
            raise UsageError(f"{file}: {name!r} is no name of a host", hint=f"rename the file, as to my-host{SUFFIX}")
        if name in captures:
            raise UsageError(f"two captures are named {name}", hint="rename one of the files")
        captures[name] = read_capture(file)
    return captures


def _shape_of(manifest: CaptureManifest) -> Shape:
    """The machine without cards: the captured answers have them."""
    return Shape(
        hostname=manifest.host,
        cpus=1,
        memory_mib=1024,
        kernel=manifest.kernel,
        operating_system=manifest.operating_system,
        nvidia_driver=manifest.nvidia_driver or "",
        versions={},
        cards=(),
        enabled_vfs={},
    )
