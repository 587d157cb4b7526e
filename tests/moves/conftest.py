# SPDX-License-Identifier: Apache-2.0
"""Both hosts and their operator, for all proofs of a run."""

from collections.abc import Iterator

import pytest

from tests.e2e.operator import Operator
from tests.moves.fleet import Fleet, operator_of
from tests.moves.hosts import MoveHost, two_hosts


@pytest.fixture(scope="session")
def hosts() -> Iterator[tuple[MoveHost, MoveHost]]:
    with two_hosts() as both:
        yield both


@pytest.fixture
def a(hosts: tuple[MoveHost, MoveHost]) -> MoveHost:
    return hosts[0]


@pytest.fixture
def b(hosts: tuple[MoveHost, MoveHost]) -> MoveHost:
    return hosts[1]


@pytest.fixture(scope="session")
def operator(hosts: tuple[MoveHost, MoveHost], tmp_path_factory: pytest.TempPathFactory) -> Operator:
    return operator_of(hosts, tmp_path_factory.mktemp("operator"))


@pytest.fixture
def fleet(operator: Operator, a: MoveHost, b: MoveHost) -> Iterator[Fleet]:
    """A fleet without a VM; after a test that has passed it is as it was."""
    made = Fleet(operator, a, b)
    operator.does("list-gpus", "--refresh")
    before = made.state()
    yield made
    for host in (a, b):
        host.start_libvirtd()
        host.end_faults()
    if operator.json("list-vms"):
        operator.run("repair")
        made.delete()
    assert made.state() == before
