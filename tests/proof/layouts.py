# SPDX-License-Identifier: Apache-2.0
"""plan-hosts, `apply-hosts --check` and apply-hosts say and do one thing: generated ways from a layout to another.

A case is a simulated machine in this process (the product's own client, agent and use cases; no sshd) in a first
layout, with VMs that run, VMs that keep shares while they are off, or vGPUs of others, then another layout, options,
and perhaps a fault in a step. Every case shows:

- a layout that a fresh machine can have is reached;
- plan and check write nothing; check has the steps of the plan that the options allow, and the run has those of check,
  and what the plan said would be known later;
- plan ends with the exit code of a check that may do all;
- check and run end with the same exit code, but for a fault; a run with a failed line never ends with 0;
- after a run that ended with 0 the next plan and the next check have nothing to do, and every VM that ran runs;
- after a refused or failed run the machine is as it was before, or what is otherwise is named.

The last line of stdout is JSON. The exit code is 1 when a case shows something else.
Run it with `python -m tests.proof.layouts --cases 1000 [--seed 0] [--only 17]`.
"""

import argparse
import dataclasses
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.proof.layout_cases import DCGM, NOWHERE, Case, make_case
from tests.proof.machine_in_process import MachineInProcess
from vgpuctl.catalog import read_gpu_request
from vgpuctl.errors import VgpuctlError
from vgpuctl.model.vm import Hold, VmRequest
from vgpuctl.usecases.declared.layout_records import restarts_in_words
from vgpuctl.usecases.layout.apply_hosts import apply_hosts
from vgpuctl.usecases.layout.layout_lines import AppliedHost, LineOutcome
from vgpuctl.usecases.layout.plan_hosts import PlannedHost, declared_layouts, plan_hosts
from vgpuctl.usecases.layout.run_options import RunOptions
from vgpuctl.usecases.vm.create_vm import create_vm
from vgpuctl.usecases.vm.stop_vm import Stop, stop_vm
from vgpuctl_lab.simulated.machine import faults, rules, usage
from vgpuctl_lab.simulated.machine.shape import VF_PROFILE


