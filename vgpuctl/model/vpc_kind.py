# SPDX-License-Identifier: Apache-2.0
"""Kinds of objects in a tenant's VPC."""

from enum import StrEnum


class VpcKind(StrEnum):
    """Kinds of objects in a tenant's VPC, other than networks and VMs (vgpuctl/specs/vpc_objects.py)."""

    GATEWAY = "gateway"
    ADDRESS_GROUP = "address-group"
    EGRESS_POLICY = "egress-policy"
    SECURITY_GROUP = "security-group"
    FLOATING_IP = "floating-ip"
    PORT_FORWARD = "port-forward"
    LOAD_BALANCER = "load-balancer"
    DIRECT_CONNECT = "direct-connect"
    ROUTE = "route"
    PEERING = "peering"
    VPN_CONNECTION = "vpn-connection"
    CONTACT = "contact"
