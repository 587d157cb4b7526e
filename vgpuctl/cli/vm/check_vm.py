# SPDX-License-Identifier: Apache-2.0
"""check-vm: is everything that VMs' owners were promised so?"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpuctl.cli.forms.vm_selection import VmChoice, vms
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import print_line, say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.model.promise import PromiseCheck, PromiseFinding
    from vgpuctl.model.vm import Vm


_JSON: "JsonOutput[PromiseCheck | Sequence[PromiseCheck]]" = JsonOutput()
_EXIT_CODES = {"kept": 0, "broken": 1, "not-looked-at": 14}
_WORDS = {"kept": "kept", "broken": "broken", "not-looked-at": "not looked at"}


@click.command("check-vm")
@vms()
@options.seconds("timeout", 60.0, "Time for the probe in the guest.", least=1, most=600)
@options.one_host
@options.as_json
def command(chosen: VmChoice, timeout_s: float, as_json: bool, **where: Any) -> None:
    """Check whether running VMs have what their owners were promised. Each row of the promise is checked, and the
    answers are kept as evidence.

    A row is `kept` or `broken` when its witness showed it: the host's kernel, NVML, libvirt, OVN or the guest. A row
    that nobody could look at says why. Where the tenant's file has `guest_probe: true`, a probe in the guest is asked
    too, through the guest agent.

    Of VMs that are not named one by one, those that a command stopped are left out. One that should run and is shut off
    is broken, in one row. Of several VMs, only rows that are not kept are shown.

    Exit code 1 when a row is broken, else 14 when a row was not looked at; 0 means that every row is kept.
    """
    from vgpuctl.cli.forms.services import services
    from vgpuctl.usecases.running.each_vm import on_each_vm
    from vgpuctl.usecases.vm.check_vm import check_vm

    with services(**where) as opened:
        found = chosen.find(opened)
        if not chosen.is_by_name:
            off = [vm for vm, _held in found if vm.state != "running"]
            found = [(vm, held) for vm, held in found if vm not in off]
            if off:
                say(f"{counted(len(off), 'VM')} left out, with no promise to check: {_states(off)}")
        leases = {vm.uuid: held for vm, held in found}

        def check(vm: "Vm") -> "PromiseCheck":
            return check_vm(opened, vm, leases[vm.uuid], timeout_s=timeout_s)

        done = on_each_vm(opened, [vm for vm, _leases in found], check)
    checks = [(one.vm, one.value) for one in done if one.value is not None]
    if not as_json:
        _print_all([(vm.printed_name, checked) for vm, checked in checks])
    chosen.answer(
        done, outcome=lambda one: _WORDS[one.verdict], json=lambda one: one, output=_JSON if as_json else None
    )
    verdicts = {str(checked.verdict) for _vm, checked in checks}
    for worst in ("broken", "not-looked-at"):
        if worst in verdicts:
            raise click.exceptions.Exit(_EXIT_CODES[worst])


def _states(vms: "Sequence[Vm]") -> str:
    counts = Counter(str(vm.state) for vm in vms)
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def _print_all(checks: "Sequence[tuple[str, PromiseCheck]]") -> None:
    """Of one VM every row; of several the rows that are not kept, and how many VMs have none."""
    wrong = [(name, checked) for name, checked in checks if checked.verdict != "kept"]
    for name, checked in checks if len(checks) == 1 else wrong:
        _print(name, checked, is_short=len(checks) > 1)
    if len(checks) > 1:
        print_line(f"kept in every row: {counted(len(checks) - len(wrong), 'VM')}")
        say(f"every row of one VM: `vgpuctl check-vm {(wrong or checks)[0][0]}`")


def _print(name: str, checked: "PromiseCheck", *, is_short: bool) -> None:
    from vgpuctl.model.promise import DOMAIN_NOT_RUNNING

    off = [one for one in checked.findings if one.remedy == DOMAIN_NOT_RUNNING]
    if off:
        print_line(f"the promise to the owner of {name} is broken in every row")
        print_line(f"broken        it does not run: {off[0].seen}")
        print_line(f"              start it: vgpuctl start-vm {name}; a paused one: vgpuctl repair")
        return
    kept = sum(one.verdict == "kept" for one in checked.findings)
    said = {
        "kept": "is kept in every row",
        "broken": "is broken",
        "not-looked-at": f"is kept in the rows that could be looked at, {kept} of {len(checked.findings)}"
        if kept
        else f"could not be looked at in any of its {len(checked.findings)} rows",
    }
    print_line(f"the promise to the owner of {name} {said[checked.verdict]}")
    for one in checked.findings:
        if is_short and one.verdict == "kept":
            continue
        print_line(f"{_WORDS[one.verdict]:13} {one}{_found(one)}")
        if one.remedy:
            print_line(f"              look: {one.remedy}")
    for note in () if is_short else checked.notes:
        print_line(f"note          {note}")


def _found(one: "PromiseFinding") -> str:
    if one.why:
        return f": {one.why}; promised {one.promised}"
    return f", by {one.witness}: promised {one.promised}, seen {one.seen}"
