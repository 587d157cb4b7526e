# SPDX-License-Identifier: Apache-2.0
"""The kinds of network functions: the objects of tenants that have programs on hosts, and what these programs are.

A new kind is a row here: the places of its instances, which OVN gets ports for, and the function of one place.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from vgpuctl.agent.wire.network_function import NetworkFunction
from vgpuctl.model.network_function import FunctionPlace
from vgpuctl.model.vpc import Vpc
from vgpuctl.model.vpc_kind import VpcKind
from vgpuctl.store.store import Session
from vgpuctl.usecases.network import balancer_functions, bgp_speakers, vpn_functions
from vgpuctl.usecases.observed.bgp_sessions import BGP


@dataclass(frozen=True)
class FunctionKind:
    """One kind. places: of all of a tenant's instances; pure, an equal VPC has equal places.

    make: the function of one place; it reads secrets from the store and may raise VgpuctlError. needs: the programs
    that its hosts must have.
    """

    places: Callable[[Vpc], Iterable[FunctionPlace]]
    make: Callable[[Session, Vpc, FunctionPlace], NetworkFunction]
    needs: tuple[str, ...]


FUNCTION_KINDS: Mapping[str, FunctionKind] = {
    VpcKind.LOAD_BALANCER: FunctionKind(balancer_functions.places, balancer_functions.make, balancer_functions.NEEDS),
    VpcKind.VPN_CONNECTION: FunctionKind(vpn_functions.vpn_places, vpn_functions.vpn_function, vpn_functions.NEEDS),
    BGP: FunctionKind(bgp_speakers.speaker_places, bgp_speakers.speaker_function, bgp_speakers.NEEDS),
}
"""By the kind of the tenant's object; speakers of BGP are of external networks."""


def places_of(vpc: Vpc) -> Iterator[FunctionPlace]:
    """Every instance of a tenant's functions, also those that no chassis can have."""
    for kind in FUNCTION_KINDS.values():
        yield from kind.places(vpc)
