# SPDX-License-Identifier: Apache-2.0
"""Facts of hosts, GPUs, tenants and VMs."""

from __future__ import annotations

DOCUMENTATION = """
module: vgpu_info
short_description: What vgpuctl knows of hosts, GPUs, types, tenants, VMs and networks
description:
  - Runs the C(list-…) commands of vgpuctl. It changes nothing.
options:
  gather:
    description:
      - What to list. V(hosts) reads every host now; V(gpus) and V(profiles) use what was read before.
    type: list
    elements: str
    choices: [hosts, gpus, profiles, tenants, vms, networks]
    default: [gpus, vms]
  limit:
    description: Only hosts that fit, for V(hosts), V(gpus) and V(profiles).
    type: str
  executable:
    description: The command to run.
    type: path
    default: vgpuctl
  inventory:
    description: Inventories for vgpuctl; E(VGPUCTL_INVENTORY) otherwise.
    type: list
    elements: path
    default: []
  database:
    description: The store's address; E(VGPUCTL_DATABASE_URL) or vgpuctl's own default otherwise.
    type: str
author:
  - the vgpuctl authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Which VMs are there
  vgpuctl.vgpuctl.vgpu_info:
    gather: [vms]
  delegate_to: localhost
  register: known
"""

RETURN = """
vgpuctl:
  description: For each part that was gathered, what C(vgpuctl list-PART --json) printed.
  returned: always
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.vgpuctl.vgpuctl.plugins.module_utils.command import ARGUMENTS, Vgpuctl

_ON_HOSTS = ("hosts", "gpus", "profiles")
_PARTS = (*_ON_HOSTS, "tenants", "vms", "networks")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "gather": {"type": "list", "elements": "str", "choices": list(_PARTS), "default": ["gpus", "vms"]},
            "limit": {"type": "str"},
        },
        supports_check_mode=True,
    )
    vgpuctl, found = Vgpuctl(module), {}
    for part in module.params["gather"]:
        on_hosts = part in _ON_HOSTS
        limit = ("--limit", module.params["limit"]) if on_hosts and module.params["limit"] else ()
        found[part] = vgpuctl.read(f"list-{part}", *limit, on_hosts=on_hosts)
    module.exit_json(changed=False, vgpuctl=found)


if __name__ == "__main__":
    main()
