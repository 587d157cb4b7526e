# SPDX-License-Identifier: Apache-2.0
"""One host's way into its layout: step after step, each read back, until the host read again is as declared."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.problem_codes import ProblemCode
from vgpuctl.agent.wire.sharing import VGPU_STEPS
from vgpuctl.agent.wire.steps import SetServiceActive
from vgpuctl.errors import AgentProblem, Interrupted, LayoutDiffers, LayoutRefused, RestartFailed, VgpuctlError
from vgpuctl.model.event_kind import EventKind
from vgpuctl.model.layout import HostLayout
from vgpuctl.model.vm import Hold, Vm, VmState
from vgpuctl.planner.adoption import shares_of_devices
from vgpuctl.planner.layout.fleet_values import FleetValues
from vgpuctl.planner.layout.function_params import rolled_back_with
from vgpuctl.planner.layout.manifest import manifest_of
from vgpuctl.planner.layout.result import Difference, HostPlan, Phase, PlannedStep, Stranded
from vgpuctl.planner.layout.selection import Selection, select_steps
from vgpuctl.sharing.matching import entries_for
from vgpuctl.usecases.declared.installs import Install, certificates_of, files_of
from vgpuctl.usecases.declared.layout_records import (
    PendingRestarts,
    keep_pending_restarts,
    makes_share,
    note_pending_restart,
    note_share,
    pending_restarts,
    restarts_in_words,
    service_restart,
    vm_restart,
)
from vgpuctl.usecases.declared.narrow_tunnels import narrow_tunnels
from vgpuctl.usecases.found.find_vm import find_vm
from vgpuctl.usecases.host.check_hosts import note_state
from vgpuctl.usecases.layout.layout_lines import AppliedHost, LeftBehind, Line, LineOutcome
from vgpuctl.usecases.layout.left_behind import SeenHost, left_behind, seen_host
from vgpuctl.usecases.layout.plan_hosts import PlannedHost, read_and_plan, with_installs
from vgpuctl.usecases.layout.run_options import RunOptions
from vgpuctl.usecases.network.tunnel_mtu import note_guest_mtu
from vgpuctl.usecases.observed.host_snapshot import saved_snapshot
from vgpuctl.usecases.observed.observations import note_facts, read_facts
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.share.release import release_strays
from vgpuctl.usecases.vm.start_vm import start_vm
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm

_NOTED = {LineOutcome.CHANGED: EventKind.LAYOUT_STEP_DONE, LineOutcome.FAILED: EventKind.LAYOUT_STEP_FAILED}
_MOST_ROUNDS = 8
_SHUTDOWN_TIMEOUT_S = 60.0
_PAUSE_S = 2.0


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
        self._first: SeenHost | None = None
        self._broken: PlannedStep | None = None
        self._has_begun = False
        self._has_paid = False
        self._stranded: Mapping[str, Stranded] = {}
        self._patience_s = options.patience_s
        self._unable: set[tuple[str, str]] = set()

    def take(self) -> AppliedHost:
        """Run; whatever goes wrong is the result's `error`, after services and VMs were started again."""
        error: VgpuctlError | None = None
        try:
            if self._options.check:
                self._show(self._read())
            else:
                with self._services.store.operation("apply-hosts", f"host/{self._host}", self._host, exclusive=True):
                    try:
                        self._take_rounds()
                    except BaseException:
                        if self._options.undo:
                            self._roll_back()
                        raise
                    finally:
                        self._pay_debts()
                    self._take_snapshot()
        except VgpuctlError as failure:
            error = failure
            if not self._is_told(failure):
                self._line(LineOutcome.FAILED, None, "not as declared", reason=failure.message, hint=failure.hint)
        failed = [f"{line.text}: {line.reason}" for line in self._lines if line.outcome is LineOutcome.FAILED]
        if error is None and failed:
            error = RestartFailed(f"{self._host}: in its layout, but not all that was stopped runs", context=failed)
        undo = tuple(step for planned in reversed(self._done) for step in planned.undo)
        left = self._find_left() if error is not None else ()
        writes = self._services.host(self._host).agent.writes
        return AppliedHost(self._host, tuple(self._lines), self._differences, undo, writes, error, left=left)

    def _find_left(self) -> tuple[LeftBehind, ...] | None:
        """The differences that a failed run left on the host; None if the host cannot be read now."""
        if self._first is None or not self._has_begun:
            return ()
        try:
            now = read_facts(self._services, self._host)
        except VgpuctlError as error:
            self._line(LineOutcome.FAILED, None, "what the run left is not known", reason=error.message)
            return None
        return left_behind(self._first, seen_host(self._services, self._host, now))

    def _is_told(self, failure: VgpuctlError) -> bool:
        """True if lines say it already: those of a step that failed, or of what stands in the layout's way."""
        told = {line.reason for line in self._lines if line.outcome is LineOutcome.FAILED}
        return failure.message in told or (isinstance(failure, LayoutRefused) and bool(failure.context))

    def _take_snapshot(self) -> None:
        """Remember the state that a reboot must bring back, when it is a new one."""
        if self._options.after_boot:
            return  # VMs are still off.
        is_new = any(line.outcome is LineOutcome.CHANGED for line in self._lines)
        if is_new or saved_snapshot(self._services, self._host) is None:
            note_state(self._services, self._host, self._services.host(self._host).agent.facts())

    def _take_rounds(self) -> None:
        """Steps, the host read again, and so on until none is left.

        The shares that no VM has come last: VMs that made way are started before, and find their room free.
        """
        before: tuple[PlannedStep, ...] = ()
        wanted: tuple[PlannedStep, ...] = ()
        is_expected = True
        for number in range(_MOST_ROUNDS):
            planned, chosen = self._wait_for_holders(self._read())
            if number == 0:
                self._first = seen_host(self._services, self._host, planned.facts)
                certificate = certificates_of(self._services, self._host, self._layout, self._fleet)
                if not chosen.is_none and [one for one in certificate if self._install(one)]:
                    planned, chosen = self._wait_for_holders(self._read())
                self._begin(planned)
            if not self._has_paid and self._make_way(chosen):
                wanted, is_expected = chosen.steps, True
                continue
            self._tell_settled(wanted, chosen.steps)
            steps, wanted = chosen.steps, ()
            if planned.restarts.vms and not self._has_paid:
                steps = tuple(one for one in steps if one.phase is not Phase.SHARES)
                if not steps:
                    self._pay_debts()
                    # VMs stand on the steps so far, which are not rolled back any more.
                    self._done, self._has_paid, is_expected = [], True, True
                    continue
            if not steps:
                break
            if not is_expected or steps == before:
                raise LayoutDiffers(
                    f"{self._host}: the steps were taken, but the host is not as declared",
                    context=[str(difference) for difference in planned.plan.differences],
                    hint="see what else changes this host, then run again",
                )
            before = steps
            is_pending = self._take_steps(steps, planned.facts)
            is_expected = bool(planned.plan.later) or is_pending
        else:
            raise LayoutDiffers(f"{self._host}: not as declared after {_MOST_ROUNDS} rounds of steps")
        with self._services.store.transaction() as session:
            note_facts(session, self._host, planned.facts)
            if not narrow_tunnels(session, self._layout):
                note_guest_mtu(session, self._host, self._layout.network)
        self._end(with_installs(self._services, planned, self._fleet, (), boot=self._options.boot), chosen)
        manifest = manifest_of(self._layout, planned.facts)
        for one in files_of(self._services, self._host, self._layout, planned.facts, manifest, boot=self._options.boot):
            self._install(one)

    def _tell_settled(self, wanted: Sequence[PlannedStep], left: Sequence[PlannedStep]) -> None:
        """Say of the steps that the end of the VMs in the way has taken already, such as a card's way to its driver."""
        for planned in wanted:
            if all(one.summary != planned.summary for one in left):
                self._line(LineOutcome.OK, planned.gpu, planned.summary)

    def _read(self) -> PlannedHost:
        planned = read_and_plan(
            self._services,
            self._host,
            self._layout,
            self._fleet,
            after_boot=self._options.after_boot,
            stranded=self._stranded,
        )
        self._stranded = planned.stranded
        if self._options.undo and not self._has_begun:  # a file that would be refused at the end is known now
            whole = with_installs(self._services, planned, self._fleet, planned.plan.steps, boot=self._options.boot)
            planned = replace(planned, plan=whole.plan)
        return planned

    def _select(self, plan: HostPlan) -> Selection:
        given = self._options
        return select_steps(plan, may_disrupt=given.disrupt, may_reset=given.reset, all_or_none=given.undo)

    def _wait_for_holders(self, planned: PlannedHost) -> tuple[PlannedHost, Selection]:
        """The plan and what is chosen of it, once nobody has a GPU open or the patience is over, which counts once."""
        chosen = self._select(planned.plan)
        while self._patience_s > 0 and any(one.is_held for one in chosen.refusals) and not self._stop.is_set():
            self._stop.wait(_PAUSE_S)
            self._patience_s -= _PAUSE_S
            planned = self._read()
            chosen = self._select(planned.plan)
        return planned, chosen

    def _show(self, planned: PlannedHost) -> None:
        """The lines of a run that changes nothing."""
        chosen = self._select(planned.plan)
        if not chosen.is_none:
            planned = with_installs(self._services, planned, self._fleet, chosen.steps, boot=self._options.boot)
        self._begin(planned)
        vms = self._in_the_way(chosen)
        for vm in vms:
            self._line(LineOutcome.CHANGED, None, _stopping(vm))
        for step in chosen.steps:
            self._line(LineOutcome.CHANGED, step.gpu, step.summary)
        names = [_name(vm) for vm in vms if vm.state is VmState.RUNNING]
        for text in restarts_in_words(planned.restarts, names):
            self._line(LineOutcome.CHANGED, None, text)
        for text in planned.later:
            self._line(LineOutcome.SKIPPED, None, text, reason="known only once the steps before are done")
        self._end(planned, chosen)
        for one in planned.installs:
            self._line(LineOutcome.CHANGED, None, one.summary, before=one.before, after=one.after)
        for text in planned.installed:
            self._line(LineOutcome.OK, None, text)

    def _begin(self, planned: PlannedHost) -> None:
        plan = planned.plan
        self._differences = plan.differences
        busy = {one.gpu for one in plan.steps} | {one.gpu for one in plan.differences}
        busy |= {one.gpu for one in plan.obstacles} | {*plan.unknown}
        if None not in busy:
            self._line(LineOutcome.OK, None, "as declared")
        for gpu in sorted(planned.facts.gpus, key=lambda one: one.address):
            entries = entries_for(gpu, self._layout.gpus)
            if entries and gpu.address not in busy:
                self._line(LineOutcome.OK, gpu.address, f"{entries[0].layout.kind}, as declared")

    def _end(self, planned: PlannedHost, chosen: Selection) -> None:
        """Say what is left, and raise LayoutRefused where the layout was to be reached and is not."""
        plan = planned.plan
        refused = chosen.refused
        for refusal in chosen.refusals:
            self._line(LineOutcome.FAILED, refusal.gpu, "not changed", reason=refusal.reason, hint=refusal.remedy)
        for step in chosen.left_out:
            is_refused = step.gpu in chosen.refused or (step.disrupts and not self._options.disrupt)
            reason = "not allowed" if is_refused else "--undo takes all steps or none"
            self._line(LineOutcome.SKIPPED, step.gpu, step.summary, reason=reason)
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
        if (found := planned.refusal(chosen, is_planned=self._options.check)) is not None:
            raise found

    def _install(self, one: Install) -> bool:
        """Install files. Those that the layout declares get a line in any case. Returns whether any differed."""
        self._has_begun = True
        change = one.ensure(False)
        if change.changed or one.is_declared:
            outcome = LineOutcome.CHANGED if change.changed else LineOutcome.OK
            self._line(outcome, None, one.summary, before=change.before, after=change.after)
        return change.changed

    def _take_steps(self, steps: Sequence[PlannedStep], facts: HostFacts) -> bool:
        """Take them one by one and stop at the first that fails. Returns whether a mode now waits for a reset.

        The GPUs of shares that are deleted must prove healthy, as after the end of a VM.
        """
        deleted: list[str] = []
        try:
            return self._take_each(steps, facts, deleted)
        finally:
            self._services.doing.pop(self._host, None)
            if deleted:
                found = (shares_of_devices([device], facts) for device in deleted)
                gone = [share for one in found if not isinstance(one, str) for share in one]
                release_strays(self._services, self._services.host(self._host), gone)

    def _take_each(self, steps: Sequence[PlannedStep], facts: HostFacts, deleted: list[str]) -> bool:
        for planned in steps:
            if self._stop.is_set():
                raise Interrupted(f"{self._host}: interrupted before: {planned.summary}")
            step, self._has_begun = planned.step, True
            self._services.doing[self._host] = planned.summary
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
                self._broken = planned
                if not self._options.undo:
                    undone = [one for one in rolled_back_with(planned, self._done) if self._undo(one)]
                    self._done = [one for one in self._done if one not in undone]
                raise
            self._done += [planned] if change.changed else []
            outcome = LineOutcome.CHANGED if change.changed else LineOutcome.OK
            self._line(outcome, planned.gpu, planned.summary, before=change.before, after=change.after)
            if not makes_share(step):
                note_share(self._services, self._host, facts.boot_id, step)
                if isinstance(step, VGPU_STEPS) and change.changed:
                    deleted.append(step.device)
        return False

    def _in_the_way(self, chosen: Selection) -> list[Vm]:
        """The VMs that a step would disturb. The plan has none that could not come back (`find_stranded`)."""
        names = dict.fromkeys((one.tenant, one.vm) for one in chosen.make_way if one.tenant and one.vm)
        return [find_vm(self._services, tenant or "", vm or "")[0] for tenant, vm in names]

    def _make_way(self, chosen: Selection) -> bool:
        """Stop the VMs that a step would disturb and release their shares. Returns whether there were any."""
        vms = self._in_the_way(chosen)
        for vm in vms:
            self._has_begun = True
            if vm.state is VmState.RUNNING:
                note_pending_restart(self._services, self._host, vm=_name(vm))
            stop_vm(self._services, vm, Stop(Hold.RELEASE, _SHUTDOWN_TIMEOUT_S))
            self._line(LineOutcome.CHANGED, None, _stopping(vm))
        return bool(vms)

    def _pay_debts(self) -> None:
        """Start again what this run, or an interrupted one before it, stopped; a failure is kept for the next run."""
        pending = pending_restarts(self._services, self._host)
        if pending == PendingRestarts():
            return
        services = [name for name in pending.services if not self._try_start_service(name)]
        self._unable |= {vm for vm in pending.vms if vm not in self._unable and not self._try_start_vm(vm)}
        vms = [vm for vm in pending.vms if vm in self._unable]
        keep_pending_restarts(self._services, self._host, PendingRestarts(tuple(services), tuple(vms)))

    def _try_start_service(self, name: str) -> bool:
        try:
            (change,) = self._services.host(self._host).agent.apply([SetServiceActive(name, True)])
        except VgpuctlError as error:
            self._line(LineOutcome.FAILED, None, service_restart(name), reason=error.message, hint=error.hint)
            return False
        if change.changed:
            text = service_restart(name)
            self._line(LineOutcome.CHANGED, None, text, before=change.before, after=change.after)
        return True

    def _try_start_vm(self, name: tuple[str, str]) -> bool:
        try:
            vm, _leases = find_vm(self._services, *name)
            ((_vm, changed),) = start_vm(self._services, [vm])
        except VgpuctlError as error:
            self._line(LineOutcome.FAILED, None, vm_restart(name), reason=error.message, hint=error.hint)
            return False
        if changed:
            self._line(LineOutcome.CHANGED, None, vm_restart(name))
        return True

    def _roll_back(self) -> None:
        """Undo the steps in reverse, each whatever became of the others; what fails stays in the host's undo.

        The step that failed comes first: it may have done a part of its work.
        """
        if self._broken is not None and self._broken not in self._done:
            self._undo(self._broken, is_told=False)
        left = [planned for planned in reversed(self._done) if not self._undo(planned)]
        self._done = left[::-1]

    def _undo(self, planned: PlannedStep, *, is_told: bool = True) -> bool:
        """Undo a step. is_told: False to say nothing where the host was as before already."""
        is_undone = True
        for step in planned.undo:
            try:
                (change,) = self._services.host(self._host).agent.apply([step])
                is_told = is_told or change.changed
            except Exception as error:  # noqa: BLE001 (reported, and the other steps are undone all the same)
                hint = error.hint if isinstance(error, VgpuctlError) else None
                text = f"roll back: {planned.summary}"
                self._line(LineOutcome.FAILED, planned.gpu, text, reason=str(error), hint=hint)
                is_undone = False
        if is_undone and is_told:
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


def _name(vm: Vm) -> tuple[str, str]:
    return vm.request.tenant, vm.request.name


def _stopping(vm: Vm) -> str:
    return f"stop VM {vm.request.name} of {vm.request.tenant} and release its shares"
