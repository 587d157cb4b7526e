# SPDX-License-Identifier: Apache-2.0
"""Install what restores the layout at boot, and keep its list of shares while VMs come and go, and its kept limits."""

from typing import List

from vgpuctl.agent.changes import boot_unit
from vgpuctl.agent.facts import boot as facts_of_boot
from vgpuctl.agent.facts import pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import boot as wire
from vgpuctl.agent.wire.boot import BootFiles, KeptLimit, ManifestStep
from vgpuctl.agent.wire.decode import to_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import VGPU_STEPS, DeleteMdev
from vgpuctl.agent.wire.steps import Change, Step
from vgpuctl.agent.wire.tuning import KeepPowerLimit, watts
from vgpuctl.agent.wire.values import replace

OP = "boot.install"
NO_UNIT = "not kept: no unit restores the host at boot"
_TIMEOUT_S = 60.0


def ensure(host: Host, files: BootFiles, *, dry_run: bool) -> Change:
    """Install agent, manifest, shares and unit; a second run with the same files writes nothing.

    The manifest comes last of the files, so that a manifest never meets an older agent. systemd checks the unit before
    anything is written, and also if nothing differs, because other services change.
    Raises Problem `write-refused`, `unit-refused`.
    """
    unverified = boot_unit.verify(host, files.unit, dry_run=dry_run)
    wanted = wire.contents(files, host.own_program())
    stale = [path for path, data in wanted.items() if host.digest(path) != wire.sha256(data)]
    links = [path for path in wire.UNIT_LINKS if host.disk_link(path) != wire.UNIT]
    if not stale and not links:
        return Change(OP, wire.FOLDER, "installed", "installed", changed=False)
    before = "none" if wire.MANIFEST in stale and host.read_bytes(wire.MANIFEST) is None else "different"
    if not dry_run:
        for path in stale:
            host.put_file(path, wanted[path], 0o600 if path != wire.UNIT else 0o644)
        for path in links:
            host.put_link(path, wire.UNIT)
        _reload(host, is_needed=bool(links) or wire.UNIT in stale)
        boot_id = host.read("/proc/sys/kernel/random/boot_id").strip()
        note_result(host, boot_id, [], [wire.name_of(one.step) for one in files.shares])
    after = f"installed, not verified: {unverified}" if unverified and not dry_run else "installed"
    return Change(OP, wire.FOLDER, before, after, changed=True)


def note_share(host: Host, step: Step) -> None:
    """Keep the list of shares true after a step; a host without the list is left alone."""
    if not isinstance(step, VGPU_STEPS):
        return
    shares = facts_of_boot.read_shares(host)
    if shares is None:
        return
    kept = [one for one in shares if wire.name_of(one.step) != wire.name_of(step)]
    if step.made is not None:
        function, _type_id = step.made
        if not isinstance(step, DeleteMdev) and not step.params:
            # A vGPU has none when it is made, and an agent of an older installation does not know the field.
            step = replace(step, params=None)
        kept.append(ManifestStep(step, host.link_name(f"/sys/bus/pci/devices/{function}/physfn") or function))
    if kept != shares:
        host.put_file(wire.SHARES, wire.shares_text(kept), 0o600)


def ensure_kept_limit(host: Host, step: KeepPowerLimit, *, dry_run: bool) -> Change:
    """Have the unit set a power limit at boot, or none. A host without the unit keeps none, which the change says.

    Raises Problem `not-found` without the card, `unreadable` for a damaged file, `write-refused`.
    """
    kept = facts_of_boot.read_kept_limits(host)
    before = [one for one in kept if one.address == step.address]
    wanted = []
    if step.limit_mw is not None:
        card = pci.read(host, step.address)
        ids = wire.card_of(card.vendor_id, card.device_id, card.subsystem_id)
        wanted.append(KeptLimit(step.address, step.limit_mw, ids))
    words = _limit_in_words(before)
    if wanted and host.read_bytes(wire.MANIFEST) is None:
        return Change(step.op, step.address, words, NO_UNIT, changed=False)
    if wanted == before:
        return Change(step.op, step.address, words, words, changed=False)
    if not dry_run:
        limits = sorted((*(one for one in kept if one not in before), *wanted), key=lambda one: one.address)
        host.put_file(wire.KEPT_LIMITS, wire.text_of({"version": wire.VERSION, "limits": to_json(limits)}), 0o600)
    return Change(step.op, step.address, words, _limit_in_words(wanted), changed=True)


def _limit_in_words(kept: List[KeptLimit]) -> str:
    return watts(kept[0].limit_mw) if kept else "none"


def note_result(host: Host, boot_id: str, problems: List[str], shares: List[str]) -> None:
    """Leave what came of it for the next look at the host; it goes with the boot."""
    manifest = host.read_optional(wire.MANIFEST) or ""
    result = {
        "restored_boot_id": boot_id,
        "restored_manifest": facts_of_boot.digest(manifest),
        "problems": problems,
        "shares": shares,
    }
    host.put_file(wire.RESULT, wire.text_of(result), 0o644)


def _reload(host: Host, *, is_needed: bool) -> None:
    """Let systemd see the unit; a host that systemd does not run has no use for it."""
    if not is_needed or not host.exists("/run/systemd/system"):
        return
    done = host.run(["systemctl", "daemon-reload"], timeout_s=_TIMEOUT_S, changes=True)
    if done.status:
        raise Problem(
            ProblemCode.SYSTEMD_REFUSED, f"systemctl daemon-reload failed: {done.errors.strip()}", path=wire.UNIT
        )
