# SPDX-License-Identifier: Apache-2.0
"""inspect-host: read one host now."""

from dataclasses import dataclass

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.agent.wire.readings import HostReadings
from vgpuctl.sharing.host_fabric import HostFabric, fabric_of
from vgpuctl.sharing.topology import HostTopology, topology_of
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.running.services import Services


@dataclass(frozen=True)
class InspectedHost:
    """One host as it was read, how near its GPUs are to each other, and its NVSwitch fabric if it has one.

    readings: None if nobody asked for them.
    """

    facts: HostFacts
    topology: HostTopology
    fabric: HostFabric | None
    readings: HostReadings | None = None


def inspect_host(services: Services, name: str, *, with_readings: bool = False) -> InspectedHost:
    """Read one host now, and record what it answered where there is a store. with_readings: also measure it."""
    constraints = services.inventory.constraints(name)
    facts = read_facts(services, name)
    readings = services.host(name).agent.readings() if with_readings else None
    return InspectedHost(facts, topology_of(facts.gpus, constraints), fabric_of(facts), readings)
