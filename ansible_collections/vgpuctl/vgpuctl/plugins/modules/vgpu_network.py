# SPDX-License-Identifier: Apache-2.0
"""Make a tenant's network present or absent."""

from __future__ import annotations

DOCUMENTATION = """
module: vgpu_network
short_description: Make a network for a tenant's VMs present or absent
description:
  - Runs C(vgpuctl create-network) and C(delete-network).
  - A network that is there with another specification is a failure that tells what differs.
  - In check mode nothing is written.
options:
  name:
    description: The network's name.
    type: str
    required: true
  tenant:
    description: The tenant it belongs to.
    type: str
    required: true
  state:
    description: V(present) creates it, V(absent) deletes it; a network with VMs is not deleted.
    type: str
    choices: [present, absent]
    default: present
  cidr:
    description: Its IPv4 addresses, such as 10.0.0.0/24. This or O(cidr6) is required with V(present).
    type: str
  cidr6:
    description: Its IPv6 addresses, a /64 such as fd00:1::/64, beside IPv4 or alone. OVN carries such networks.
    type: str
  dns:
    description: DNS resolvers for the VMs; the host's otherwise.
    type: list
    elements: str
    default: []
  isolated:
    description: Allow traffic only between VMs of the network.
    type: bool
    default: false
  backend:
    description:
      - V(libvirt) carries it on one host, V(ovn) on all hosts.
      - Without it, OVN if E(VGPUCTL_OVN_NORTHBOUND) is set and no host is given.
    type: str
    choices: [libvirt, ovn]
  host:
    description: The host of a libvirt network; the only one of the inventory otherwise.
    type: str
extends_documentation_fragment:
  - vgpuctl.vgpuctl.command
author:
  - the vgpuctl authors (!UNKNOWN)
"""

EXAMPLES = """
- name: A network of acme
  vgpuctl.vgpuctl.vgpu_network:
    name: front
    tenant: acme
    cidr: 10.0.0.0/24
  delegate_to: localhost
"""

RETURN = """
network:
  description:
    - The network as in C(vgpuctl list-networks --json), none if it is absent. Its id is C(network.network.id).
    - In check mode, as it is.
  returned: success
  type: dict
  sample: {network: {id: 4f1d…, state: created, request: {name: front, tenant: acme}}, free: 253}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.vgpuctl.vgpuctl.plugins.module_utils.command import ARGUMENTS, Vgpuctl


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "name": {"type": "str", "required": True},
            "tenant": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "cidr": {"type": "str"},
            "cidr6": {"type": "str"},
            "dns": {"type": "list", "elements": "str", "default": []},
            "isolated": {"type": "bool", "default": False},
            "backend": {"type": "str", "choices": ["libvirt", "ovn"]},
            "host": {"type": "str"},
        },
        required_if=[("state", "present", ["cidr", "cidr6"], True)],
        supports_check_mode=True,
    )
    vgpuctl, name = Vgpuctl(module), module.params["name"]

    def find() -> dict[str, Any] | None:
        every = vgpuctl.read("list-networks", *vgpuctl.options("tenant"))
        return next((one for one in every if one["network"]["request"]["name"] == name), None)

    def create(_before: dict[str, Any] | None) -> bool:
        words = vgpuctl.options("tenant", "cidr", "cidr6", "dns", "isolated", "backend", "host")
        return bool(vgpuctl.change("create-network", *words, "--", name, on_hosts=True)["changed"])

    def delete() -> bool:
        vgpuctl.change("delete-network", "--yes", *vgpuctl.options("tenant"), "--", name, on_hosts=True)
        return True

    vgpuctl.keep("network", find, create, delete)


if __name__ == "__main__":
    main()
