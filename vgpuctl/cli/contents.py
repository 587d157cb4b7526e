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
            "inspect-host": "Show everything that was found on a host.",
            "list-gpus": "List the GPUs of all hosts.",
            "list-profiles": "List the vGPU types and what can still be created.",
            "check-hosts": "Check hosts for drift and for the known failure modes.",
            "adopt-host": "Take over what runs on a host as it is.",
        },
    ),
    Section(
        "Layout of hosts",
        "layout",
        {
            "plan-hosts": "Show what would bring every host into its declared layout.",
            "apply-hosts": "Bring every host into its declared layout.",
            "import-layout": "Turn another tool's file into a declared layout.",
            "export-layout": "Write a host's declared layout as another tool's file.",
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
            "delete-vm": "Delete VMs and give their devices back to the pool.",
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
            "delete-image": "Take an image out of the catalogue.",
        },
    ),
    Section(
        "Placement, queue and reservations",
        "placement",
        {
            "capacity": "Count how many more VMs of one kind fit.",
            "explain-vm": "Tell why a VM fits where it does, or nowhere.",
            "list-queue": "List the VMs that wait for their turn.",
            "leave-queue": "Take a VM out of the queue.",
            "set-queue": "Choose who comes first in the queue.",
            "reserve": "Reserve GPU shares for a time.",
            "list-reservations": "List what is reserved, and when.",
            "cancel-reservation": "Cancel a reservation.",
        },
    ),
    Section(
        "Tenants",
        "tenant",
        {
            "onboard": "Make a tenant what its file says.",
            "offboard-tenant": "Take back everything of a tenant.",
            "create-tenant": "Add a tenant to the store.",
            "list-tenants": "List the tenants, their quotas and what they use.",
            "set-quota": "Change what a tenant may use.",
            "show-usage": "Show what tenants used.",
            "create-pool": "Make a pool of hosts that only some tenants may use.",
            "grant-pool": "Let tenants use a pool of hosts.",
            "list-pools": "List the pools of hosts and who may use them.",
            "delete-pool": "Delete a pool; its hosts serve every tenant again.",
        },
    ),
    Section(
        "Networks",
        "network",
        {
            "create-network": "Create a tenant's network.",
            "list-networks": "List the tenants' networks.",
            "show-network": "Show one network: its addresses and who has them.",
            "delete-network": "Delete a tenant's networks.",
            "create-outside": "Declare a network behind the tenants' gateways.",
            "list-outsides": "List the networks behind the tenants' gateways.",
            "delete-outside": "Delete a network behind the tenants' gateways.",
            "create-gateway": "Give a tenant's networks a way out.",
            "delete-gateway": "Take a tenant's way out away.",
            "create-floating-address": "Give a VM an outside address of its own.",
            "delete-floating-address": "Take a VM's outside address back.",
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
            "create-direct-line": "Join a tenant's network with a line that the tenant brings.",
            "delete-direct-line": "Take a tenant's own line out of a network.",
            "list-vpc-objects": "List gateways, security groups, balancers and the like.",
            "create-certificate": "Make keys and certificates for OVN's databases.",
        },
    ),
    Section(
        "Operation",
        "operate",
        {
            "repair": "Finish or take back what an interrupted run left.",
            "gc": "Take away what the store does not know.",
            "controller": "Serve the queue and end VMs whose time is over, until it is stopped.",
        },
    ),
)
COMMANDS = {name: text for section in SECTIONS for name, text in section.commands.items()}
FOLDERS = {name: section.folder for section in SECTIONS for name in section.commands}
