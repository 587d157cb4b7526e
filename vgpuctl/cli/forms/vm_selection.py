# SPDX-License-Identifier: Apache-2.0
"""Commands on one or several VMs: how they are named, the question before, and the answer of all of them."""

import functools
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

import click

from vgpuctl.cli.forms.services import report_hosts
from vgpuctl.cli.frame.command_line import running
from vgpuctl.cli.options import options
from vgpuctl.cli.shown.json_output import JsonOutput
from vgpuctl.cli.shown.output import confirm, plain, say
from vgpuctl.errors import UsageError
from vgpuctl.model.labels import is_label_change, parse_label_change
from vgpuctl.model.natural_order import natural
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.model.labels import Selector
    from vgpuctl.model.vm import Vm
    from vgpuctl.usecases.found.find_vms import Found, VmSelection
    from vgpuctl.usecases.placement.queued_vms import QueuedVm
    from vgpuctl.usecases.running.each_vm import VmResult
    from vgpuctl.usecases.running.services import Services

_MOST_LISTED = 10
_MOST_TENANTS = 5
"""VMs that are named one by one before a question, and in a dry run."""

_NAMES_OF_THINGS = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
"""UUIDs and addresses of devices."""

Command = TypeVar("Command", bound=Callable[..., Any])
Value = TypeVar("Value")
Item = TypeVar("Item")


@dataclass(frozen=True)
class VmChoice:
    """The VMs that a command line names. verb: of the question before several are changed, None where none is asked.

    yes: the question was answered on the command line.
    """

    selection: "VmSelection"
    verb: str | None
    yes: bool
    begun_at: float

    @property
    def is_one(self) -> bool:
        """True if exactly one VM is named, by a plain name: its errors and its JSON stand for themselves."""
        return self.selection.is_one

    @property
    def is_by_name(self) -> bool:
        """True if every VM is named by its plain name."""
        return self.selection.is_by_name

    def find(self, opened: "Services", *, if_exists: bool = False, asks: bool = True) -> "list[Found]":
        """The VMs with their live leases. Asks before VMs are changed that were not named one by one, unless not asks.

        if_exists: a name or glob that fits no VM is a remark.
        """
        from vgpuctl.usecases.found.find_vms import find_vms
        from vgpuctl.usecases.observed.observations import told_states

        found = find_vms(opened, self.selection, if_exists=if_exists)
        if found and asks and self.verb is not None and not (self.selection.is_by_name or self.yes):
            vms = [vm for vm, _leases in found]
            with opened.store.reading() as session:
                told = told_states(session, vms)
            _list_found(vms, told)
            confirm(f"{self.verb} {counted(len(found), 'VM')}?")
        return found

    def queued(self, opened: "Services") -> "tuple[list[QueuedVm], VmChoice]":
        """Those of the VMs that wait in the queue to be created, and the choice of the others."""
        from vgpuctl.usecases.placement.queued_vms import find_queued

        found, rest = find_queued(opened, self.selection)
        return found, replace(self, selection=rest)

    @property
    def is_empty(self) -> bool:
        """True if no VM is named any more."""
        return not self.selection.names and not self.selection.is_all

    def is_summed_up(self, number: int) -> bool:
        """True for so many VMs that their dry run has no line for each step of each."""
        return number > _MOST_LISTED

    def each(self, opened: "Services", work: "Callable[[Vm], Value]") -> "list[VmResult[Value]]":
        """Find the VMs and do the work on each of them; see `on_each_vm`."""
        return self.on(opened, [vm for vm, _leases in self.find(opened)], work)

    def on(
        self, opened: "Services", vms: "Sequence[Vm]", work: "Callable[[Vm], Value]", *, is_in_turn: bool = False
    ) -> "list[VmResult[Value]]":
        """Do the work on each of these VMs; a dry run of many says nothing before `finish`, which sums it up."""
        from vgpuctl.usecases.running.each_vm import on_each_vm

        with quiet() if opened.rehearsal is not None and self.is_summed_up(len(vms)) else nullcontext():
            return on_each_vm(opened, vms, work, is_in_turn=is_in_turn)

    def answer(
        self,
        results: "Sequence[VmResult[Value]]",
        *,
        outcome: Callable[[Value], str],
        json: "Callable[[Value], Item]",
        output: "JsonOutput[Item | Sequence[Item]] | None",
    ) -> None:
        """Print the JSON, of one VM as an object and else as a list, then as `finish`.

        json: of a result. output: None where no JSON is wanted.
        """
        if output is not None:
            answers = [_answer(one, json) for one in results if one.error is None]
            if not self.is_one:
                output.print(answers)
            elif answers:
                output.print(answers[0])
        self.finish(results, outcome=outcome)

    def finish(self, results: "Sequence[VmResult[Value]]", *, outcome: Callable[[Value], str]) -> None:
        """Print the line that sums several VMs up. outcome: the word of a result.

        Raises the error of the only VM, or PartialFailure with a line per VM that failed.
        """
        fine = [one for one in results if one.error is None]
        failures = [(one.vm.printed_name, one.error) for one in results if one.error is not None]
        if len(results) > _MOST_LISTED:
            _sum_up(fine)
        if not self.is_one:
            words = Counter("would change" if one.is_cut else outcome(cast("Value", one.value)) for one in fine)
            words.update({"failed": len(failures)} if failures else {})
            parts = ", ".join(f"{count} {word}" for word, count in words.items()) or "none"
            say(f"{counted(len(results), 'VM')}: {parts}, {time.monotonic() - self.begun_at:.1f} s")
        report_hosts(failures, fine=len(fine), what="failed", noun="VM")