class Trial:
    """One case on its machine."""

    def __init__(self, case: Case, home: Path) -> None:
        self.case = case
        self.host = MachineInProcess(home, case.mix)
        (self.host.machine.files.root / "var/lib/prometheus/node-exporter").mkdir(parents=True)

    def run(self) -> None:
        """Show what the module says."""
        case = self.case
        self.host.declare(case.before)
        first, code = self.apply(RunOptions(reset=True, patience_s=0))
        case.seen[f"first layout {code}"] += 1
        is_possible = case.before.get("telemetry", {}).get("textfile") != NOWHERE
        self._expect(code == 0 or not is_possible, f"a fresh machine does not reach its first layout: {first.error}")
        self._make_users()
        self.host.declare(case.after)
        before, vms = self.state(), self.running()
        planned = self.plan()
        self._expect(self.state() == before, "plan-hosts changed the machine")
        plan_code = 0 if planned.dead_end is None else planned.dead_end.exit_code
        _, whole_code = self.apply(RunOptions(check=True, disrupt=True, reset=True, patience_s=0))
        self._expect(plan_code == whole_code, f"plan ends with {plan_code}, a check that may do all with {whole_code}")
        checked, check_code = self.apply(dataclasses.replace(case.options, check=True))
        self._expect(self.state() == before, "--check changed the machine")
        self._compare_check(planned, checked, check_code)
        self._begin_fault()
        before = self.state()
        done, code = self.apply(case.options)
        after = self.state()
        has_fault = case.card_fault is not None or (
            case.step_fault is not None and any("fault " in (line.reason or "") for line in done.lines)
        )
        self._end_fault()
        case.lines = [str(dataclasses.astuple(one)[1:]) for one in (*checked.lines, *done.lines)]
        case.seen[f"run {code}{' after a fault' if has_fault else ''}"] += 1
        self._count(done)
        failed = [line for line in done.lines if line.outcome is LineOutcome.FAILED]
        self._expect(not (failed and code == 0), f"{failed} and exit code 0")
        if not has_fault:
            self._expect(code == check_code, f"check ended with {check_code}, the run with {code}: {done.error}")
            self._compare_run(checked, done)
        if code == 0 and case.card_fault is not None:
            gone = sorted(set(vms) - set(self.running()))  # The end of the fault may have changed the machine.
            self._expect(not gone, f"the run ended with 0, and {gone} do not run any more")
        elif code == 0:
            self._expect_nothing_left(vms)
        else:
            self._expect_named(before, after, vms, done)

    def _make_users(self) -> None:
        """VMs on what the first layout offers, a vGPU of nobody, a service that has the cards open."""
        case, machine = self.case, self.host.machine
        chance = random.Random(case.number)
        with self.host.services() as services, services.store.transaction() as session:
            session.add_tenant("acme")
        for number in range(case.vms):
            wanted = self._profile(chance)
            if wanted is None:
                break
            request = VmRequest(f"vm-{number}", "acme", (read_gpu_request(wanted),), 1, 64, network=None)
            with self.host.services() as services:
                try:
                    create_vm(services, [request])
                except VgpuctlError as error:
                    case.seen[f"no VM: {error.reference}"] += 1
                    break
                case.seen["VMs"] += 1
                if case.stopped and number % 2 == 0:
                    with services.store.reading() as session:
                        vm = session.vm("acme", request.name)
                    assert vm is not None
                    stop_vm(services, vm, Stop(Hold.KEEP, 0))
                    case.seen["stopped VMs"] += 1
        card = machine.card
        if case.stranger and card.types and machine.files.state().vf_counts.get(card.address):
            with machine.files.change() as state:
                free = [vf for vf in state.vfs_of(card) if all(one.function != vf for one in state.vgpus)]
                kind = next(
                    (one for one in card.types if rules.Ruling(state, card).status(free[-1], one)[0] == 0), None
                )
                if kind is not None and card.interface == VF_PROFILE:
                    rules.add(
                        state, card, free[-1], kind, None, instance=rules.Ruling(state, card).status(free[-1], kind)[1]
                    )
                    case.seen["vGPUs of others"] += 1
        if case.dcgm:
            with machine.files.change() as state:
                usage.start_service(machine.files.shape, state, DCGM)

    def _profile(self, chance: random.Random) -> str | None:
        gpu = self.host.machine.gpu()
        types = sorted(one.name for one in gpu.types if one.creatable and one.name[-1] in "QC")
        if types:
            return chance.choice(types)
        if "vf" in gpu.sharing:
            return "vf"
        return "passthrough" if "passthrough" in gpu.sharing else None

    def _count(self, done: AppliedHost) -> None:
        for line in done.lines:
            if line.text.startswith("start VM ") and line.outcome is LineOutcome.CHANGED:
                self.case.seen["VMs stopped and started again"] += 1
            if line.text == "vm-cannot-return":
                self.case.seen["GPUs kept for a VM"] += 1
            if line.outcome is LineOutcome.CHANGED:
                self.case.seen["steps rolled back" if line.text.startswith("rolled back") else "steps done"] += 1
        with self.host.services() as services, services.store.reading() as session:
            for lease in session.leases():
                self.case.seen[f"share: {lease.share.sharing}"] += 1

    def _begin_fault(self) -> None:
        case = self.case
        if case.step_fault is not None:
            self.host.fail_at(case.step_fault[0], is_done=case.step_fault[1])
        if case.card_fault is not None:
            self.host.machine.begin(case.card_fault, 600 if case.card_fault == faults.LOCK_BUSY else 1)

    def _end_fault(self) -> None:
        self.host.fail_at(None)
        if self.case.card_fault is not None:
            self.host.machine.begin(self.case.card_fault, 0)

    def plan(self) -> PlannedHost:
        """plan-hosts, now."""
        with self.host.services() as services:
            (found,) = plan_hosts(services, declared_layouts(services))
        if found.value is None:
            raise AssertionError(f"plan-hosts: {found.error}")
        return found.value

    def apply(self, options: RunOptions) -> tuple[AppliedHost, int]:
        """apply-hosts, and the exit code that its command ends with."""
        with self.host.services() as services:
            (done,) = apply_hosts(services, declared_layouts(services), options, tell=lambda _line: None)
        return done, 0 if done.error is None else done.error.exit_code

    def running(self) -> list[str]:
        """The VMs that run, by the machine."""
        return sorted(one.name for one in self.host.machine.files.state().domains.values())

    def state(self) -> dict[str, Any]:
        """The machine's own state, without what goes by itself and without the marks of who has read it."""
        state = dataclasses.asdict(self.host.machine.files.state().lasting())
        state["vf_counts"] = {card: count for card, count in state["vf_counts"].items() if count}
        state["mig_modes"] = {card: modes for card, modes in state["mig_modes"].items() if any(modes)}
        # Nobody can read the scheduler of a card that is not on its driver.
        state["schedulers"] = {
            card: one
            for card, one in state["schedulers"].items()
            if one["policy"] != 1 and state["drivers"].get(card) == "nvidia"
        }
        state["hugepages"] = {size: count for size, count in state["hugepages"].items() if count}
        functions = {card.address for card in self.host.machine.files.shape.cards}
        state["drivers"] = {one: driver for one, driver in state["drivers"].items() if one in functions}
        for domain in state["domains"].values():
            domain.update(pid=0, started_at=0)
        # The driver and the kernel may number objects differently when they are made again.
        state["vgpus"] = sorted((one["function"], one["type_id"], one["params"], one["uuid"]) for one in state["vgpus"])
        state["instances"] = sorted(
            (
                one["card"],
                one["profile_id"],
                one["start"],
                one["mixes_sizes"],
                sorted(each["size"] for each in one["computes"]),
            )
            for one in state["instances"]
        )
        for key in ("skipped_s", "faults", "overrides", "processes", "owners", "opened", "played_xids", "no_autoprobe"):
            state.pop(key)
        folder = self.host.machine.files.root / "etc"
        files = {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}
        return {**state, "files": {name: hash(data) for name, data in files.items() if "vgpuctl" in name}}

    def _compare_check(self, planned: PlannedHost, checked: AppliedHost, code: int) -> None:
        """Check has every step of the plan, but for GPUs that the options leave as they are."""
        changed = _changed(checked)
        steps = [one.summary for one in planned.plan.steps]
        further = [*restarts_in_words(planned.restarts), *(one.summary for one in planned.installs)]
        told = [text for text in changed if not text.startswith("stop VM ")]
        extra = [text for text in told if text not in (*steps, *further) and not text.startswith("start VM ")]
        self._expect(not extra, f"check has steps that the plan has not: {extra}")
        refused = {line.subject for line in checked.lines if line.outcome is LineOutcome.FAILED}
        missing = [
            one.summary for one in planned.plan.steps if one.summary not in told and (one.gpu or "") not in refused
        ]
        if refused:
            missing = [one for one in missing if not one.startswith(("stop ", "start "))]
        if not refused:
            missing += [one for one in further if one not in told and (self.case.options.boot or "restore" not in one)]
        if refused and self.case.options.undo:
            self._expect(not told, f"--undo takes all steps or none, and check has {told}")
            missing = []
        self._expect(not missing, f"check lacks steps of the plan: {missing}")
        self._expect((code == 0) == (not refused), f"check has failed lines {refused} and exit code {code}")
        if planned.is_done:
            self._expect(not changed, f"the plan is as declared, and check has {changed}")

    def _compare_run(self, checked: AppliedHost, done: AppliedHost) -> None:
        """The run has every step of check, and more only where check said that more is known later."""
        wanted, found = Counter(map(_anywhere, _changed(checked))), Counter(map(_anywhere, _changed(done)))
        later = [line.text for line in checked.lines if line.reason == "known only once the steps before are done"]
        # The machine may be so already where nobody could read it before the steps.
        missing = wanted - found - Counter(line.text for line in done.lines if line.outcome is LineOutcome.OK)
        self._expect(not missing, f"the run lacks steps of check: {dict(missing)}")
        extra = [text for text in (found - wanted).elements() if not _is_of(text, later)]
        self._expect(not extra, f"the run has steps that check has not: {extra}; later: {later}")

    def _expect_nothing_left(self, vms: list[str]) -> None:
        planned = self.plan()
        rest = [
            *(one.summary for one in planned.plan.steps),
            *(one.summary for one in planned.installs),
            *planned.later,
        ]
        if not self.case.options.boot:
            rest = [one for one in rest if "restores it at boot" not in one]
        open_ends = [str(one) for one in planned.plan.differences if one.remedy is None]
        self._expect(not rest and not open_ends, f"after the run the plan still has {rest} {open_ends}")
        before = self.state()
        again, code = self.apply(dataclasses.replace(self.case.options, check=False))
        self._expect(code == 0 and not _changed(again), f"a second run did {_changed(again)} and ended with {code}")
        self._expect(self.state() == before, "a second run changed the machine")
        gone = sorted(set(vms) - set(self.running()))
        self._expect(not gone, f"the run ended with 0, and {gone} do not run any more")

    def _expect_named(self, before: dict[str, Any], after: dict[str, Any], vms: list[str], done: AppliedHost) -> None:
        differing = sorted(key for key in before if before[key] != after[key])
        gone = sorted(set(vms) - set(self.running()))
        told = " ".join(line.text for line in done.lines if line.outcome is LineOutcome.FAILED)
        unnamed = [name for name in gone if f"VM {name.partition('.')[2]} of acme" not in told]
        self._expect(not unnamed, f"{unnamed} do not run any more, and no line says so: {told}")
        if gone or self.running():
            differing = [key for key in differing if key != "domains"]
        self.case.seen["as before" if not differing else "named"] += 1
        if differing:
            self._expect(bool(done.left), f"{differing} differ, and nothing is named: {done.lines}")
        elif not gone:
            self._expect(not done.left, f"the machine is as before, and the run names {done.left}")

    def _expect(self, holds: bool, text: str) -> None:
        if not holds:
            self.case.wrong.append(text)


