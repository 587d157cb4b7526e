# SPDX-License-Identifier: Apache-2.0
"""The restore of a host's layout at boot: installed files, and their result. Python 3.9.

On the host: FOLDER has the agent, the manifest, the shares, the kept limits and the unit; systemd finds the unit by a
link.
"""

import json
from typing import Any, Dict, Optional, Sequence, Tuple

from vgpuctl.agent.wire.decode import to_json
from vgpuctl.agent.wire.sharing import TYPED_STEPS, VGPU_STEPS
from vgpuctl.agent.wire.steps import Step
from vgpuctl.agent.wire.values import dataclass, replace

FOLDER = "/etc/vgpuctl"
AGENT = f"{FOLDER}/agent.pyz"
MANIFEST = f"{FOLDER}/manifest.json"
SHARES = f"{FOLDER}/shares.json"
KEPT_LIMITS = f"{FOLDER}/kept-limits.json"
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

    @property
    def card(self) -> str:
        """The PCI ids of the card, as a kept limit has them."""
        return card_of(self.vendor_id, self.device_id, self.subsystem_id)


def card_of(vendor_id: str, device_id: str, subsystem_id: Optional[str]) -> str:
    """Write the PCI ids of a card as `10de:2235 10de:145a`."""
    return f"{vendor_id}:{device_id} {subsystem_id or ''}".strip()


@dataclass(frozen=True)
class KeptLimit:
    """A power limit that a controller tried and kept. card: the PCI ids of the card that it is of."""

    address: str
    limit_mw: int
    card: str


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
    another type. kept_limits: power limits that the unit sets beside the manifest's.
    """

    manifest: str
    is_enabled: bool
    restored_boot_id: Optional[str] = None
    restored_manifest: Optional[str] = None
    problems: Tuple[str, ...] = ()
    shares: Tuple[str, ...] = ()
    missing_python: Optional[str] = None
    unnamed: Tuple[str, ...] = ()
    kept_limits: Tuple[KeptLimit, ...] = ()

    def kept_limit(self, address: str) -> Optional[KeptLimit]:
        """Return the power limit that the unit sets for a card, None where it sets none."""
        return next((one for one in self.kept_limits if one.address == address), None)


@dataclass(frozen=True)
class InstalledPart:
    """One file, link or listed share. name: its path; of a share, its device. content: where a link leads, else the
    sha256 in hex."""

    name: str
    content: str


@dataclass(frozen=True)
class Installed:
    """Files of vgpuctl on the host, in order. shares: those to be made at boot, None where their file is missing
    or damaged."""

    files: Tuple[InstalledPart, ...]
    shares: Optional[Tuple[InstalledPart, ...]] = None


def contents(files: BootFiles, program: bytes) -> Dict[str, bytes]:
    """Return the files by path. program: the agent. The manifest comes last: it never meets an older agent."""
    return {
        AGENT: program,
        SHARES: shares_text(files.shares),
        UNIT: files.unit.encode(),
        MANIFEST: text_of(to_json(files.manifest)),
    }


def shares_text(shares: Sequence[ManifestStep]) -> bytes:
    """The file. The names of the types stand beside the steps, for an agent of an older installation takes no field
    in a step that it does not know, and would restore none of the shares."""
    ordered = sorted(shares, key=lambda one: (one.gpu or "", name_of(one.step)))
    profiles: Dict[str, str] = {}
    steps = []
    for one in ordered:
        if isinstance(one.step, TYPED_STEPS) and one.step.profile is not None:
            profiles[name_of(one.step)] = one.step.profile
            one = replace(one, step=replace(one.step, profile=None))
        steps.append(one)
    return text_of({"version": VERSION, "steps": to_json(steps), "profiles": profiles})


def listed_share(share: ManifestStep) -> InstalledPart:
    """A share as a reading of the host has it."""
    return InstalledPart(name_of(share.step), sha256(text_of(to_json(share))))


def sha256(content: bytes) -> str:
    """The digest of a file in hex."""
    import hashlib  # loads OpenSSL, which few commands need

    return hashlib.sha256(content).hexdigest()


def name_of(step: Step) -> str:
    """The device of a share: the mdev's UUID, or the VF."""
    return step.device if isinstance(step, VGPU_STEPS) else ""


def text_of(value: Any) -> bytes:
    """The text of an installed JSON file."""
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
