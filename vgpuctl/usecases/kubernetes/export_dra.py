# SPDX-License-Identifier: Apache-2.0
"""export dra: what is free of the fleet as ResourceSlices, from the store alone."""

from collections.abc import Sequence
from typing import Any

from vgpuctl.errors import NotFound
from vgpuctl.node_config.dra import resource_slices
from vgpuctl.sharing.gate import refuse_closed_host
from vgpuctl.usecases.observed.capacities import cached_capacities, with_silence
from vgpuctl.usecases.observed.observations import observed_hosts
from vgpuctl.usecases.running.services import Services
from vgpuctl.yaml_text import yaml_text


def export_dra(services: Services, hosts: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Write the slices of these hosts, or of all that --limit leaves, by host.

    hosts: names or patterns, as of --limit. Raises InventoryError for one that fits nothing, and NotFound for a host
    whose facts nobody has read.
    """
    chosen = services.inventory.select(",".join(hosts), option="HOST") if hosts else services.hosts()
    with services.store.reading() as session:
        cached = with_silence(cached_capacities(session, services.inventory), observed_hosts(session))
        capacities = {one.name: one for one in cached}
        shares = {name: [lease.share for lease in session.leases(host=name)] for name in capacities}
    unknown = [name for name in chosen if name not in capacities] if hosts else []
    if unknown:
        raise NotFound(
            f"the store has no facts of {', '.join(unknown)}",
            hint="check the name with `vgpuctl list-hosts`, then read the host: vgpuctl list-gpus --refresh",
        )
    for name in sorted(capacities):
        if (not hosts or name in hosts) and (closed := refuse_closed_host(capacities[name].rules)) is not None:
            services.say(f"{name}: nothing is offered: {closed.reason}")
    return [
        document
        for name in sorted(capacities)
        if name in chosen
        for document in resource_slices(capacities[name], shares[name])
    ]


def as_documents(slices: Sequence[dict[str, Any]]) -> str:
    """Write slices as documents of one YAML stream, for `kubectl apply -f -`."""
    return "".join(f"---\n{yaml_text(one)}" for one in slices)
