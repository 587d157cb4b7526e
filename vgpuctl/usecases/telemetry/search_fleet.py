# SPDX-License-Identifier: Apache-2.0
"""Find hosts, GPUs, VMs and tenants by a part of a name, an address or a UUID. No host is contacted."""

from dataclasses import dataclass

from vgpuctl.usecases.running.services import Services

MOST_FOUND = 200
LONGEST_QUERY = 200


@dataclass(frozen=True)
class FoundObject:
    """One object. kind: host, gpu, vm, share, tenant or queued. why: what of it fits the query.

    host, gpu, tenant, vm: what its page is named by.
    """

    kind: str
    why: str
    host: str = ""
    gpu: str = ""
    tenant: str = ""
    vm: str = ""


def search_fleet(services: Services, query: str) -> list[FoundObject]:
    """Objects of which some name contains the query in any case, at most MOST_FOUND; nothing for an empty query."""
    text = query.strip().lower()[:LONGEST_QUERY]
    if not text:
        return []
    hosts = services.hosts()
    with services.store.reading() as session:
        facts = session.all_facts()
        vms = session.vms()
        leases = session.leases()
        tenants = session.tenants()
        queue = session.queue()
    found = [FoundObject("host", name, host=name) for name in hosts if text in name.lower()]
    found += [FoundObject("tenant", one.name, tenant=one.name) for one in tenants if text in one.name.lower()]
    for vm in vms:
        if (why := _fits(text, (vm.request.name, vm.printed_name, vm.uuid, vm.domain_name))) is not None:
            found.append(FoundObject("vm", why, vm.host, tenant=vm.request.tenant, vm=vm.request.name))
    for name in hosts:
        for gpu in facts[name].facts.gpus if name in facts else ():
            if (why := _fits(text, (gpu.address, gpu.uuid, gpu.name))) is not None:
                found.append(FoundObject("gpu", why, name, gpu.address))
    for lease in leases:
        if (why := _fits(text, (*sorted(lease.share.names), lease.id, lease.share.profile))) is not None:
            found.append(FoundObject("share", why, lease.host, lease.share.gpu, lease.tenant, lease.vm_name))
    for entry in queue:
        for one in entry.requests:
            if (why := _fits(text, (one.name, f"{one.tenant}/{one.name}"))) is not None:
                found.append(FoundObject("queued", why, tenant=one.tenant, vm=one.name))
    return found[:MOST_FOUND]


def _fits(text: str, names: tuple[str | None, ...]) -> str | None:
    return next((name for name in names if name is not None and text in name.lower()), None)
