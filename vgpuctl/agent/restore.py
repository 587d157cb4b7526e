# SPDX-License-Identifier: Apache-2.0
"""Bring the host from a fresh boot into its layout, by the manifest that apply-hosts installed.

Runs from the systemd unit before libvirt starts VMs. A card that is not the manifest's is left alone, and so is the
rest of a card whose step failed; the others go on. A power limit, a clock or a compute mode that fails stops nothing
else. A card's driver, MIG and VFs are tried again for about two minutes while the reason of a refusal may pass. Its
output goes to the journal.
"""

import json
import sys
from typing import Dict, List, Optional, Sequence, Set

from vgpuctl.agent.arrival import Arrival
from vgpuctl.agent.changes import boot, vgpu_type
from vgpuctl.agent.dispatch import read_facts, take
from vgpuctl.agent.facts import boot as facts_of_boot
from vgpuctl.agent.facts import nvidia, nvml_gpus, pci
from vgpuctl.agent.host import Host
from vgpuctl.agent.wire import boot as wire
from vgpuctl.agent.wire.boot import BootFacts, Manifest, ManifestGpu, ManifestStep
from vgpuctl.agent.wire.decode import WireError, from_json
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.agent.wire.facts import Gpu
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import TYPED_STEPS, VGPU_STEPS
from vgpuctl.agent.wire.steps import Change, ResetGpu, SetMigMode
from vgpuctl.agent.wire.tuning import TUNING_STEPS, SetPowerLimit, watts

# The driver offers the types of new VFs a moment after the VFs are there.
_TYPE_TRIES = 20
_TYPE_PAUSE_S = 0.5
# The vGPU manager and other clients are still starting: they have the card open, or its VFs are not known to them yet.
_EARLY = (
    ProblemCode.UNBIND_LOCK,
    ProblemCode.SRIOV_FAILED,
    ProblemCode.HELD,
    ProblemCode.RESET_REFUSED,
    ProblemCode.DRIVER_MISSING,
    ProblemCode.NVML_IN_USE,
)
# For how long after a card's first refusal its steps are tried again, and the pause between two tries.
_CARD_LIMIT_S = 100.0
_CARD_PAUSE_S = 10.0


class Restore:
    """One run. is_second: one came to its end in this boot. problems: a sentence for everything not restored."""

    def __init__(self, host: Host, *, is_second: bool = False) -> None:
        self._host = host
        self._arrival = Arrival(host, has_waited=is_second)
        self._card_limit_s = 0.0 if is_second else _CARD_LIMIT_S
        self._left_alone: Set[str] = set()
        self._refused_at: Dict[str, float] = {}
        self._gpus: Optional[Sequence[Gpu]] = None
        self.problems: List[str] = []
        self.shares: List[str] = []

    def run(self, path: str) -> bool:
        """Restore what the manifest at `path` says; whether everything is as it says."""
        host = self._host
        try:
            manifest = read_manifest(host, path)
            self._arrival.settle()
            with host.lock():
                self._take_all(manifest)
                boot_id = host.read("/proc/sys/kernel/random/boot_id").strip()
                boot.note_result(host, boot_id, self.problems, self.shares)
        except Problem as problem:
            self._complain(problem.message)
        if self._arrival.waited_s:
            _say(f"waited {self._arrival.waited_s:g} s for hardware that came up late")
        return not self.problems

    def _take_all(self, manifest: Manifest) -> None:
        for gpu in manifest.gpus:
            reason = self._misfit(gpu)
            if reason is not None:
                self._left_alone.add(gpu.address)
                self._complain(f"{gpu.address} is left alone: {reason}")
        for one in manifest.steps:
            self._take(one)
        self._take_kept_limits(manifest)
        known = {gpu.address for gpu in manifest.gpus}
        for one in facts_of_boot.read_shares(self._host) or []:
            if one.gpu not in known:
                self._complain(f"{wire.name_of(one.step)} is left alone: the manifest has no GPU {one.gpu}")
            elif self._take(one):
                self.shares.append(wire.name_of(one.step))

    def _take_kept_limits(self, manifest: Manifest) -> None:
        """Set the power limits that a controller kept; what the manifest has of its own comes first."""
        try:
            kept = facts_of_boot.read_kept_limits(self._host)
        except Problem as problem:
            self._complain(problem.message)
            return
        cards = {gpu.address: gpu.card for gpu in manifest.gpus}
        declared = {one.gpu for one in manifest.steps if isinstance(one.step, SetPowerLimit)}
        for one in kept:
            limit = f"the kept power limit of {one.address}, {watts(one.limit_mw)},"
            if one.address in declared:
                _say(f"{limit} is not set: the layout declares one")
            elif cards.get(one.address) != one.card:
                _say(f"{limit} is not set: the manifest has no such card there")
            else:
                self._take(ManifestStep(SetPowerLimit(one.address, one.limit_mw), one.address))

    def _take(self, one: ManifestStep) -> bool:
        if one.gpu in self._left_alone:
            return False
        try:
            change = self._once_arrived(one)
        except Problem as problem:
            if one.gpu is not None and not isinstance(one.step, (*VGPU_STEPS, *TUNING_STEPS)):
                self._left_alone.add(one.gpu)
            self._complain(f"{one.gpu or 'host'}: {one.step.op} failed: {problem.message}")
            return False
        if change.changed:
            _say(f"{change.op} {change.target}: {change.before} -> {change.after}")
        return True

    def _misfit(self, gpu: ManifestGpu) -> Optional[str]:
        while not self._host.exists(f"/sys/bus/pci/devices/{gpu.address}"):
            if not self._arrival.wait_for(ProblemCode.NOT_FOUND):
                break
        return misfit(self._host, gpu)

    def _once_arrived(self, one: ManifestStep) -> Change:
        """Take a step again while the hardware it needs may still be coming up; shares have waits of their own."""
        while True:
            try:
                return self._patiently(one)
            except Problem as problem:
                if isinstance(one.step, VGPU_STEPS) or not self._arrival.wait_for(problem.code):
                    raise

    def _patiently(self, one: ManifestStep) -> Change:
        """Take a step, again and again while what refuses it may pass: a card's own limit holds for all its steps."""
        type_tries = 0
        while True:
            try:
                return self._take_once(one)
            except Problem as problem:
                if isinstance(one.step, VGPU_STEPS):
                    type_tries += 1
                    if (
                        problem.code not in (ProblemCode.NOT_FOUND, ProblemCode.TYPE_NOT_OFFERED)
                        or type_tries == _TYPE_TRIES
                    ):
                        raise
                    self._host.wait(_TYPE_PAUSE_S)
                else:
                    self._wait_for_card(one, problem)

    def _take_once(self, one: ManifestStep) -> Change:
        if isinstance(one.step, TYPED_STEPS):
            step = vgpu_type.as_numbered_now(self._host, one.step, lambda: self._names_on(one.gpu))
            change = take(self._host, step, dry_run=False)
            if step != one.step:
                _say(f"{step.profile} is type {step.type_id} now, was {one.step.type_id}")
                boot.note_share(self._host, step)
            return change
        try:
            return take(self._host, one.step, dry_run=False)
        except Problem as problem:
            # Some boards lose the mode at a boot, and commit a new one only at a reset.
            if problem.code != ProblemCode.MIG_MODE_PENDING or not isinstance(one.step, SetMigMode):
                raise
        return take(self._host, ResetGpu(one.step.address), dry_run=False)

    def _names_on(self, address: Optional[str]) -> Dict[str, str]:
        """The names of a card's types where no free function lists them: the card is in use, in a second run."""
        if self._gpus is None:
            self._gpus = read_facts(self._host).gpus
        types = next((gpu.types for gpu in self._gpus if gpu.address == address), ())
        return {one.type_id: one.full_name for one in types if one.is_named}

    def _wait_for_card(self, one: ManifestStep, problem: Problem) -> None:
        """Wait before the next try. Raises the problem when it is not one that passes, or has lasted too long."""
        if one.gpu is None or problem.code not in _EARLY:
            raise problem
        now = self._host.monotonic()
        if now - self._refused_at.setdefault(one.gpu, now) >= self._card_limit_s:
            raise problem
        _say(f"{one.gpu}: {one.step.op} is tried again in {_CARD_PAUSE_S:g} s: {problem.message}")
        self._host.wait(_CARD_PAUSE_S)

    def _complain(self, text: str) -> None:
        self.problems.append(text)
        # systemd reads the number as the line's priority: 3 is an error (sd-daemon(3)).
        _say(f"<3>{text}")


