# SPDX-License-Identifier: Apache-2.0
"""Both hosts, for all proofs of a run."""

from collections.abc import Iterator

import pytest

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
