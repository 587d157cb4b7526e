# SPDX-License-Identifier: Apache-2.0
"""A survey in which each host also tells the states of its domains and the health of its GPUs.

All three are read in one turn of the host, its answers are one transaction, and the hosts do not wait for one another
in between.
"""

import time
from collections.abc import Callable, Sequence

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.health import HostHealth
from vgpuctl.errors import AgentProblem, VgpuctlError
from vgpuctl.guests.facts.domain_facts import NamedState
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.gpu_health import describe_findings, note_health, policy_of
from vgpuctl.usecases.observed.observations import note_answers, note_failure
from vgpuctl.usecases.observed.readings import keep_reading
from vgpuctl.usecases.observed.survey import Survey, survey
from vgpuctl.usecases.running.services import HostSession, Services


def survey_fully(
    services: Services,
    names: Sequence[str],
    *,
    refresh: bool,
    keep: bool = True,
    ask_more: Callable[[str, HostFacts], None] | None = None,
) -> tuple[Survey, dict[str, VgpuctlError]]:
    """Survey the hosts; also note domains and health of those that are read. refresh: as `survey`.

    keep: leave the connections open for what is asked next; one that nobody uses still takes memory, and processor
    time for its keep-alives. ask_more: asks a host that was just read for more, in the same turn.
    Returns with it why libvirt does not answer, by host. The user is told where health cannot be read.
    """
    silent: dict[str, VgpuctlError] = {}

    def read(name: str) -> HostFacts:
        try:
            facts, libvirt_error = read_host(services, name)
            if ask_more is not None:
                ask_more(name, facts)
        finally:
            if not keep:
                services.forget_host(name)
        if libvirt_error is not None:
            silent[name] = libvirt_error
        return facts

    return survey(services, names, refresh=refresh, read=read), silent


def read_host(services: Services, name: str) -> tuple[HostFacts, VgpuctlError | None]:
    """Read a host and record what it answered. Returns its facts, and libvirt's error. Raises what the agent raises."""
    host = services.host(name)
    asked_at = time.monotonic()
    try:
        facts, health = _read_agent(services, host)
    except VgpuctlError as error:
        note_failure(services, name, error, asked_at=asked_at)
        raise
    domains: dict[str, NamedState] | None = None
    errors: list[VgpuctlError] = []
    try:
        domains = host.hypervisor.states()
    except VgpuctlError as error:
        if services.has_closed(name, asked_at):
            raise
        errors.append(error)
    policy = policy_of(services, name)

    def note(session: Session) -> None:
        age_s = time.monotonic() - asked_at
        way = services.way_to(name)
        note_answers(session, name, facts=facts, domains=domains, errors=errors, way=way, age_s=age_s)
        if health is not None:
            forbidden = [one for one in note_health(session, name, health, policy) if policy.forbids(one)]
            if forbidden:
                services.say(f"{name}: in quarantine: {describe_findings(forbidden)}")

    keep_reading(services, "what the hosts answered", note)
    return facts, errors[0] if errors else None


def _read_agent(services: Services, host: HostSession) -> tuple[HostFacts, HostHealth | None]:
    """The host's facts with the health of its GPUs; None for health that cannot be read. Raises as `facts`."""
    try:
        return host.agent.facts_and_health()
    except AgentProblem as problem:
        facts = host.agent.facts()
        services.say(f"warning: {host.name}: the health of its GPUs is unknown: {problem.message}")
        return facts, None