def read_manifest(host: Host, path: str) -> Manifest:
    """Read a manifest. Raises Problem `bad-manifest`."""
    text = host.read(path)
    try:
        manifest = from_json(Manifest, json.loads(text))
    except (WireError, ValueError) as error:
        raise Problem(ProblemCode.BAD_MANIFEST, f"{path} cannot be read: {error}", path=path) from error
    if manifest.version != wire.VERSION:
        raise Problem(
            ProblemCode.BAD_MANIFEST, f"{path} has version {manifest.version}, this agent knows {wire.VERSION}"
        )
    return manifest


def misfit(host: Host, wanted: ManifestGpu) -> Optional[str]:
    """Why the card at an address is not the manifest's; None when it is."""
    try:
        found = pci.read(host, wanted.address)
    except Problem as problem:
        return problem.message
    ids = (found.vendor_id, found.device_id, found.subsystem_id)
    if ids != (wanted.vendor_id, wanted.device_id, wanted.subsystem_id):
        return (
            f"it is {found.vendor_id}:{found.device_id} (subsystem {found.subsystem_id}), "
            f"the manifest has {wanted.vendor_id}:{wanted.device_id} (subsystem {wanted.subsystem_id})"
        )
    uuid = nvidia.uuid_of(nvidia.read_information(host, wanted.address))
    if uuid is None and wanted.uuid is not None and found.driver == nvidia.DRIVER:
        uuid = nvml_gpus.read_uuid(host, wanted.address)
    if wanted.uuid is not None and uuid is not None and uuid.lower() != wanted.uuid.lower():
        return f"it is {uuid}, the manifest has {wanted.uuid}"
    return None


def main(host: Host, path: str, *, unless_restored: bool = False) -> int:
    """Restore and return the exit status. unless_restored: not again what this boot's last run restored."""
    before = _result_of_this_boot(host) if unless_restored else None
    if before is not None and not before.problems and before.restored_manifest == before.manifest:
        return 0
    restore = Restore(host, is_second=before is not None)
    is_restored = restore.run(path)
    _say("the layout is restored" if is_restored else "<3>the layout is NOT restored as a whole")
    return 0 if is_restored else 1


def _result_of_this_boot(host: Host) -> Optional[BootFacts]:
    try:
        found = facts_of_boot.read(host)
        boot_id = host.read("/proc/sys/kernel/random/boot_id").strip()
    except Problem:
        return None
    return found if found is not None and found.restored_boot_id == boot_id else None


def _say(text: str) -> None:
    """One line for the journal."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
