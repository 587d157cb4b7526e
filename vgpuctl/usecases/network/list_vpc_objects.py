# SPDX-License-Identifier: Apache-2.0
"""list-vpc-objects: the objects of tenants' VPCs as the store has them; no host is contacted."""

from vgpuctl.model.vpc import VpcKind
from vgpuctl.usecases.network.vpc_addresses import all_objects
from vgpuctl.usecases.network.vpc_objects import ShownObject
from vgpuctl.usecases.running.services import Services


def list_vpc_objects(
    services: Services, *, tenant: str | None = None, kind: VpcKind | None = None
) -> list[ShownObject]:
    """List the objects of a tenant or of all, of one kind or of all. Raises NotFound (tenant)."""
    with services.store.reading() as session:
        if tenant is not None:
            session.tenant(tenant)
        names = [one.name for one in session.tenants()] if tenant is None else [tenant]
        return [
            ShownObject(name, spec.kind, spec.key, spec)
            for name in names
            for spec in all_objects(session, name)
            if spec.kind is not VpcKind.CONTACT and kind in (None, spec.kind)
        ]
