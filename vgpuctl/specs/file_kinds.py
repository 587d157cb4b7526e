# SPDX-License-Identifier: Apache-2.0
"""The kind of a document, recognised by its keys, so that a mix-up is named before any key is refused."""

from enum import StrEnum

from vgpuctl.specs.origin import malformed
from vgpuctl.specs.value import Value


class FileKind(StrEnum):
    """The kinds of files that users write, in words."""

    VM = "a VM"
    TENANT = "a tenant's file"
    HOST_VARIABLES = "variables of hosts"
    INVENTORY = "an inventory"
    WEB_CONFIG = "a web configuration"
    KUBERNETES = "an object of Kubernetes"


_USE = {
    FileKind.VM: "`vgpuctl create-vm -f FILE` reads VMs",
    FileKind.TENANT: "`vgpuctl onboard FILE` reads it",
    FileKind.HOST_VARIABLES: "it belongs to host_vars or group_vars beside the inventory",
    FileKind.INVENTORY: "`-i FILE` reads it",
    FileKind.WEB_CONFIG: "`--web-config FILE` reads it",
    FileKind.KUBERNETES: "give it to kubectl",
}
HOST_VARIABLES = ("vgpu", "vgpu_placing", "vgpu_health", "vgpu_fencing", "vgpu_moves")
_OF_TENANTS = ("quotas", "guaranteed", "node_pools", "contact", "gateway", "floating_ips", "port_forwards", "peerings")
_OF_VMS = ("gpus", "vcpus", "memory", "disk", "cloud_init", "firmware", "os")


def kind_of_document(content: object) -> FileKind | None:
    """The kind that a document's keys tell, None where they tell none."""
    if not isinstance(content, dict):
        return None
    keys = set(content)
    if {"apiVersion", "kind"} <= keys:
        return FileKind.KUBERNETES
    if {"version", "tenant"} <= keys or keys & set(_OF_TENANTS):
        return FileKind.TENANT
    if keys == {"vms"} or ("name" in keys and "version" not in keys) or keys & set(_OF_VMS):
        return FileKind.VM
    if keys & set(HOST_VARIABLES):
        return FileKind.HOST_VARIABLES
    if keys & {"tls_server_config", "basic_auth_users"}:
        return FileKind.WEB_CONFIG
    if any(isinstance(one, dict) and {"hosts", "children"} & set(one) for one in content.values()):
        return FileKind.INVENTORY
    return None


def refuse_other_kind(document: Value, wanted: FileKind) -> None:
    """Refuse a document whose keys are those of another kind of file. Raises InventoryError with file and line."""
    found = kind_of_document(document.content)
    if found is not None and found is not wanted:
        raise malformed(
            document.origin, f"this is {found}, not {wanted}", hint=f"{_USE[found]}; keep each kind in its own file"
        )
