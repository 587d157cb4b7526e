# SPDX-License-Identifier: Apache-2.0
"""Put a GPU in quarantine, or release it."""

from __future__ import annotations

DOCUMENTATION = """
module: vgpu_quarantine
short_description: Put a GPU or VF in quarantine, or release it
description:
  - Runs C(vgpuctl quarantine-gpu) and C(unquarantine-gpu).
  - In check mode nothing is written.
options:
  host:
    description: The host, by its name in vgpuctl's inventory.
    type: str
    required: true
  gpu:
    description: The PCI address of the GPU or VF.
    type: str
    required: true
  state:
    description:
      - V(quarantined) lets no VM start on it; VMs that run there go on.
      - V(released) lets VMs use it again. Its health is read first, and a GPU that is not healthy is a failure.
    type: str
    choices: [quarantined, released]
    default: quarantined
  reason:
    description: The reason, shown wherever a VM is refused, or for the event of a release.
    type: str
    required: true
  force:
    description: With V(released), release it although it is not healthy.
    type: bool
    default: false
extends_documentation_fragment:
  - vgpuctl.vgpuctl.command
author:
  - the vgpuctl authors (!UNKNOWN)
"""

EXAMPLES = """
- name: No VM starts on a GPU with a loud fan
  vgpuctl.vgpuctl.vgpu_quarantine:
    host: gpu2
    gpu: "0000:41:00.0"
    reason: fan is loud
  delegate_to: localhost
"""

RETURN = """
host:
  description: The host.
  returned: with V(quarantined)
  type: str
gpu:
  description: The PCI address.
  returned: with V(quarantined)
  type: str
reason:
  description: The reason.
  returned: with V(quarantined)
  type: str
lifted:
  description: The quarantines that ended.
  returned: with V(released)
  type: list
  elements: dict
  sample: [{host: gpu2, device: "0000:41:00.0", kind: quarantine, reason: fan is loud}]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.vgpuctl.vgpuctl.plugins.module_utils.command import ARGUMENTS, Vgpuctl

_COMMANDS = {"quarantined": ("quarantine-gpu", "reason"), "released": ("unquarantine-gpu", "reason", "force")}


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            **ARGUMENTS,
            "host": {"type": "str", "required": True},
            "gpu": {"type": "str", "required": True},
            "state": {"type": "str", "choices": list(_COMMANDS), "default": "quarantined"},
            "reason": {"type": "str", "required": True},
            "force": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given, vgpuctl = module.params, Vgpuctl(module)
    command, *names = _COMMANDS[given["state"]]
    words = (*vgpuctl.options(*names), "--", given["host"], given["gpu"])
    module.exit_json(**vgpuctl.change(command, *words, on_hosts=True))


if __name__ == "__main__":
    main()
