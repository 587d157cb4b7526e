# SPDX-License-Identifier: Apache-2.0
"""The restore of a host's layout at boot: installed files, and their result. Python 3.9.

On the host: FOLDER has the agent, the manifest, the shares and the unit; systemd finds the unit by a link.
"""

from typing import Optional, Tuple

from vgpuctl.agent.wire.steps import Step
from vgpuctl.agent.wire.values import dataclass

FOLDER = "/etc/vgpuctl"
AGENT = f"{FOLDER}/agent.pyz"
MANIFEST = f"{FOLDER}/manifest.json"
SHARES = f"{FOLDER}/shares.json"
UNIT_NAME = "vgpuctl-restore.service"
UNIT = f"{FOLDER}/{UNIT_NAME}"
UNIT_LINKS = (
    f"/etc/systemd/system/{UNIT_NAME}",
    f"/etc/systemd/system/multi-user.target.wants/{UNIT_NAME}",
)
RESULT = "/run/vgpuctl/restored.json"
VERSION = 1


@dataclass(frozen=True)
class ManifestGpu:
    """The card of the steps; another card in its place gets none of them. uuid: None where unknown."""

    address: str
    vendor_id: str
    device_id: str
    subsystem_id: Optional[str] = None
    uuid: Optional[str] = None


@dataclass(frozen=True)
class ManifestStep:
    """One step. gpu: None for the host's own."""

    step: Step
    gpu: Optional[str] = None


@dataclass(frozen=True)
class Manifest:
    """The way from a fresh boot to the layout, without the shares, which come and go with VMs."""

    gpus: Tuple[ManifestGpu, ...]
    steps: Tuple[ManifestStep, ...]
    version: int = VERSION


@dataclass(frozen=True)
class BootFiles:
    """The installed manifest. shares: those that exist now and must exist after a boot, with their GPU."""

    manifest: Manifest
    shares: Tuple[ManifestStep, ...]
    unit: str


@dataclass(frozen=True)
class BootFacts:
    """The installed files and the result of the boot. manifest: the sha256 of the installed file.

    is_enabled: systemd's links lead to the unit. restored_boot_id: of the boot that the result is of, None where there
    is none. restored_manifest: the sha256 that was restored. problems: sentences. shares: devices that were made again.
    missing_python: the interpreter that the unit names, where that is not on the host any more.
    unnamed: devices of the installed shares whose type is recorded by its id alone, which another driver may give to
    another type.
    """

    manifest: str
    is_enabled: bool
    restored_boot_id: Optional[str] = None
    restored_manifest: Optional[str] = None
    problems: Tuple[str, ...] = ()
    shares: Tuple[str, ...] = ()
    missing_python: Optional[str] = None
    unnamed: Tuple[str, ...] = ()