def _changed(done: AppliedHost) -> list[str]:
    return [line.text for line in done.lines if line.outcome is LineOutcome.CHANGED and "rolled back" not in line.text]


def _anywhere(text: str) -> str:
    """A step without the VF of a share: VMs that made way come back first, to any of them."""
    return text.partition(" on VF ")[0]


def _is_of(text: str, later: Sequence[str]) -> bool:
    """True if a step is one of those that were said to be known later."""
    if text in later:
        return True
    words = " ".join(later)
    if "OVN" in words and ("OVN" in text or "bridge" in text):
        return True
    gpus = [one.partition(": ")[0] for one in later]
    return any(
        gpu in text or text.startswith(("set vGPU type", "create mdev")) for gpu in gpus if gpu.startswith("0000")
    )


def run_cases(seed: int, numbers: Sequence[int]) -> tuple[list[Case], Counter[str]]:
    """Run the cases; those that show something else than they should, and what all have seen."""
    wrong: list[Case] = []
    seen: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="vgpuctl-layouts-") as folder:
        for number in numbers:
            case = make_case(seed, number)
            trial = Trial(case, Path(folder) / str(number))
            try:
                trial.run()
            except AssertionError as error:
                case.wrong.append(str(error))
            seen.update(case.seen)
            seen[case.mix] += 1
            if case.wrong:
                wrong.append(case)
                print(describe(case), flush=True)
    return wrong, seen


def describe(case: Case) -> str:
    """A case that shows something else, with all that makes it."""
    return f"case {case.number}: {case}\n" + "\n".join(f"  {text}" for text in (*case.lines, *case.wrong))


def main(arguments: Sequence[str]) -> int:
    """Run the proof; 1 when a case shows something else than it should."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="of the generator")
    parser.add_argument("--only", type=int, help="this case alone")
    chosen = parser.parse_args(arguments)
    numbers = range(chosen.cases) if chosen.only is None else [chosen.only]
    wrong, seen = run_cases(chosen.seed, numbers)
    print(
        json.dumps(
            {"cases": len(numbers), "wrong": [case.number for case in wrong], "seen": dict(sorted(seen.items()))}
        )
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
