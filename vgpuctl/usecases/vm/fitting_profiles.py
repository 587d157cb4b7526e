# SPDX-License-Identifier: Apache-2.0
"""The GPU shares of which one VM gets one now, for the question of create-vm."""

from dataclasses import replace

from vgpuctl import catalog
from vgpuctl.model.natural_order import natural
from vgpuctl.model.vm import VmRequest
from vgpuctl.scheduler.kept_fleet import KeptFleet
from vgpuctl.usecases.network.ports import with_networks
from vgpuctl.usecases.running.services import Services
from vgpuctl.usecases.vm.place_search import PlaceSearch

_WHOLE = "passthrough"


def fitting_profiles(services: Services, request: VmRequest) -> list[str]:
    """The vGPU types, and `passthrough`, that fit with the request's other fields, by the last reading of the hosts.

    Empty for a VM that exists, and where no host takes any.
    """
    with services.store.reading() as session:
        session.tenant(request.tenant)
        if session.vm(request.tenant, request.name) is not None:
            return []
    request = with_networks(services, request)
    fleet = PlaceSearch(services, [request], None, KeptFleet(), refresh=False).fleet()

    def fits(profile: str) -> bool:
        return fleet.place(replace(request, gpus=(catalog.read_gpu_request(profile),))) is not None

    types = {
        catalog.short_name(one.name)
        for host in fleet.hosts.values()
        for gpu in host.capacity.facts.gpus
        for one in gpu.types
    }
    return [one for one in (*sorted(types, key=natural), _WHOLE) if fits(one)]
