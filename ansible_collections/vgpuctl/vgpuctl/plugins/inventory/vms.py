# SPDX-License-Identifier: Apache-2.0
"""The tenants' VMs as hosts of an inventory."""

from __future__ import annotations

DOCUMENTATION = """
name: vms
short_description: The VMs of vgpuctl's tenants as hosts
description:
  - Asks vgpuctl's store for the VMs and their addresses in tenants' networks; no host is contacted.
  - A VM is the host C(TENANT.NAME), in the groups C(tenant_TENANT), C(on_HOST) and C(state_STATE).
  - Its variables are C(vgpuctl_tenant), C(vgpuctl_vm), C(vgpuctl_host), C(vgpuctl_state), C(vgpuctl_shares) and
    C(vgpuctl_addresses); C(ansible_host) is its address where it has one.
  - The file is called C(vgpuctl.yml), or ends so.
extends_documentation_fragment:
  - constructed
options:
  plugin:
    description: The plugin's name.
    required: true
    choices: [vgpuctl.vgpuctl.vms]
  tenant:
    description: Only this tenant's VMs.
    type: str
  executable:
    description: The command to run.
    type: path
    default: vgpuctl
  database:
    description: The store's address.
    type: str
    env:
      - name: VGPUCTL_DATABASE_URL
  timeout:
    description: Seconds to wait for vgpuctl.
    type: int
    default: 120
"""

EXAMPLES = """
# tenants.vgpuctl.yml
plugin: vgpuctl.vgpuctl.vms
tenant: acme
keyed_groups:
  - key: vgpuctl_shares | map(attribute='profile') | list
    prefix: profile
"""

import json
import os
import subprocess
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin, Constructable


class InventoryModule(BaseInventoryPlugin, Constructable):
    """Lists the VMs."""

    NAME = "vgpuctl.vgpuctl.vms"

    def verify_file(self, path: str) -> bool:
        """True if the file is for this plugin."""
        return bool(super().verify_file(path)) and path.endswith(("vgpuctl.yml", "vgpuctl.yaml"))

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Fill the inventory."""
        super().parse(inventory, loader, path, cache)
        self._read_config_data(path)
        vms = [one for one in self._ask("list-vms") if one["vm"] is not None]  # the others wait in the queue
        addresses = self._addresses() if vms else {}
        for one in vms:
            self._add(one, addresses.get((one["vm"]["request"]["tenant"], one["vm"]["request"]["name"]), {}))

    def _add(self, one: dict[str, Any], addresses: dict[str, str]) -> None:
        vm, request = one["vm"], one["vm"]["request"]
        host = f"{request['tenant']}.{request['name']}"
        variables = {
            "vgpuctl_tenant": request["tenant"],
            "vgpuctl_vm": request["name"],
            "vgpuctl_host": vm["host"],
            "vgpuctl_state": vm["state"],
            "vgpuctl_shares": [lease["share"] for lease in one["leases"]],
            "vgpuctl_addresses": addresses,
        }
        if addresses:
            variables["ansible_host"] = next(iter(addresses.values()))
        self.inventory.add_host(host)
        for name in (f"tenant_{request['tenant']}", f"on_{vm['host']}", f"state_{vm['state']}"):
            self.inventory.add_child(self.inventory.add_group(self._sanitize_group_name(name)), host)
        for name, value in variables.items():
            self.inventory.set_variable(host, name, value)
        strict = self.get_option("strict")
        self._set_composite_vars(self.get_option("compose"), variables, host, strict=strict)
        self._add_host_to_composed_groups(self.get_option("groups"), variables, host, strict=strict)
        self._add_host_to_keyed_groups(self.get_option("keyed_groups"), variables, host, strict=strict)

    def _addresses(self) -> dict[tuple[str, str], dict[str, str]]:
        """Address by network, of each VM by tenant and name."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        for shown in self._ask("list-networks"):
            request = shown["network"]["request"]
            for port in shown["ports"]:
                found.setdefault((request["tenant"], port["vm"]), {})[request["name"]] = port["port"]["address"]
        return found

    def _ask(self, command: str) -> list[dict[str, Any]]:
        tenant, database = self.get_option("tenant"), self.get_option("database")
        words = [self.get_option("executable"), command, "--json", *(("--tenant", tenant) if tenant else ())]
        environment = {**os.environ, "NO_COLOR": "1"}
        if database:
            environment["VGPUCTL_DATABASE_URL"] = database
        timeout_s = self.get_option("timeout")
        try:
            done = subprocess.run(
                words, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AnsibleParserError(f"{' '.join(words)}: {error}") from error
        if done.returncode != 0:
            raise AnsibleParserError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found
