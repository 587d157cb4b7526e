# SPDX-License-Identifier: Apache-2.0
"""One host's way into its layout: step after step, each read back, until the host read again is as declared."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.boot import UNIT_NAME, BootFiles
from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.ovn import CertificateFiles
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import VGPU_STEPS
from vgpuctl.agent.wire.steps import SetServiceActive, Step
from vgpuctl.agent.wire.textfile import TIMER_NAME
from vgpuctl.errors import AgentProblem, Interrupted, LayoutDiffers, LayoutRefused, UsageError, VgpuctlError
from vgpuctl.guests.boot_unit import render_boot_unit
from vgpuctl.guests.textfile_units import render_textfile_files
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.layout import HostLayout
from vgpuctl.model.vm import Hold, VmState
from vgpuctl.ovn.authority import OWN_NAME
from vgpuctl.planner.adoption import shares_of_devices
from vgpuctl.planner.layout import (
    Difference,
    HostPlan,
    Phase,
    PlannedStep,
    Selection,
    manifest_of,
    select_steps,
    shares_of,
)
from vgpuctl.planner.layout.fleet_values import FleetValues
from vgpuctl.sharing.matching import entries_for
from vgpuctl.usecases.host.check_hosts import note_state
from vgpuctl.usecases.layout.layout_lines import AppliedHost, Line, LineOutcome
from vgpuctl.usecases.layout.plan_hosts import PlannedHost, read_and_plan
from vgpuctl.usecases.network.tunnel_mtu import note_guest_mtu
from vgpuctl.usecases.share.release import release_strays
from vgpuctl.usecases.support.find_vm import find_vm
from vgpuctl.usecases.support.host_snapshot import saved_snapshot
from vgpuctl.usecases.support.layout_records import (
    PendingRestarts,
    keep_pending_restarts,
    makes_share,
    note_pending_restart,
    note_share,
    pending_restarts,
    shares_made,
)
from vgpuctl.usecases.support.observations import note_facts
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.vm.start_vm import start_vm
from vgpuctl.usecases.vm.stop_vm import stop_vm

_NOTED = {LineOutcome.CHANGED: EventKind.LAYOUT_STEP_DONE, LineOutcome.FAILED: EventKind.LAYOUT_STEP_FAILED}
_MOST_ROUNDS = 8
_SHUTDOWN_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class RunOptions:
    """Permissions of a run.

    check: plan and write nothing. disrupt: stop known VMs that are in the way, and start them again. reset: reset
    GPUs whose pending mode needs it. undo: roll back what was done on a host whose run failed. boot: install what
    restores the layout at boot. after_boot: the host was just booted, and the shares of its VMs come after the layout.
    """

    check: bool = False
    disrupt: bool = False
    reset: bool = False
    undo: bool = False
    boot: bool = True
    after_boot: bool = False


class LayoutRun:
    """Brings one host into its layout. `take` is called once. stop: set when no further step is to be begun.

    fleet: the values of all hosts of the inventory that must be unique.
    """

    def __init__(
        self,
        services: Services,
        host: str,
        layout: HostLayout,
        options: RunOptions,
        tell: Callable[[Line], None],
        stop: threading.Event,
        fleet: FleetValues,
    ) -> None:
        self._services = services
        self._stop = stop
        self._fleet = fleet
        self._host = host
        self._layout = layout
        self._options = options
        self._tell = tell
        self._lines: list[Line] = []
        self._done: list[PlannedStep] = []
        self._differences: tuple[Difference, ...] = ()

    def take(self) -> AppliedHost:
        """Run; whatever goes wrong is the result's `error`, after services and VMs were started again."""
        error: VgpuctlError | None = None
        try:
            if self._options.check:
                self._install_certificate()
                self._show(self._read())
            else:
                with self._services.store.operation("apply-hosts", f"host/{self._host}", self._host, exclusive=True):
                    self._apply()
                    self._take_snapshot()
        except VgpuctlError as failure:
            error = failure
            if not self._is_told(failure):
                self._line(LineOutcome.FAILED, None, "not as declared", reason=failure.message, hint=failure.hint)
        undo = tuple(step for planned in reversed(self._done) for step in planned.undo)
        writes = self._services.host(self._host).agent.writes
        return AppliedHost(self._host, tuple(self._lines), self._differences, undo, writes, error)

    def _is_told(self, failure: VgpuctlError) -> bool:
        """True if lines say it already: those of a step that failed, or of what stands in the layout's way."""
        told = {line.reason for line in self._lines if line.outcome is LineOutcome.FAILED}
        return failure.message in told or (isinstance(failure, LayoutRefused) and bool(failure.context))

    def _apply(self) -> None:
        try:
            self._install_certificate()
            self._take_rounds()
        except BaseException:
            if self._options.undo:
                self._roll_back()
            raise
        finally:
            self._pay_debts()

    def _take_snapshot(self) -> None:
        """Remember the state that a reboot must bring back, when it is a new one."""
        if self._options.after_boot:
            return  # VMs are still off.
        is_new = any(line.outcome is LineOutcome.CHANGED for line in self._lines)
        if is_new or saved_snapshot(self._services, self._host) is None:
            note_state(self._services, self._host, self._services.host(self._host).agent.facts())

    def _take_rounds(self) -> None:
        before: tuple[PlannedStep, ...] = ()
        is_expected = True
        for number in range(_MOST_ROUNDS):
            planned = self._read()
            if number == 0:
                self._begin(planned)
            chosen = self._select(planned.plan)
            if self._make_way(chosen):
                continue
            if not chosen.steps:
                break
            if not is_expected or chosen.steps == before:
                raise LayoutDiffers(
                    f"{self._host}: the steps were taken, but the host is not as declared",
                    context=[str(difference) for difference in planned.plan.differences],
                    hint="see what else changes this host, then run again",
                )
            before = chosen.steps
            is_pending = self._take_steps(chosen.steps, planned.facts)
            is_expected = bool(planned.plan.later) or is_pending
        else:
            raise LayoutDiffers(f"{self._host}: not as declared after {_MOST_ROUNDS} rounds of steps")
        with self._services.store.transaction() as session:
            note_facts(session, self._host, planned.facts)
            note_guest_mtu(session, self._host, self._layout.network)
        self._end(planned, chosen)
        self._install_boot(planned)
        self._install_textfile()

    def _read(self) -> PlannedHost:
        return read_and_plan(self._services, self._host, self._layout, self._fleet, after_boot=self._options.after_boot)

    def _select(self, plan: HostPlan) -> Selection:
        return select_steps(plan, may_disrupt=self._options.disrupt, may_reset=self._options.reset)

    def _show(self, planned: PlannedHost) -> None:
        """The lines of a run that changes nothing."""
        self._begin(planned)
        chosen = self._select(planned.plan)
        for one in chosen.make_way:
            self._line(LineOutcome.CHANGED, None, f"stop {one}, and start it again")
        for step in chosen.steps:
            self._line(LineOutcome.CHANGED, step.gpu, step.summary)
        for text in planned.plan.later:
            self._line(LineOutcome.SKIPPED, None, text, reason="known only once the steps before are done")
        self._end(planned, chosen)
        self._install_boot(planned)
        self._install_textfile()

    def _begin(self, planned: PlannedHost) -> None:
        plan = planned.plan
        self._differences = plan.differences
        busy = {one.gpu for one in plan.steps} | {one.gpu for one in plan.differences}
        busy |= {one.gpu for one in plan.obstacles}
        if None not in busy:
            self._line(LineOutcome.OK, None, "as declared")
        for gpu in sorted(planned.facts.gpus, key=lambda one: one.address):
            entries = entries_for(gpu, self._layout.gpus)
            if entries and gpu.address not in busy:
                self._line(LineOutcome.OK, gpu.address, f"{entries[0].layout.kind}, as declared")

    def _end(self, planned: PlannedHost, chosen: Selection) -> None:
        """Say what is left, and raise LayoutRefused where the layout was to be reached and is not."""
        plan = planned.plan
        refused = {refusal.gpu for refusal in chosen.refusals}
        for refusal in chosen.refusals:
            hint = f"{refusal.option} allows it" if refusal.option else "it is not vgpuctl's to stop"
            self._line(LineOutcome.FAILED, refusal.gpu, "not changed", reason=refusal.reason, hint=hint)
        for step in chosen.left_out:
            self._line(LineOutcome.SKIPPED, step.gpu, step.summary, reason="not allowed")
        for obstacle in plan.obstacles:
            if obstacle.gpu not in refused:
                where = f" ({obstacle.origin})" if obstacle.origin else ""
                reason = f"{obstacle.reason}{where}"
                self._line(LineOutcome.FAILED, obstacle.gpu, obstacle.code, reason=reason, hint=obstacle.remedy)
        blocked = refused | {obstacle.gpu for obstacle in plan.obstacles if obstacle.gpu}
        for difference in plan.differences:
            if difference.remedy is not None and difference.gpu not in blocked:
                text = f"{difference.subject} is {difference.found}, declared {difference.declared}"
                self._line(LineOutcome.SKIPPED, difference.gpu, text, reason=difference.remedy)
        for note in plan.notes:
            self._line(LineOutcome.SKIPPED, None, note, reason="not read")
        reasons = [f"{one.gpu}: {one.reason}" for one in chosen.refusals]
        reasons += [f"{one.gpu or 'host'}: {one.reason}" for one in plan.obstacles if one.gpu not in refused]
        if reasons:
            verb = "would not be" if self._options.check else "is not"
            raise LayoutRefused(f"{self._host}: the declared layout {verb} reached", context=reasons)
        left = [one for one in plan.differences if one.remedy is None]
        if left and not self._options.check:
            raise LayoutDiffers(f"{self._host}: not as declared", context=[str(one) for one in left])

    def _install_certificate(self) -> None:
        """Give the host what OVN's databases ask of it, where they are reached over TLS and we are the authority."""
        network, authority = self._layout.network, self._services.authority
        if network is None or not network.uses_tls or authority is None:
            return
        if self._fleet.obstacles_of(self._host, self._layout, None):
            return  # Another host has the name; the plan says so, and neither gets a certificate for it.
        if network.chassis == OWN_NAME:
            raise UsageError(
                f"{self._host} cannot be OVN's chassis {OWN_NAME}: operators have that name in their certificate",
                hint="give the host another `chassis` in the inventory",
            )
        issued = authority.issue(network.chassis)
        files = CertificateFiles(issued.certificate, issued.authority, issued.key)
        agent = self._services.host(self._host).agent
        change = agent.install_certificate(files, dry_run=self._options.check)
        if change.changed:
            text = f"certificate of {network.chassis} for OVN's databases"
            self._line(LineOutcome.CHANGED, None, text, before=change.before, after=change.after)

    def _install_boot(self, planned: PlannedHost) -> None:
        """Install the manifest of the state that was reached; with --check, say whether it would be another."""
        if not self._options.boot:
            return
        facts, host = planned.facts, self._services.host(self._host)
        with self._services.store.reading() as session:
            leases = session.leases(host=self._host)
        shares = shares_of(facts, leases, shares_made(self._services, self._host, facts))
        manifest = manifest_of(self._layout, facts)
        unit = render_boot_unit(host.agent.python, self._layout.stop_services, cards=len(manifest.gpus))
        files = BootFiles(manifest, shares, unit)
        change = host.agent.install_boot(files, dry_run=self._options.check)
        outcome = LineOutcome.CHANGED if change.changed else LineOutcome.OK
        self._line(outcome, None, f"{UNIT_NAME} restores it at boot", before=change.before, after=change.after)

    def _install_textfile(self) -> None:
        """Install the timer of the readings, or remove it where the layout has none any more."""
        layout, agent = self._layout.telemetry, self._services.host(self._host).agent
        files = render_textfile_files(self._host, layout, python=agent.python)
        change = agent.install_textfile(files, dry_run=self._options.check)
        if change.changed or layout is not None:
            outcome = LineOutcome.CHANGED if change.changed else LineOutcome.OK
            text = f"{TIMER_NAME} writes the readings for node_exporter"
            self._line(outcome, None, text, before=change.before, after=change.after)

    def _take_steps(self, steps: Sequence[PlannedStep], facts: HostFacts) -> bool:
        """Take them one by one and stop at the first that fails. Returns whether a mode now waits for a reset.

        The GPUs of shares that are deleted must prove healthy, as after the end of a VM.
        """
        deleted: list[str] = []
        try:
            return self._take_each(steps, facts, deleted)
        finally:
            if deleted:
                found = (shares_of_devices([device], facts) for device in deleted)
                gone = [share for one in found if not isinstance(one, str) for share in one]
                release_strays(self._services, self._services.host(self._host), gone)

    def _take_each(self, steps: Sequence[PlannedStep], facts: HostFacts, deleted: list[str]) -> bool:
        for planned in steps:
            if self._stop.is_set():
                raise Interrupted(f"{self._host}: interrupted before: {planned.summary}")
            step = planned.step
            if planned.phase is Phase.STOP_SERVICES and isinstance(step, SetServiceActive):
                note_pending_restart(self._services, self._host, service=step.name)
            if makes_share(step):
                note_share(self._services, self._host, facts.boot_id, step)
            try:
                (change,) = self._services.host(self._host).agent.apply([step])
            except AgentProblem as problem:
                if problem.code == ProblemCode.MIG_MODE_PENDING:
                    # The next reading shows the mode, and the reset is a step of the next plan.
                    self._done.append(planned)
                    self._line(LineOutcome.CHANGED, planned.gpu, planned.summary, reason="it waits for a reset")
                    return True
                self._line(LineOutcome.FAILED, planned.gpu, planned.summary, reason=problem.message, hint=problem.hint)
                raise
            if change.changed:
                self._done.append(planned)
            outcome = LineOutcome.CHANGED if change.changed else LineOutcome.OK
            self._line(outcome, planned.gpu, planned.summary, before=change.before, after=change.after)
            if not makes_share(step):
                note_share(self._services, self._host, facts.boot_id, step)
                if isinstance(step, VGPU_STEPS) and change.changed:
                    deleted.append(step.device)
        return False

    def _make_way(self, chosen: Selection) -> bool:
        """Stop the VMs that a step would disturb and release their shares. Returns whether there were any.

        Raises LayoutRefused, before any is stopped, when one was adopted: its definition names its shares.
        """
        names = dict.fromkeys((one.tenant, one.vm) for one in chosen.make_way if one.tenant and one.vm)
        vms = [find_vm(self._services, tenant or "", vm or "")[0] for tenant, vm in names]
        adopted = [vm.domain_name for vm in vms if vm.is_adopted]
        if adopted:
            raise LayoutRefused(
                f"{self._host}: {', '.join(adopted)} cannot be stopped: an adopted domain names its shares itself",
                hint="delete its VM, or leave the GPU as it is",
            )
        for vm in vms:
            tenant, name = vm.request.tenant, vm.request.name
            if vm.state is VmState.RUNNING:
                note_pending_restart(self._services, self._host, vm=(tenant, name))
            stop_vm(self._services, vm, hold=Hold.RELEASE, timeout_s=_SHUTDOWN_TIMEOUT_S)
            self._line(LineOutcome.CHANGED, None, f"stop VM {name} of {tenant} and release its shares")
        return bool(vms)

    def _pay_debts(self) -> None:
        """Start again what this run, or an interrupted one before it, stopped."""
        pending = pending_restarts(self._services, self._host)
        if pending == PendingRestarts():
            return
        services = [name for name in pending.services if not self._try_start_service(name)]
        vms = [vm for vm in pending.vms if not self._try_start_vm(vm)]
        keep_pending_restarts(self._services, self._host, PendingRestarts(tuple(services), tuple(vms)))

    def _try_start_service(self, name: str) -> bool:
        try:
            (change,) = self._services.host(self._host).agent.apply([SetServiceActive(name, True)])
        except VgpuctlError as error:
            self._line(LineOutcome.FAILED, None, f"start {name} again", reason=error.message, hint=error.hint)
            return False
        if change.changed:
            self._line(LineOutcome.CHANGED, None, f"start {name} again", before=change.before, after=change.after)
        return True

    def _try_start_vm(self, name: tuple[str, str]) -> bool:
        try:
            vm, _leases = find_vm(self._services, *name)
            ((_vm, changed),) = start_vm(self._services, [vm])
        except VgpuctlError as error:
            text = f"start VM {name[1]} of {name[0]} again"
            self._line(LineOutcome.FAILED, None, text, reason=error.message, hint=error.hint)
            return False
        if changed:
            self._line(LineOutcome.CHANGED, None, f"start VM {name[1]} of {name[0]} again")
        return True

    def _roll_back(self) -> None:
        """Undo the done steps in reverse, each whatever became of the others; what fails stays in the host's undo."""
        left = [planned for planned in reversed(self._done) if not self._undo(planned)]
        self._done = left[::-1]

    def _undo(self, planned: PlannedStep) -> bool:
        is_undone = True
        for step in planned.undo:
            try:
                self._services.host(self._host).agent.apply([step])
            except Exception as error:  # noqa: BLE001 (reported, and the other steps are undone all the same)
                hint = error.hint if isinstance(error, VgpuctlError) else None
                text = f"roll back: {planned.summary}"
                self._line(LineOutcome.FAILED, planned.gpu, text, reason=str(error), hint=hint)
                is_undone = False
        if is_undone:
            self._line(LineOutcome.CHANGED, planned.gpu, f"rolled back: {planned.summary}")
        return is_undone

    def _line(
        self,
        outcome: LineOutcome,
        gpu: str | None,
        text: str,
        *,
        before: str | None = None,
        after: str | None = None,
        reason: str | None = None,
        hint: str | None = None,
    ) -> None:
        line = Line(self._host, outcome, gpu or "host", text, before, after, reason, hint)
        self._lines.append(line)
        self._note(line)
        self._tell(line)

    def _note(self, line: Line) -> None:
        """Add the event of a step that was done or failed; a run that only checks has none."""
        kind = _NOTED.get(line.outcome)
        if kind is None or self._options.check:
            return
        before, after = ({line.subject: one} if one is not None else None for one in (line.before, line.after))
        detail = f"{line.text}: {line.reason}" if line.reason else line.text
        with self._services.store.transaction() as session:
            session.add_event(kind, self._host, detail, host=self._host, before=before, after=after)


def describe_step(step: Step) -> str:
    """A step in one line: `sriov.set address=0000:41:00.0 count=0`."""
    fields = " ".join(f"{key}={value}" for key, value in vars(step).items() if value is not None)
    return f"{step.op} {fields}"
