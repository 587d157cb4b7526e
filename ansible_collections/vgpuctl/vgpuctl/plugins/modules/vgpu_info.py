# SPDX-License-Identifier: Apache-2.0
"""Facts of hosts, GPUs, tenants and VMs."""

from __future__ import annotations

DOCUMENTATION = """
module: vgpu_info
short_description: What vgpuctl knows of hosts, GPUs, types, tenants, VMs, networks and images
description:
  - Runs the C(list-…) commands of vgpuctl. It changes nothing.
options:
  gather:
    description:
      - What to list. V(hosts) reads every host now; V(gpus) and V(profiles) use what was read before.
    type: list
    elements: str
    choices: [hosts, gpus, profiles, tenants, vms, networks, images]
    default: [gpus, vms]
  limit:
    description: Only hosts that fit, for V(hosts), V(gpus) and V(profiles).
    type: str
extends_documentation_fragment:
  - vgpuctl.vgpuctl.command
author:
  - the vgpuctl authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Which VMs are there
  vgpuctl.vgpuctl.vgpu_info:
    gather: [vms]
  delegate_to: localhost
  register: known

- name: Their names
  ansible.builtin.debug:
    msg: "{{ known.vgpuctl.vms | map(attribute='name') }}"
"""

RETURN = """
vgpuctl:
  description:
    - For each part that was gathered, the list that C(vgpuctl list-PART --json) printed.
    - After C(register=known), the VMs are C(known.vgpuctl.vms). C(docs/schemas/output) has the fields of each list.
  returned: always
  type: dict
  sample:
    vms: [{tenant: acme, name: web-1, state: running, host: gpu1}]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.vgpuctl.vgpuctl.plugins.module_utils.command import ARGUMENTS, Vgpuctl

_ON_HOSTS = ("hosts", "gpus", "profiles")
_PARTS = (*_ON_HOSTS, "tenants", "vms", "networks", "images")


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
