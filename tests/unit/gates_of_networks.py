# SPDX-License-Identifier: Apache-2.0
"""The gates of tenants' networks: rows of the table in test_gates.py."""

from tests.unit.uses_of_names import guarded

NETWORKS = [
    guarded(
        "what only OVN can make is refused by name where OVN was not named (refuse_without_ovn)",
        "set_object",
        "usecases/network/vpc_addresses.py",
        "usecases/network/vpc_changes.py:_keep",
    ),
    guarded(
        "what only OVN can make is refused by name where OVN was not named (refuse_without_ovn)",
        "set_vpc_object",
        "store/vpcs.py",
        "usecases/network/vpc_addresses.py:set_object",
        "usecases/network/vpc_changes.py:_keep",
    ),
    guarded(
        "what only OVN can make is refused by name where OVN was not named",
        "refuse_without_ovn",
        "usecases/network/network_backends.py",
        "usecases/network/vpc_changes.py:_keep",
        "usecases/network/external_networks.py:create_external_network",
        "usecases/tenant/onboard.py:onboard",
    ),
    guarded(
        "a global IPv6 prefix is one tenant's, and only where an external network routes it (external_of_prefix)",
        "add_network",
        "store/networks.py",
        "usecases/network/networks.py:create_network",
    ),
]
