# SPDX-License-Identifier: Apache-2.0
"""inspect-host: read one host now."""

from vgpuctl.agent.wire.facts import HostFacts
from vgpuctl.usecases.support.observations import read_facts
from vgpuctl.usecases.support.services import Services


def inspect_host(services: Services, name: str) -> HostFacts:
    """Read one host now, and record what it answered where there is a store."""
    return read_facts(services, name)
