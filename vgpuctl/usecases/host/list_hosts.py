# SPDX-License-Identifier: Apache-2.0
"""list-hosts: each host with its facts and the state of its layout, or the reason why it does not answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.errors import VgpuctlError
from vgpuctl.sharing.gate import refuse_closed_host
from vgpuctl.sharing.offer import Refusal
from vgpuctl.usecases.support.capacities import rules_of
from vgpuctl.usecases.support.gpu_health import look_at_health
from vgpuctl.usecases.support.layout_records import layout_differences
from vgpuctl.usecases.support.observations import ObservedHost, look, observed_hosts
from vgpuctl.usecases.support.services import Services
from vgpuctl.usecases.support.survey import survey


@dataclass(frozen=True)
class ListedHost:
    """One host of the inventory: its facts, or why it does not answer.

    closed: why it takes no new VM: cordoned, drained, fenced or in maintenance.
    layout: `as declared`, `2 differences`, or None where no layout is declared. libvirt_problem: why libvirt does not
    answer on a host whose agent does. observed: its last observation, which this look has made.
    """

    name: str
    facts: HostFacts | None
    problem: VgpuctlError | None
    layout: str | None = None
    libvirt_problem: VgpuctlError | None = None
    observed: ObservedHost | None = None
    closed: Refusal | None = None


def list_hosts(services: Services) -> Sequence[ListedHost]:
    """Read every host now; one that does not answer is a row with its problem."""
    names = services.hosts()
    seen = survey(services, names, refresh=True)
    facts = {capacity.name: capacity.facts for capacity in seen.capacities}
    problems = dict(seen.failures)
    silent = look(services, seen.read)
    look_at_health(services, seen.read)
    with services.store.reading() as session:
        observed = observed_hosts(session)
    return [
        ListedHost(
            name,
            facts.get(name),
            problems.get(name),
            _layout_state(services, name, facts.get(name)),
            silent.get(name),
            observed.get(name),
            refuse_closed_host(rules_of(services, name)),
        )
        for name in names
    ]


def _layout_state(services: Services, name: str, facts: HostFacts | None) -> str | None:
    differences = None if facts is None else layout_differences(services, name, facts)
    if differences is None:
        return None
    return f"{len(differences)} differences" if differences else "as declared"
