# SPDX-License-Identifier: Apache-2.0
"""The tenants of the proof, and the emulated host that each of their endpoints is on."""

from typing import Any

from tests.network.endpoints import OUTSIDE_ROUTER

INTERNET = (
    *("create-external-network", "internet", "--cidr", "203.0.113.0/24", "--gateway", OUTSIDE_ROUTER),
    *("--physical-network", "provider", "--management", "10.0.2.0/24", "--pool", "203.0.113.10-203.0.113.99"),
)
OPEN = [{"protocol": "tcp", "ports": "80-81"}, {"protocol": "icmp"}]


def _tenant(name: str, networks: dict[str, str], vms: dict[str, str], **more: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "tenant": name,
        "networks": {network: {"cidr": cidr} for network, cidr in networks.items()},
        "security_groups": {"open": OPEN},
        "vms": [
            {"name": vm, "vcpus": 1, "memory": "96MiB", "network": network, "security_groups": ["open"]}
            for vm, network in vms.items()
        ],
        **more,
    }


SAME = {"front": "10.0.0.0/24", "back": "10.0.1.0/24"}
ACME = _tenant(
    "acme",
    SAME,
    {"web-1": "front", "web-2": "front", "web-3": "front", "db": "back"},
    gateway="internet",
    floating_ips=["web-2"],
    port_forwards=[{"protocol": "tcp", "port": 8080, "vm": "db", "vm_port": 80}],
    load_balancers={
        "shop": {
            "network": "front",
            "port": 8000,
            "vms": ["web-1", "web-2", "web-3"],
            "vm_port": 80,
            "interval_s": 1,
            "timeout_s": 3,
            "failures": 2,
        }
    },
)
GLOBEX = _tenant("globex", SAME, {"web-1": "front", "web-2": "front"})
INITECH = _tenant("initech", {"lan": "10.5.0.0/24"}, {"app": "lan"})
# Tenant, VM, and the emulated host that its endpoint is on.
PLACES = (
    ("acme", "web-1", "a"),
    ("acme", "web-2", "b"),
    ("acme", "web-3", "a"),
    ("acme", "db", "b"),
    ("globex", "web-1", "b"),
    ("globex", "web-2", "a"),
    ("initech", "app", "b"),
)
