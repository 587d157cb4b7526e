# SPDX-License-Identifier: Apache-2.0
"""Addresses of external networks: one address is in one pool, and no gateway is in any."""

from dataclasses import replace

import pytest

from vgpuctl.errors import StateError
from vgpuctl.model.vpc import ExternalNetwork
from vgpuctl.usecases.network.external_networks import refuse_shared_addresses

INTERNET = ExternalNetwork(
    "internet", "203.0.113.0/24", "203.0.113.1", "203.0.113.10", "203.0.113.99", "provider", chassis=("gpu1",)
)
SECOND = replace(INTERNET, name="second", first="203.0.113.100", last="203.0.113.199")


@pytest.mark.parametrize(
    "other",
    [
        SECOND,
        INTERNET,
        replace(SECOND, first="203.0.113.50", vlan=7),
        replace(SECOND, first="203.0.113.50", physical_network="backbone"),
    ],
    ids=["another part", "itself", "another VLAN", "another wire"],
)
def test_networks_with_addresses_of_their_own_are_taken(other: ExternalNetwork) -> None:
    refuse_shared_addresses(INTERNET, [other])
    refuse_shared_addresses(other, [INTERNET])


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(SECOND, first="203.0.113.99"), "has addresses of"),
        (replace(SECOND, first="203.0.113.20", last="203.0.113.20"), "has addresses of"),
        (replace(SECOND, gateway="203.0.113.50"), "203.0.113.50, the gateway of second"),
    ],
)
def test_an_address_in_two_pools_is_refused_whoever_comes_second(other: ExternalNetwork, words: str) -> None:
    for one, known in ((INTERNET, other), (other, INTERNET)):
        with pytest.raises(StateError, match=words):
            refuse_shared_addresses(one, [known])
