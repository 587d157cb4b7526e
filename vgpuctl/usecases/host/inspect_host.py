# SPDX-License-Identifier: Apache-2.0
"""inspect-host: read one host now."""

from dataclasses import dataclass

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.sharing.topology import HostTopology, topology_of
from vgpuctl.usecases.support.observations import read_facts
from vgpuctl.usecases.support.services import Services


@dataclass(frozen=True)
class InspectedHost:
    """One host as it was read, and how near its GPUs are to each other."""

    facts: HostFacts
    topology: HostTopology


def inspect_host(services: Services, name: str) -> InspectedHost:
    """Read one host now, and record what it answered where there is a store."""
    constraints = services.inventory.constraints(name)
    facts = read_facts(services, name)
    return InspectedHost(facts, topology_of(facts.gpus, constraints))
