# SPDX-License-Identifier: Apache-2.0
"""The commands that ask before they go on, and take --yes: one table, by one rule.

A command asks when it deletes something for good, takes a promise away, trusts what others may have written, or ends
VMs that were not named one by one.
"""

ASKING = {
    "delete-vm": "deletes the disks of VMs",
    "delete-disk": "deletes data disks",
    "delete-snapshot": "ends a snapshot, to which nobody can go back then",
    "revert-snapshot": "drops what the guest wrote since",
    "delete-image": "removes an image from the catalogue",
    "delete-network": "removes a tenant's network",
    "delete-external-network": "removes a network and its addresses",
    "delete-security-group": "removes a group from the interfaces that it protects",
    "delete-security-rule": "cuts off what the rule admits",
    "delete-gateway": "cuts a tenant off from outside",
    "delete-floating-ip": "gives an address up, which another tenant may get",
    "delete-port-forward": "gives a port up, which another VM may get",
    "delete-load-balancer": "gives an address up",
    "delete-peering": "separates the networks of two tenants",
    "delete-direct-connect": "separates a network from a VLAN",
    "delete-pool": "opens its hosts to every tenant",
    "delete-licence-pool": "removes licences with their token",
    "delete-node-pool": "deletes the nodes of a cluster",
    "offboard-tenant": "deletes everything of a tenant",
    "cancel-reservation": "takes reserved shares from a tenant",
    "leave-queue": "gives the place in the queue up",
    "drain-host": "ends or moves every VM of a host",
    "evacuate-host": "gives VMs of a dead host up there",
    "forget-host": "forgets a host with its VMs",
    "gc": "deletes leftovers on hosts",
    "prune-events": "deletes events",
    "restore-store": "replaces the store",
    "allow-config": "lets a file name programs that run and servers that get passwords",
}
"""Command and its reason."""

ASKING_FOR_SEVERAL = frozenset({"start-vm", "stop-vm", "restart-vm", "reset-vm", "force-off", "move-vm", "label-vm"})
"""Commands that ask only before VMs are changed that a glob, --selector or --all has found."""
