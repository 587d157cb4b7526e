# SPDX-License-Identifier: Apache-2.0
"""Bring hosts into their declared layout."""

from __future__ import annotations

DOCUMENTATION = """
module: vgpu_layout
short_description: Bring hosts into their declared GPU layout
description:
  - Runs C(vgpuctl apply-hosts) for the hosts whose variable C(vgpu) declares a layout.
  - A second run changes nothing. In check mode nothing is written, and with C(--diff) the differences are shown.
options:
  limit:
    description: Only hosts that fit, as C(--limit) of vgpuctl; all hosts of the inventory otherwise.
    type: str
  disrupt:
    description: Stop VMs of tenants that are in the way, and start them again; restart Fabric Manager for its mode.
    type: bool
    default: false
  reset:
    description: Reset GPUs whose pending MIG mode needs it.
    type: bool
    default: false
  undo:
    description: If a host's run fails, roll back what it did there.
    type: bool
    default: false
  boot:
    description: Install the unit that restores the layout at boot.
    type: bool
    default: true
  serial:
    description: Hosts in one batch, such as 2 or 25%.
    type: str
extends_documentation_fragment:
  - vgpuctl.vgpuctl.command
author:
  - the vgpuctl authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Every GPU host is in its layout
  vgpuctl.vgpuctl.vgpu_layout:
    limit: gpu_hosts
    inventory: "{{ ansible_inventory_sources }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = """
hosts:
  description: What C(vgpuctl apply-hosts --json) says of each host.
  returned: always
  type: list
  elements: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.vgpuctl.vgpuctl.plugins.module_utils.command import ARGUMENTS, Vgpuctl


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "limit": {"type": "str"},
            "disrupt": {"type": "bool", "default": False},
            "reset": {"type": "bool", "default": False},
            "undo": {"type": "bool", "default": False},
            "boot": {"type": "bool", "default": True},
            "serial": {"type": "str"},
        },
        supports_check_mode=True,
    )
    given = module.params
    words = ["apply-hosts", *(f"--{name}" for name in ("disrupt", "reset", "undo") if given[name])]
    words += [] if given["boot"] else ["--no-boot"]
    for name in ("limit", "serial"):
        words += [f"--{name}", given[name]] if given[name] else []
    words += ["--check"] if module.check_mode else []
    vgpuctl = Vgpuctl(module)
    answer = vgpuctl.ask(*words, on_hosts=True)
    hosts = answer.data["hosts"] if answer.data else []
    result = {"changed": any(host["changed"] for host in hosts), "hosts": hosts, "diff": _diff(hosts)}
    if answer.error is not None:
        vgpuctl.fail(answer, **result)
    module.exit_json(**result)


def _diff(hosts: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The found and the declared values, host by host."""
    return [
        {
            "before_header": host["host"],
            "after_header": host["host"],
            "before": _lines(host["differences"], "found"),
            "after": _lines(host["differences"], "declared"),
        }
        for host in hosts
        if host["differences"]
    ]


def _lines(differences: list[dict[str, Any]], which: str) -> str:
    return "".join(f"{one['gpu'] or 'host'}: {one['subject']}: {one[which]}\n" for one in differences)


if __name__ == "__main__":
    main()
