# SPDX-License-Identifier: Apache-2.0
"""Speakers of BGP as network functions: FRR's bgpd on chassis of an external network."""

from collections.abc import Iterator

from vgpuctl.agent.wire.network_function import (
    FunctionCommand,
    FunctionFile,
    FunctionProgram,
    FunctionQuery,
    NetworkFunction,
)
from vgpuctl.errors import StateError
from vgpuctl.guests.frr import bgpd_text
from vgpuctl.model.network_function import FunctionPlace
from vgpuctl.model.vpc import ExternalNetwork, Vpc
from vgpuctl.ovn.topology import speaker_place
from vgpuctl.store.store import Session
from vgpuctl.usecases.observed.bgp_sessions import BGP, SUMMARY

NEEDS = ("bgpd", "vtysh", "frr-reload.py")
_FILE = "bgpd.conf"
_MTU = 1500
_USER = "frr"


def speaker_places(vpc: Vpc) -> Iterator[FunctionPlace]:
    """The speakers of an external network, which a VPC of its own stands for; none on a chassis that is set aside."""
    network = vpc.external_network
    if vpc.is_provider and network is not None and network.bgp is not None:
        for speaker in network.bgp.speakers:
            if speaker.chassis not in vpc.aside:
                yield speaker_place(network, speaker)


def speaker_function(session: Session, vpc: Vpc, place: FunctionPlace) -> NetworkFunction:
    """bgpd of one chassis: it checks its file before it is used, and takes changes without ending its sessions.

    Raises StateError, and StoreUnusable without the store's key, for a password that cannot be read.
    """
    network = vpc.external_network
    assert network is not None
    assert network.bgp is not None
    (address,) = place.addresses
    password = _password(session, network)
    text = bgpd_text(network.bgp, address, vpc.announcements, password, has_ipv6=network.cidr6 is not None)
    options = ("-Z", "-n", "-P", "0", "--vty_socket", "{run}")
    program = FunctionProgram(
        "bgpd",
        ("bgpd", "-f", f"{{files}}/{_FILE}", "-i", "{run}/bgpd.lock", *options),
        check=("vtysh", "-C", "-f", f"{{files}}/{_FILE}"),
        reload=("frr-reload.py", "--reload", "--vty_socket", "{run}", "--daemon", "bgpd", f"{{files}}/{_FILE}"),
    )
    return NetworkFunction(
        BGP,
        (place.port(_MTU),),
        (FunctionFile(_FILE, text, is_secret=True, owner=_USER),),
        # FRR makes its sockets as its own user.
        commands=(FunctionCommand(("install", "-d", "-o", _USER, "-g", _USER, "-m", "0755", "{run}")),),
        programs=(program,),
        queries=(FunctionQuery(SUMMARY, ("vtysh", "--vty_socket", "{run}", "-c", "show bgp summary json")),),
        needs=NEEDS,
    )


def _password(session: Session, network: ExternalNetwork) -> str | None:
    assert network.bgp is not None
    if network.bgp.password is None:
        return None
    password = session.bgp_password(network.name)
    if password is None or password != network.bgp.password:
        raise StateError(
            f"the store has not the password of BGP of external network {network.name}",
            hint="declare the external network again, with --bgp-password FILE",
        )
    return password.reveal()