@contextmanager
def quiet() -> Iterator[None]:
    """Print no remarks within the block; what is waited for is still shown."""
    state = running()
    state.is_summing_up = True
    try:
        yield
    finally:
        state.is_summing_up = False


def _list_found(vms: "Sequence[Vm]", told: Mapping[str, str]) -> None:
    """Name the VMs before a question; of many, their number on each host and of each tenant.

    told: the state of each by UUID, as it was last observed.
    """
    if len(vms) <= _MOST_LISTED:
        for vm in vms:
            say(f"{vm.printed_name}: {told[vm.uuid]} on {vm.host}")
        return
    by_host: dict[str, Counter[str]] = {}
    for vm in vms:
        by_host.setdefault(vm.host, Counter())[told[vm.uuid]] += 1
    for host, states in sorted(by_host.items(), key=lambda one: natural(one[0])):
        say(f"{host}: {', '.join(f'{count} {state}' for state, count in states.items())}")
    tenants = Counter(vm.request.tenant for vm in vms).most_common()
    named = [f"{tenant} {count}" for tenant, count in tenants[:_MOST_TENANTS]]
    more = [f"and {len(tenants) - _MOST_TENANTS} more"] if len(tenants) > _MOST_TENANTS else []
    say(f"of {counted(len(tenants), 'tenant')}: {', '.join([*named, *more])}")


def _sum_up(results: "Sequence[VmResult[Any]]") -> None:
    """One line for the steps of a dry run that are alike on a host but for the names in them; nothing after a run."""
    alike: Counter[tuple[str, str]] = Counter()
    for one in results:
        names = (one.vm.domain_name, one.vm.uuid, one.vm.printed_name)
        own = re.compile("|".join([*map(re.escape, names), _NAMES_OF_THINGS]))
        alike.update({(step.host, own.sub("NAME", step.text)) for step in one.steps})
    for (host, text), number in sorted(alike.items(), key=lambda found: (natural(found[0][0]), found[0][1])):
        say(f"{host}: would {text}, for each of {counted(number, 'VM')}")
    if alike and running().rehearsal is not None:
        say("-o json has the steps of each VM")


