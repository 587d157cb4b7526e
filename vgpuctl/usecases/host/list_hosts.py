# SPDX-License-Identifier: Apache-2.0
"""list-hosts: each host with its facts and the state of its layout, as it answers now or was last observed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import InventoryError, VgpuctlError
from vgpuctl.model.plural import counted
from vgpuctl.model.promise import FRESH_S
from vgpuctl.planner.layout.result import settled_in_words
from vgpuctl.sharing.gate import refuse_closed_host
from vgpuctl.sharing.offer import Refusal
from vgpuctl.usecases.declared.fleet_values import read_fleet_values
from vgpuctl.usecases.declared.layout_comparison import compare_facts, compare_host
from vgpuctl.usecases.observed.capacities import rules_of
from vgpuctl.usecases.observed.full_survey import survey_fully
from vgpuctl.usecases.observed.observations import ObservedHost, observed_hosts, readings_in_words
from vgpuctl.usecases.observed.survey import incomplete_facts
from vgpuctl.usecases.running.services import Services

_NOT_COMPARED = "not compared"
_LISTED = ("cpus", "memory_mib", "kernel", "libvirt_version", "qemu_version", "nvidia_driver")
"""The fields of HostFacts that are listed."""


@dataclass(frozen=True)
class ListedHost:
    """One host of the inventory: its facts, or why it does not answer.

    problem: also a mistake in the inventory. closed: why it takes no new VM: cordoned, drained, fenced or in
    maintenance.
    layout: `as declared`, `2 differences`, `not compared`, or None where no layout is declared.
    libvirt_problem: why libvirt does not answer on a host whose agent does. incomplete: what could not be read of it.
    observed: its last observation, which this look has made. seen: the same of its agent in words, with its age and
    what was tried since. is_asked: it was contacted now.
    is_stale: it was not, and its last answer is old.
    """

    name: str
    facts: HostFacts | None
    problem: VgpuctlError | None
    layout: str | None = None
    libvirt_problem: VgpuctlError | None = None
    incomplete: VgpuctlError | None = None
    observed: ObservedHost | None = None
    closed: Refusal | None = None
    seen: str = ""
    is_asked: bool = True
    is_stale: bool = False


def list_hosts(services: Services, *, keep: bool = False) -> Sequence[ListedHost]:
    """Read every host now; one that does not answer is a row with its problem.

    keep: leave the connections open, to read the hosts again.
    """
    names = services.hosts()
    fleet = read_fleet_values(services)
    layouts: dict[str, str] = {}

    def compare(name: str, facts: HostFacts) -> None:
        try:
            layout = services.inventory.layout(name)
            if layout is not None:
                compared = compare_host(services, name, layout, facts, fleet)
                layouts[name] = _in_words(compared.differences, compared.plan.notes)
        except VgpuctlError as error:  # The host has answered, and is listed.
            layouts[name] = _NOT_COMPARED
            services.say(f"warning: {name}: its layout is not compared: {error.message}")

    seen, silent = survey_fully(services, names, refresh=True, keep=keep, ask_more=compare)
    facts = {capacity.name: capacity.facts for capacity in seen.capacities}
    problems = dict(seen.failures)
    hosts = [ListedHost(name, facts.get(name), problems.get(name), libvirt_problem=silent.get(name)) for name in names]
    return [_completed(services, host, layouts.get(host.name)) for host in _with_observations(services, hosts)]


def list_observed_hosts(services: Services) -> Sequence[ListedHost]:
    """The hosts as they were last observed; no host is contacted."""
    names = services.hosts()
    with services.store.reading() as session:
        cached = session.all_facts()
    hosts = [ListedHost(name, cached[name].facts if name in cached else None, None, is_asked=False) for name in names]
    return [_completed(services, host) for host in _with_observations(services, hosts)]


def _with_observations(services: Services, hosts: Sequence[ListedHost]) -> list[ListedHost]:
    with services.store.reading() as session:
        observed = observed_hosts(session)
        words = readings_in_words(session, [host.name for host in hosts])
        now = session.now()
    listed = [replace(host, observed=observed.get(host.name), seen=words[host.name]) for host in hosts]
    return [replace(host, is_stale=not host.is_asked and _is_old(host.observed, now)) for host in listed]


def _is_old(observed: ObservedHost | None, now: float) -> bool:
    return observed is not None and observed.agent.at is not None and now - observed.agent.at > FRESH_S


def _completed(services: Services, host: ListedHost, layout: str | None = None) -> ListedHost:
    """The host with what the inventory says of it; a mistake there is its problem.

    layout: its state, where the host was asked for it.
    """
    if host.facts is not None:
        host = replace(host, incomplete=incomplete_facts(host.name, host.facts, parts=_LISTED))
    try:
        closed = refuse_closed_host(rules_of(services, host.name))
        return replace(host, closed=closed, layout=layout or _layout_state(services, host))
    except InventoryError as error:
        return replace(host, problem=host.problem or error)


def _layout_state(services: Services, host: ListedHost) -> str | None:
    layout = services.inventory.layout(host.name)
    if host.facts is None or layout is None:
        return None
    # An older vgpuctl read the host, or its files cannot be read.
    is_read = host.facts.installed is not None
    return _in_words(*compare_facts(services, host.name, layout, host.facts)) if is_read else _NOT_COMPARED


def _in_words(differences: Sequence[str], unread: Sequence[str]) -> str:
    return counted(len(differences), "difference") if differences else settled_in_words(unread)
