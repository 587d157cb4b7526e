# SPDX-License-Identifier: Apache-2.0
"""Small VMs of the tenant acme on simulated hosts: what the test files that create them share.

A file that needs other hosts than four of different kinds says `FLEET = (number of hosts, mix)`.
"""

import pytest
import yaml

from tests.e2e.operator import Operator

ACME = ("--tenant", "acme")
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--network", "none", "--disk", "64MiB")
SEEDED = (*SIZE, "--hostname", "h")
"""With a seed, which is one volume more."""


def trust_network(operator: Operator, **link: object) -> None:
    """Declare that all hosts trust their network with live moves; link: more of `vgpu_moves`."""
    at = operator.inventory
    folder = (at if at.is_dir() else at.parent) / "group_vars"
    folder.mkdir(exist_ok=True)
    (folder / "all.yml").write_text(yaml.safe_dump({"vgpu_moves": {"network": "trusted", **link}}))


@pytest.fixture(scope="module")
def operator(fleet_operator: Operator) -> Operator:
    """An operator with the tenant acme, whose store knows the GPUs of all hosts."""
    fleet_operator.does("create-tenant", "acme")
    fleet_operator.does("list-gpus", "--refresh")
    return fleet_operator