def _answer(result: "VmResult[Value]", json: "Callable[[Value], Item]") -> Item:
    """The JSON of one VM. A dry run adds its steps, and has no more than that of a VM whose host would be changed."""
    if running().rehearsal is None:
        return json(cast("Value", result.value))
    found = {"changed": True, "vm": result.vm} if result.is_cut else plain(json(cast("Value", result.value)))
    return cast("Item", {**found, "steps": result.steps})


class JsonVmChange(TypedDict):
    """A VM as it is now; changed: false if it was so already."""

    changed: bool
    vm: "Vm"


def changed_json(done: "tuple[Vm, bool]") -> JsonVmChange:
    """The answer of a command that changed a VM, or found it so."""
    vm, changed = done
    return {"changed": changed, "vm": vm}


def runs_already(vm: "Vm") -> str:
    """Say that a command had nothing to start, and what is wrong with the VM."""
    problem = "" if vm.problem is None else f": {vm.problem}"
    remedy = f"; `vgpuctl restart-vm {vm.printed_name}` gives its guest a vGPU that works" if vm.must_restart else ""
    return f"{vm.printed_name}: no change, it is running on {vm.host}{problem}{remedy}"


def _selection(
    names: tuple[str, ...],
    tenant: str | None,
    selector: "Selector | None",
    limit: str | None,
    *,
    is_all: bool,
    is_every_tenant: bool,
) -> "VmSelection":
    """The VMs that the command line names. A selector or hosts alone are of all VMs. Raises UsageError."""
    from vgpuctl.usecases.found.deletion import is_glob
    from vgpuctl.usecases.found.find_vms import VmSelection

    narrowing = "--selector" if selector is not None else "--limit" if limit is not None else None
    if bool(names) == is_all and (is_all or narrowing is None):
        raise UsageError(
            "NAME and --all exclude each other" if is_all else "no VM is named",
            hint="name VMs, or give --all, --selector or --limit with -t TENANT, or with -A for all tenants",
        )
    plain = next((one for one in names if not is_glob(one)), None)
    if narrowing is not None and plain is not None:
        raise UsageError(
            f"{plain} and {narrowing} exclude each other",
            hint=f"give globs such as 'web-*' with {narrowing}, or no name",
        )
    return VmSelection(names, tenant, is_all or not names, is_every_tenant, selector, limit)


def vms(verb: str | None = None, *, yes: bool = True, changes_labels: bool = False) -> Callable[[Command], Command]:
    """NAME... and the options that choose VMs; the command gets `chosen`.

    verb: of the question before VMs are changed that were not named one by one. yes: False for a command with a --yes
    of its own. changes_labels: KEY=VALUE and KEY- stand behind the names; the command gets `change`.
    """

    def decorate(function: Command) -> Command:
        @functools.wraps(function)
        def command(
            vm_names: tuple[str, ...],
            tenant: str | None,
            is_all: bool,
            selector: "Selector | None",
            vms_limit: str | None,
            **given: Any,
        ) -> Any:
            if changes_labels:
                given["change"] = parse_label_change(one for one in vm_names if is_label_change(one))
                vm_names = tuple(one for one in vm_names if not is_label_change(one))
            is_every_tenant = options.has_all_tenants(click.get_current_context())
            selection = _selection(
                vm_names, tenant, selector, vms_limit, is_all=is_all, is_every_tenant=is_every_tenant
            )
            is_sure = given.pop("yes") if verb is not None and yes else True
            return function(chosen=VmChoice(selection, verb, is_sure, time.monotonic()), **given)

        made = cast(Command, command)
        if verb is not None and yes:
            made = options.yes(made)
        every = click.option("--all", "is_all", is_flag=True, help="All VMs of the tenant, or with -A of all tenants.")
        made = options.tenant_filter_of("The tenant of names without one, of --all, --selector and --limit.")(
            every(options.selector(options.vms_limit()(made)))
        )
        return click.argument("vm_names", nargs=-1, metavar="NAME..." + " KEY=VALUE... KEY-..." * changes_labels)(made)

    return decorate
