# SPDX-License-Identifier: Apache-2.0
"""Install what restores the layout at boot, and keep its list of shares while VMs come and go."""

import json
from typing import Any, Dict, List, Optional, Sequence

from vgpuctl.agent.changes import boot_unit
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import boot as wire
from vgpuctl.agent.wire.boot import BootFiles, ManifestStep
from vgpuctl.agent.wire.decode import WireError, from_json, to_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import TYPED_STEPS, VGPU_STEPS, DeleteMdev
from vgpuctl.agent.wire.steps import Change, Step
from vgpuctl.agent.wire.values import replace

OP = "boot.install"
_TIMEOUT_S = 60.0


def ensure(host: Host, files: BootFiles, *, dry_run: bool) -> Change:
    """Install agent, manifest, shares and unit; a second run with the same files writes nothing.

    The manifest comes last of the files, so that a manifest never meets an older agent. systemd checks the unit before
    anything is written, and also if nothing differs, because other services change.
    Raises Problem `write-refused`, `unit-refused`.
    """
    unverified = boot_unit.verify(host, files.unit, dry_run=dry_run)
    wanted: Dict[str, bytes] = {
        wire.AGENT: host.own_program(),
        wire.SHARES: _shares_text(files.shares),
        wire.UNIT: files.unit.encode(),
        wire.MANIFEST: _text(to_json(files.manifest)),
    }
    stale = [path for path, data in wanted.items() if host.read_bytes(path) != data]
    links = [path for path in wire.UNIT_LINKS if host.disk_link(path) != wire.UNIT]
    if not stale and not links:
        return Change(OP, wire.FOLDER, "installed", "installed", changed=False)
    before = "none" if wire.MANIFEST in stale and host.read_bytes(wire.MANIFEST) is None else "older"
    if not dry_run:
        for path in stale:
            host.put_file(path, wanted[path], 0o600 if path != wire.UNIT else 0o644)
        for path in links:
            host.put_link(path, wire.UNIT)
        _reload(host, is_needed=bool(links) or wire.UNIT in stale)
        boot_id = host.read("/proc/sys/kernel/random/boot_id").strip()
        note_result(host, boot_id, [], [name_of(one.step) for one in files.shares])
    after = f"installed, not verified: {unverified}" if unverified and not dry_run else "installed"
    return Change(OP, wire.FOLDER, before, after, changed=True)


def note_share(host: Host, step: Step) -> None:
    """Keep the list of shares true after a step; a host without the list is left alone."""
    if not isinstance(step, VGPU_STEPS):
        return
    shares = read_shares(host)
    if shares is None:
        return
    kept = [one for one in shares if name_of(one.step) != name_of(step)]
    if step.made is not None:
        function, _type_id = step.made
        if not isinstance(step, DeleteMdev) and not step.params:
            # A vGPU has none when it is made, and an agent of an older installation does not know the field.
            step = replace(step, params=None)
        kept.append(ManifestStep(step, host.link_name(f"/sys/bus/pci/devices/{function}/physfn") or function))
    if kept != shares:
        host.put_file(wire.SHARES, _shares_text(kept), 0o600)


def read_shares(host: Host) -> Optional[List[ManifestStep]]:
    """The shares to be made at boot, None where nothing is installed. Raises Problem `unreadable`."""
    text = host.read_optional(wire.SHARES)
    if text is None:
        return None
    try:
        content = json.loads(text)
        profiles = content.get("profiles", {})
        return [_with_profile(from_json(ManifestStep, one), profiles) for one in content["steps"]]
    except (WireError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(ProblemCode.UNREADABLE, f"{wire.SHARES} cannot be read: {error}", path=wire.SHARES) from error


def note_result(host: Host, boot_id: str, problems: List[str], shares: List[str]) -> None:
    """Leave what came of it for the next look at the host; it goes with the boot."""
    from vgpuctl.agent.facts.boot import digest

    manifest = host.read_optional(wire.MANIFEST) or ""
    result = {
        "restored_boot_id": boot_id,
        "restored_manifest": digest(manifest),
        "problems": problems,
        "shares": shares,
    }
    host.put_file(wire.RESULT, _text(result), 0o644)


def name_of(step: Step) -> str:
    """The device of a share: the mdev's UUID, or the VF."""
    return step.device if isinstance(step, VGPU_STEPS) else ""


def _reload(host: Host, *, is_needed: bool) -> None:
    """Let systemd see the unit; a host that systemd does not run has no use for it."""
    if not is_needed or not host.exists("/run/systemd/system"):
        return
    done = host.run(["systemctl", "daemon-reload"], timeout_s=_TIMEOUT_S, changes=True)
    if done.status:
        raise Problem(
            ProblemCode.SYSTEMD_REFUSED, f"systemctl daemon-reload failed: {done.errors.strip()}", path=wire.UNIT
        )


def _with_profile(share: ManifestStep, profiles: Dict[str, str]) -> ManifestStep:
    profile = profiles.get(name_of(share.step))
    if profile is None or not isinstance(share.step, TYPED_STEPS):
        return share
    if not isinstance(profile, str):
        raise TypeError(f"the type of {name_of(share.step)} is {profile!r}")
    return replace(share, step=replace(share.step, profile=profile))


def _shares_text(shares: Sequence[ManifestStep]) -> bytes:
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
    return _text({"version": wire.VERSION, "steps": to_json(steps), "profiles": profiles})


def _text(value: Any) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True).encode() + b"\n"
