# SPDX-License-Identifier: Apache-2.0
"""Open, cordon or drain a host."""

from __future__ import annotations

DOCUMENTATION = """
module: vgpu_host
short_description: Let a GPU host take VMs, cordon it, or drain it
description:
  - Runs C(vgpuctl uncordon-host), C(cordon-host) and C(drain-host).
  - In check mode nothing is written, and the plan of a drain is returned.
options:
  host:
    description: The host, by its name in vgpuctl's inventory.
    type: str
    required: true
  state:
    description:
      - V(open) lets it take VMs. A drained host is read first, and must be as it is declared.
      - V(cordoned) lets it take no new VM; its VMs go on.
      - V(drained) moves its VMs to other hosts, and lets nothing start there. If a VM is left, it is a failure.
    type: str
    choices: [open, cordoned, drained]
    required: true
  reason:
    description: The reason, shown wherever a VM is refused. Required with V(cordoned) and V(drained).
    type: str
  gpu:
    description: Open or cordon only this GPU, by its PCI address.
    type: str
  stop:
    description: With V(drained), stop VMs that cannot move, with their GPU shares kept.
    type: bool
    default: false
  all:
    description: With V(drained), move stopped VMs too.
    type: bool
    default: false
  no_drain:
    description: With V(drained), do not wait until the work on a node of a cluster has left it.
    type: bool
    default: false
  shutdown_timeout:
    description: With V(drained), seconds for each guest to shut down before it is forced off.
    type: float
  start:
    description: With V(open), start the VMs that a drain stopped.
    type: bool
    default: false
  force:
    description: With V(open), accept a layout that differs.
    type: bool
    default: false
extends_documentation_fragment:
  - vgpuctl.vgpuctl.command
author:
  - the vgpuctl authors (!UNKNOWN)
"""

EXAMPLES = """
- name: Empty gpu2 for new firmware
  vgpuctl.vgpuctl.vgpu_host:
    host: gpu2
    state: drained
    reason: new firmware
  delegate_to: localhost

- name: It takes VMs again
  vgpuctl.vgpuctl.vgpu_host:
    host: gpu2
    state: open
  delegate_to: localhost
"""

RETURN = """
host:
  description: The host.
  returned: with V(cordoned) and V(drained)
  type: str
gpu:
  description: The GPU, none for the whole host.
  returned: with V(cordoned)
  type: str
reason:
  description: The reason.
  returned: with V(cordoned)
  type: str
vms:
  description: Each VM and reservation of the host and what became of it; in check mode, what is planned.
  returned: with V(drained)
  type: list
  elements: dict
  sample: [{subject: acme/web-1, verdict: move, to: gpu1, outcome: moved}]
drained:
  description: Whether the host is drained; in check mode, as it is.
  returned: with V(drained)
  type: bool
lifted:
  description: The restrictions that ended.
  returned: with V(open)
  type: list
  elements: dict
  sample: [{host: gpu2, device: "", kind: drain, reason: new firmware}]
started:
  description: The outcome for each VM that was started.
  returned: with V(open)
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.vgpuctl.vgpuctl.plugins.module_utils.command import ARGUMENTS, Vgpuctl

_COMMANDS = {
    "open": ("uncordon-host", "gpu", "reason", "start", "force"),
    "cordoned": ("cordon-host", "gpu", "reason"),
    "drained": ("drain-host", "reason", "stop", "all", "no_drain", "shutdown_timeout"),
}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "host": {"type": "str", "required": True},
            "state": {"type": "str", "choices": list(_COMMANDS), "required": True},
            "reason": {"type": "str"},
            "gpu": {"type": "str"},
            "stop": {"type": "bool", "default": False},
            "all": {"type": "bool", "default": False},
            "no_drain": {"type": "bool", "default": False},
            "shutdown_timeout": {"type": "float"},
            "start": {"type": "bool", "default": False},
            "force": {"type": "bool", "default": False},
        },
        required_if=[("state", "cordoned", ["reason"]), ("state", "drained", ["reason"])],
        supports_check_mode=True,
    )
    given, vgpuctl = module.params, Vgpuctl(module)
    if given["state"] == "drained" and given["gpu"] is not None:
        module.fail_json(msg="a drain empties a whole host: leave gpu out, or cordon the GPU")
    command, *names = _COMMANDS[given["state"]]
    asks_nothing = ["--yes"] if command == "drain-host" else []
    module.exit_json(
        **vgpuctl.change(command, *asks_nothing, *vgpuctl.options(*names), "--", given["host"], on_hosts=True)
    )


if __name__ == "__main__":
    main()
