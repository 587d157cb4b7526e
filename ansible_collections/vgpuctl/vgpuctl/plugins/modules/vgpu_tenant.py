# SPDX-License-Identifier: Apache-2.0
"""Make a tenant with its quotas present, or remove all that it has."""

from __future__ import annotations

DOCUMENTATION = """
module: vgpu_tenant
short_description: Make a tenant with quotas, preemption policy and host pools present or absent
description:
  - Runs C(vgpuctl create-tenant), C(set-quota), C(grant-host-pool) and C(offboard-tenant).
  - A tenant that is there gets the quotas, the policy and the host pools that are named. All others stay as they are.
  - In check mode nothing is written.
options:
  name:
    description: The tenant's name.
    type: str
    required: true
  state:
    description:
      - V(present) creates or changes it.
      - V(absent) removes it with all its objects, such as VMs and networks. Its name and its usage stay in the store.
    type: str
    choices: [present, absent]
    default: present
  quota:
    description:
      - Limits by resource, such as C(vms), C(vcpus), C(memory), C(cards), C(framebuffer), C(gpu-hours) and
        C(shares:PROFILE). The value V(none) removes one.
    type: dict
  guaranteed:
    description: Guaranteed amounts by resource. The value V(none) removes one.
    type: dict
  reclaim:
    description: What happens to its VMs on borrowed quota when another tenant needs its guaranteed share.
    type: str
    choices: [never, stop, requeue]
  preempt:
    description: Whether its requests preempt other VMs without a question.
    type: str
    choices: [ask, auto]
  grace:
    description: Seconds from the notice to the shutdown of its preempted VMs.
    type: int
  host_pools:
    description: Pools of hosts that it may use.
    type: list
    elements: str
    default: []
  delete_disks:
    description: With V(absent), delete also the disks that are to outlive their VMs. Without it they are a failure.
    type: bool
    default: false
  timeout:
    description: With V(absent), seconds to wait for each guest to shut down before it is forced off.
    type: float
extends_documentation_fragment:
  - vgpuctl.vgpuctl.command
author:
  - the vgpuctl authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Acme with its quotas
  vgpuctl.vgpuctl.vgpu_tenant:
    name: acme
    quota: {vms: 10, framebuffer: 96GiB}
    guaranteed: {framebuffer: 48GiB}
  delegate_to: localhost

- name: Initech has left
  vgpuctl.vgpuctl.vgpu_tenant:
    name: initech
    state: absent
  delegate_to: localhost
"""

RETURN = """
tenant:
  description:
    - The tenant as in C(vgpuctl list-tenants --json), none if the store has never known it.
    - In check mode, as it is.
  returned: success
  type: dict
  sample: {tenant: acme, vms: 1, host_pools: [], quotas: [{resource: vms, used: 1, limit: 10}]}
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.vgpuctl.vgpuctl.plugins.module_utils.command import ARGUMENTS, Vgpuctl

_POLICY = ("reclaim", "preempt", "grace")


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "quota": {"type": "dict"},
            "guaranteed": {"type": "dict"},
            "reclaim": {"type": "str", "choices": ["never", "stop", "requeue"]},
            "preempt": {"type": "str", "choices": ["ask", "auto"]},
            "grace": {"type": "int"},
            "host_pools": {"type": "list", "elements": "str", "default": []},
            "delete_disks": {"type": "bool", "default": False},
            "timeout": {"type": "float"},
        },
        supports_check_mode=True,
    )
    vgpuctl = Vgpuctl(module)
    name, pools = module.params["name"], module.params["host_pools"]

    def find() -> dict[str, Any] | None:
        return next((one for one in vgpuctl.read("list-tenants") if one["tenant"] == name), None)

    def create(before: dict[str, Any] | None) -> bool:
        if before is None:
            granted = [f"--host-pool={pool}" for pool in pools]
            words = [*vgpuctl.options("quota", "guaranteed", *_POLICY), *granted]
            return bool(vgpuctl.change("create-tenant", *words, "--", name)["changed"])
        limits = [word.removeprefix("--quota=") for word in vgpuctl.options("quota")]
        values = [*vgpuctl.options("guaranteed", *_POLICY), "--", name, *limits]
        runs = [("set-quota", *values)] if len(values) > len(("--", name)) else []
        runs += [("grant-host-pool", "--", pool, name) for pool in pools if pool not in before["host_pools"]]
        changes = [bool(vgpuctl.change(*run)["changed"]) for run in runs]
        return True in changes

    def delete() -> bool:
        words = ("--yes", *vgpuctl.options("delete_disks", "timeout"), "--", name)
        answer = vgpuctl.change("offboard-tenant", *words, on_hosts=True)
        return bool(answer["deleted"] or answer["would_delete"])

    vgpuctl.keep("tenant", find, create, delete)


if __name__ == "__main__":
    main()
