# SPDX-License-Identifier: Apache-2.0
"""Small VMs of the tenant acme on simulated hosts: what the test files that create them share.

A file that needs other hosts than four of different kinds says `FLEET = (number of hosts, mix)`.
"""

import pytest

from tests.e2e.operator import Operator

ACME = ("--tenant", "acme")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--disk", "64MiB")
SEEDED = (*SIZE, "--hostname", "h")
"""With a seed, which is one volume more."""
KILLED_RUN = ("-m", "tests.e2e.killed_run")


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    """An operator with the tenant acme, whose store knows the GPUs of all hosts."""
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("list-gpus", "--refresh")
    return fleet_operator


def count_side_effects(operator: Operator, *command: str) -> int:
    """Run a command to its end and count its side effects."""
    done = operator.run("0", *command, program=KILLED_RUN)
    assert done.code == 0, done.err
    return int(done.err.splitlines()[-1])


def kill_after(operator: Operator, number: int | str, *command: str) -> None:
    """Kill a command after a side effect: the n-th, or the first of a name."""
    done = operator.run(str(number), *command, program=KILLED_RUN)
    assert done.code == -9, f"not killed at side effect {number}: {done.code}\n{done.err}"
