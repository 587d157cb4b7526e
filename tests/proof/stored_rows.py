# SPDX-License-Identifier: Apache-2.0
"""The rows of a store as lines that are equal after two runs of one command."""

import re
from collections.abc import Sequence

from vgpuctl.usecases.running.services import Services

_AGE = re.compile(r"has run for [^,]+")
_ENDED = re.compile(r"End of file while reading data: Input/output error|Cannot recv data: Connection reset by peer")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def look(services: Services, tenants: Sequence[str]) -> dict[str, list[str]]:
    """The rows of the store by their subject, without what is made at random or depends on the time."""
    with services.store.reading() as session:
        vms = {vm.uuid: vm for vm in session.vms()}
        names = {uuid: vm.printed_name for uuid, vm in vms.items()}
        networks = {one.id: one for one in session.networks()}
        found = {
            "vms": [f"{one.printed_name} on {one.host}, {one.state}: {one.numa}" for one in vms.values()],
            "shares": [
                f"{names.get(one.vm_uuid)} {one.index} on {one.host}: {one.share.profile} {one.share.sharing} "
                f"of {one.share.gpu} at {one.share.function}"
                for one in session.leases()
            ],
            "addresses": [f"{names[one.vm_uuid]} {one.position}: {one.address}" for one in session.ports()],
            "volumes": [f"{one.vm_name} on {one.host}: {one.kind} {one.label} {one.pool}" for one in session.volumes()],
            "networks": [f"{one.printed_name} on {one.request.host}: {one.request.cidr}" for one in networks.values()],
            "reservations": [f"{one.tenant} on {one.host}: {one.shares}" for one in session.reservations()],
            "quotas": [f"{tenant}: {quota}" for tenant in tenants for quota in session.quotas(tenant)],
            "used": [
                f"{tenant}: {name} {amount}"
                for tenant in tenants
                for name, amount in session.used(tenant).items()
                if name != "gpu-hours"
            ],
            "queue": [f"{one.name}: {one.kind}" for one in session.queue()],
            "restrictions": [f"{one.host} {one.device}: {one.kind}" for one in session.restrictions()],
        }
    return {key: sorted(map(plain, lines)) for key, lines in found.items()}


def plain(text: str) -> str:
    """A message without UUIDs, how long something has run, and which end of libvirt's connection was noticed first."""
    return _ENDED.sub("the connection ended", _AGE.sub("has run for a time", _UUID.sub("UUID", text)))
