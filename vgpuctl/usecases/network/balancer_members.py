# SPDX-License-Identifier: Apache-2.0
"""What the instances of HTTP load balancers say of their members now: HAProxy's statistics, read by the agent."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vgpuctl.errors import VgpuctlError
from vgpuctl.guests.haproxy import MemberStatistics, read_statistics
from vgpuctl.model.load_balancer import LoadBalancer
from vgpuctl.model.printable import printable
from vgpuctl.usecases.observed.function_records import recorded_functions
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class SeenMember:
    """A member as one instance sees it. status: HAProxy's, such as UP or DOWN. requests, errors: since its reload.

    sessions: at this moment.
    """

    instance: int
    host: str
    pool: str
    vm: str
    status: str
    sessions: int
    requests: int
    errors: int
    check: str

    def __str__(self) -> str:
        return (
            f"{self.pool}/{self.vm} {self.status} at {self.instance} ({self.requests} requests, {self.errors} errors)"
        )


def seen_members(services: Services, tenant: str, balancer: LoadBalancer) -> tuple[Sequence[SeenMember], Sequence[str]]:
    """The members of one balancer, and why instances were not asked. Names that its specification lacks are dropped."""
    members: list[SeenMember] = []
    problems: list[str] = []
    known = {(pool.name, vm) for pool in balancer.all_pools for vm in pool.vms}
    for host, number, name in _instances(services, tenant, balancer):
        try:
            found = {one.name: one for one in services.host(host).agent.functions(name).functions}
            answers = found[name].answers if name in found else ()
        except VgpuctlError as error:
            services.forget_host(host)
            problems.append(f"instance {number} on {host} was not asked: {error.message}")
            continue
        wrong = [one.problem for one in answers if one.problem] if answers else ["it is not there"]
        problems += [f"instance {number} on {host} was not asked: {printable(one)[:300]}" for one in wrong]
        seen = [one for answer in answers for one in read_statistics(answer.text)]
        members += [_member(number, host, one) for one in seen if (one.pool, one.vm) in known]
    return members, problems


def _instances(services: Services, tenant: str, balancer: LoadBalancer) -> Iterator[tuple[str, int, str]]:
    with services.store.reading() as session:
        records = recorded_functions(session)
    for host, rows in records.items():
        for name, one in rows.items():
            if (one.tenant, one.kind, one.owner) == (tenant, balancer.kind, balancer.name):
                yield host, one.number, name


def _member(number: int, host: str, one: MemberStatistics) -> SeenMember:
    status, check = printable(one.status), printable(one.check)
    return SeenMember(number, host, one.pool, one.vm, status, one.sessions, one.requests, one.errors, check)
