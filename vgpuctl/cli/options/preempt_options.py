# SPDX-License-Identifier: Apache-2.0
"""Options about preemption: what a command may preempt, and the policy of a tenant."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from vgpuctl.cli.options import options
from vgpuctl.cli.options.numbers import WholeRange
from vgpuctl.cli.shown.json_output import WithFields
from vgpuctl.cli.shown.output import confirm, say
from vgpuctl.model.plural import counted

if TYPE_CHECKING:
    from vgpuctl.model.vm import Vm
    from vgpuctl.scheduler.candidates import Candidate
    from vgpuctl.usecases.placement.preemption import PreemptionTerms
    from vgpuctl.usecases.running.services import Services
    from vgpuctl.usecases.vm.preemption_consent import Consent

Command = TypeVar("Command", bound=Callable[..., Any])

_FLAGS = (
    click.option("--preempt", "may_preempt", is_flag=True, help="Preempt other VMs if the VM fits only without them."),
    click.option(
        "--grace",
        "grace_s",
        type=WholeRange(0, 86_400),
        metavar="SECONDS",
        help="Grace period from the notice to the shutdown of a preempted VM.  [default: its tenant's]",
    ),
    options.shutdown_timeout("Seconds for a preempted VM to shut down before it is forced off."),
)

_POLICY = (
    click.option(
        "--reclaim",
        type=click.Choice(["never", "stop", "requeue"]),
        help="Preempt its VMs on borrowed quota when another tenant needs its guaranteed share.  [default: never]",
    ),
    click.option(
        "--preempt",
        "preempt_mode",
        type=click.Choice(["ask", "auto"]),
        help="Let its requests preempt other VMs without --preempt or a question.  [default: ask]",
    ),
    click.option(
        "--grace",
        "grace_s",
        type=WholeRange(0, 86_400),
        metavar="SECONDS",
        help="Grace period from the notice to the shutdown of its preempted VMs.  [default: 30]",
    ),
)


def preempt_flags(function: Command) -> Command:
    """Add --preempt, --grace and --shutdown-timeout."""
    for flag in reversed(_FLAGS):
        function = flag(function)
    return function


def policy_flags(function: Command) -> Command:
    """Add --reclaim, --preempt and --grace of a tenant."""
    for flag in reversed(_POLICY):
        function = flag(function)
    return function


def read_policy(reclaim: str | None, preempt_mode: str | None, grace_s: int | None) -> dict[str, Any]:
    """The parts of a policy that were given, as `set_policy` takes them; empty when none was."""
    from vgpuctl.model.preemption import PreemptMode, Reclaim

    given = {
        "reclaim": None if reclaim is None else Reclaim(reclaim),
        "preempt": None if preempt_mode is None else PreemptMode(preempt_mode),
        "grace_s": grace_s,
    }
    return {name: value for name, value in given.items() if value is not None}


def consent_of(*, may_preempt: bool, grace_s: int | None, shutdown_timeout_s: float, may_ask: bool = True) -> "Consent":
    """The consent that the flags give; without --preempt the user at a terminal is asked, if may_ask."""
    from vgpuctl.usecases.vm.preemption_consent import Consent, describe_victim

    def ask(victims: "Sequence[Candidate]") -> bool:
        for victim in victims:
            say(describe_victim(victim, grace_s))
        try:
            confirm(f"Preempt {counted(len(victims), 'VM')}?")
        except click.Abort:
            return False
        return True

    # A stream that was closed before the start is None.
    has_terminal = may_ask and all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
    return Consent(may_preempt, ask if has_terminal else None, grace_s, shutdown_timeout_s)


class _JsonText(TypedDict):
    """text: the terms in words."""

    text: str


class JsonVictim(TypedDict):
    """A VM that is preempted. vm: its name. gang: the VMs that it runs with."""

    vm: str
    uuid: str
    host: str
    priority: int
    gang: str | None
    on_borrowed_quota: bool
    action: str
    grace_s: float


JsonTerms = WithFields["PreemptionTerms", _JsonText]


def show_terms(terms: "PreemptionTerms | None") -> "JsonTerms | None":
    """The terms on which a VM may be preempted, for JSON; None if it never is."""
    return None if terms is None else WithFields(terms, {"text": str(terms)})


def show_victims(victims: "Sequence[Candidate]") -> list[JsonVictim]:
    """VMs that are preempted, for JSON."""
    return [
        {
            "vm": one.name,
            "uuid": one.vm_uuid,
            "host": one.host,
            "priority": one.priority,
            "gang": one.gang,
            "on_borrowed_quota": one.on_borrowed_quota,
            "action": one.action.value,
            "grace_s": one.grace_s,
        }
        for one in victims
    ]


@contextlib.contextmanager
def telling_exposed(opened: "Services", *tenants: str) -> Iterator[list["Vm"]]:
    """Name the VMs of tenants that others may reclaim after the block and could not before; yields them at its end.

    Their owner is to be told: what changes is a policy, a guarantee, or which VMs the guarantee covers.
    """
    from vgpuctl.usecases.placement.preemption import reclaimable_vms

    found: list[Vm] = []
    with opened.store.reading() as session:
        before = {vm.uuid for tenant in tenants for vm in reclaimable_vms(session, tenant)}
    yield found
    with opened.store.reading() as session:
        found += [vm for tenant in tenants for vm in reclaimable_vms(session, tenant) if vm.uuid not in before]
    for vm in found:
        say(f"{vm.printed_name}: runs on borrowed quota that others may reclaim from now on; tell its owner")
