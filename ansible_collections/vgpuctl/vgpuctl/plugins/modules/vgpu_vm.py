# SPDX-License-Identifier: Apache-2.0
"""Make a tenant's VM present, started, stopped or absent."""

from __future__ import annotations

DOCUMENTATION = """
module: vgpu_vm
short_description: Make a tenant's VM with GPU shares present, started, stopped or absent
description:
  - Runs C(vgpuctl create-vm), C(start-vm), C(stop-vm) and C(delete-vm).
  - A VM that is there with another specification is a failure that tells what differs, for a VM keeps its shape.
  - In check mode nothing is written; a VM that is to be created is placed, and one that does not fit is a failure.
options:
  name:
    description: The VM's name.
    type: str
    required: true
  tenant:
    description: The tenant it belongs to.
    type: str
    required: true
  state:
    description:
      - V(present) creates and starts it, and leaves one that is there as it is.
      - V(started) and V(stopped) bring it there too; V(absent) deletes it with its disk.
    type: str
    choices: [present, started, stopped, absent]
    default: present
  spec:
    description:
      - The VM as in a VM file (docs/vm-file.md), without name and tenant.
      - Without it, a VM that is there is not compared, and one that is not there is a failure.
    type: dict
  hold:
    description: Whether a VM that is stopped keeps its GPU shares.
    type: str
    choices: [keep, release]
    default: keep
  timeout:
    description: Seconds to wait for the guest to shut down before it is forced off.
    type: float
    default: 60
extends_documentation_fragment:
  - vgpuctl.vgpuctl.command
author:
  - the vgpuctl authors (!UNKNOWN)
"""

EXAMPLES = """
- name: A workstation of acme
  vgpuctl.vgpuctl.vgpu_vm:
    name: web-1
    tenant: acme
    spec:
      gpus: [A40-8Q]
      memory: 8GiB
      disk: {size: 40GiB, base_image: debian-12}
  delegate_to: localhost
"""

RETURN = """
vm:
  description: The VM as the store knows it, none when it is absent.
  returned: always
  type: dict
leases:
  description: Its GPU shares.
  returned: always
  type: list
  elements: dict
"""

import json
import tempfile
from pathlib import Path
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
            "state": {"type": "str", "choices": ["present", "started", "stopped", "absent"], "default": "present"},
            "spec": {"type": "dict"},
            "hold": {"type": "str", "choices": ["keep", "release"], "default": "keep"},
            "timeout": {"type": "float", "default": 60},
        },
        supports_check_mode=True,
    )
    _Run(module).take()


class _Run:
    """One run of the module. vm, leases: as they are, as far as the commands told."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._given = module.params
        self._vgpuctl = Vgpuctl(module)
        self._vm: dict[str, Any] | None = None
        self._leases: list[Any] = []

    def take(self) -> None:
        """Bring the VM into its state and end the module."""
        has_spec = self._given["state"] != "absent" and self._given["spec"] is not None
        before = self._create() if has_spec else self._find()
        state = "running" if before == "absent" else before
        if self._given["state"] == "absent":
            state = self._delete(before)
        elif before == "absent" and not has_spec:
            self._module.fail_json(msg=f"there is no VM {self._given['name']} and no spec to create it from")
        else:
            state = self._switch(state)
        self._module.exit_json(
            changed=state != before,
            vm=self._vm,
            leases=self._leases,
            diff={"before": f"state: {before}\n", "after": f"state: {state}\n"},
        )

    def _find(self) -> str:
        """Look the VM up. Returns its state."""
        for one in self._vgpuctl.read("list-vms", "--tenant", self._given["tenant"]):
            if one["vm"] is not None and one["vm"]["request"]["name"] == self._given["name"]:
                self._vm, self._leases = one["vm"], one["leases"]
                return str(one["vm"]["state"])
        return "absent"

    def _create(self) -> str:
        """Create the VM, or have it compared with the one that is there. Returns the state before."""
        with tempfile.TemporaryDirectory(dir=self._module.tmpdir) as folder:
            file = Path(folder) / "vm.yml"
            spec = {**self._given["spec"], "name": self._given["name"], "tenant": self._given["tenant"]}
            file.write_text(json.dumps(spec))
            dry = ("--dry-run",) if self._module.check_mode else ()
            (made,) = self._vgpuctl.read("create-vm", "-f", str(file), *dry, on_hosts=True)
        # An existing VM is not rendered again; a dry run that needs preemptions has victims and no XML.
        is_new = made["xml"] is not None or bool(made["victims"])
        if not (is_new and self._module.check_mode):
            self._vm, self._leases = made["vm"], made["leases"]
        return "absent" if is_new else str(made["vm"]["state"])

    def _switch(self, state: str) -> str:
        """Start or stop it where that is asked for. Returns its state then."""
        wanted = {"started": "running", "stopped": "stopped"}.get(self._given["state"], state)
        if state != wanted and not self._module.check_mode:
            where = (self._given["name"], "--tenant", self._given["tenant"])
            if wanted == "running":
                self._vgpuctl.read("start-vm", *where, on_hosts=True)
            else:
                options = ("--hold", self._given["hold"], "--timeout", str(self._given["timeout"]))
                self._vgpuctl.read("stop-vm", *where, *options, on_hosts=True)
            self._find()
        return wanted

    def _delete(self, before: str) -> str:
        if before != "absent" and not self._module.check_mode:
            options = ("--yes", "--if-exists", "--timeout", str(self._given["timeout"]))
            where = (self._given["name"], "--tenant", self._given["tenant"])
            self._vgpuctl.read("delete-vm", *where, *options, on_hosts=True)
            self._vm, self._leases = None, []
        return "absent"


if __name__ == "__main__":
    main()
