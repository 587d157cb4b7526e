# SPDX-License-Identifier: Apache-2.0
"""The table of contents of the command line: every command with its folder and its first line of help."""

from typing import NamedTuple


class Section(NamedTuple):
    """A group of commands in `vgpuctl --help`. folder: where their modules are, under cli/ and usecases/."""

    title: str
    folder: str
    commands: dict[str, str]


SECTIONS = (
    Section(
        "Hosts and GPUs",
        "host",
        {
            "show-inventory": "Show hosts, groups and variables of the inventory.",
            "list-hosts": "List the hosts of the inventory and how they answer.",
            "inspect-host": "Show all facts of a host.",
            "list-gpus": "List the GPUs of all hosts.",
            "list-profiles": "List the vGPU types and what can still be created.",
            "check-hosts": "Check hosts for drift and known failures.",
            "adopt-host": "Adopt the running VMs and the layout of a host.",
        },
    ),
    Section(
        "Layout of hosts",
        "layout",
        {
            "plan-hosts": "Show the steps that bring hosts into their declared layout.",
            "apply-hosts": "Bring every host into its declared layout.",
            "import-layout": "Convert another tool's file to a declared layout.",
            "export-layout": "Convert a declared layout to another tool's file.",
        },
    ),
    Section(
        "VMs",
        "vm",
        {
            "create-vm": "Create a tenant's VM with its GPU shares and start it.",
            "list-vms": "List the VMs of the store.",
            "show-vm": "Show one VM: its lease, its domain and its devices.",
            "start-vm": "Start a stopped VM.",
            "stop-vm": "Stop a VM and keep or release its GPU shares.",
            "delete-vm": "Delete VMs and release their devices.",
            "console": "Connect this terminal to a VM's serial console.",
            "render-vm": "Print the domain XML of a VM without creating it.",
        },
    ),
    Section(
        "Images",
        "vm",
        {
            "register-image": "Add a base image, kernel or initrd to the catalogue.",
            "list-images": "List the images that VMs can name.",
            "delete-image": "Remove an image from the catalogue.",
        },
    ),
    Section(
        "Placement, queue and reservations",
        "placement",
        {
            "capacity": "Count the VMs of one kind that still fit.",
            "explain-vm": "Explain the placement of a VM, or its refusals.",
            "list-queue": "List the VMs in the queue.",
            "leave-queue": "Remove a VM from the queue.",
            "set-queue": "Set the order of the queue.",
            "reserve": "Reserve GPU shares for a time.",
            "list-reservations": "List reservations with their times.",
            "cancel-reservation": "Cancel a reservation.",
        },
    ),
    Section(
        "Tenants",
        "tenant",
        {
            "onboard": "Create or change a tenant from its file.",
            "offboard-tenant": "Remove a tenant with all its objects.",
            "create-tenant": "Add a tenant to the store.",
            "list-tenants": "List the tenants, their quotas and what they use.",
            "set-quota": "Change the quotas and the preemption policy of a tenant.",
            "show-usage": "Show the usage of tenants.",
            "create-pool": "Create a pool of hosts for some tenants only.",
            "grant-pool": "Grant a pool of hosts to tenants.",
            "list-pools": "List pools of hosts and their tenants.",
            "delete-pool": "Delete a pool; its hosts serve every tenant again.",
        },
    ),
    Section(
        "Networks",
        "network",
        {
            "create-network": "Create a tenant's network.",
            "list-networks": "List the tenants' networks.",
            "show-network": "Show one network with its addresses.",
            "delete-network": "Delete a tenant's networks.",
            "create-external-network": "Declare an external network for the tenants' gateways.",
            "list-external-networks": "List the external networks.",
            "delete-external-network": "Delete an external network.",
            "create-gateway": "Give a tenant's networks a way out.",
            "delete-gateway": "Take a tenant's way out away.",
            "create-floating-ip": "Assign a floating IP to a VM.",
            "delete-floating-ip": "Release the floating IPs of VMs.",
            "create-port-forward": "Send a port of the gateway's address on to a VM.",
            "delete-port-forward": "Close ports of the gateway's address.",
            "create-security-group": "Create a named allow-list for a tenant's VMs.",
            "delete-security-group": "Delete security groups.",
            "create-security-rule": "Let more into the VMs of a security group.",
            "delete-security-rule": "Let less into the VMs of a security group.",
            "create-load-balancer": "Share connections among a tenant's VMs.",
            "set-load-balancer": "Change the VMs behind a load balancer.",
            "delete-load-balancer": "Delete load balancers.",
            "create-peering": "Join two tenants' networks.",
            "delete-peering": "Join two tenants' networks no more.",
            "create-direct-connect": "Connect a tenant's network to a VLAN that the tenant brings.",
            "delete-direct-connect": "Disconnect tenants' networks from their VLANs.",
            "list-vpc-objects": "List gateways, security groups, balancers and the like.",
            "create-certificate": "Make keys and certificates for OVN's databases.",
        },
    ),
    Section(
        "Operation",
        "operate",
        {
            "repair": "Finish or roll back interrupted runs.",
            "gc": "Remove leftovers that the store does not know.",
            "controller": "Serve the queue and stop expired VMs, until interrupted.",
        },
    ),
)
COMMANDS = {name: text for section in SECTIONS for name, text in section.commands.items()}
FOLDERS = {name: section.folder for section in SECTIONS for name in section.commands}
