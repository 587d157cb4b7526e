# SPDX-License-Identifier: Apache-2.0
"""The table of contents of the command line: every command with its folder and its first line of help.

A command is `command` in the module of its name, except for those in MADE_BY.
"""

from typing import NamedTuple


class CommandSection(NamedTuple):
    """A group of commands in `vgpuctl --help`. folder: where their modules are, under cli/ and usecases/."""

    title: str
    folder: str
    commands: dict[str, str]


SECTIONS = (
    CommandSection(
        "Hosts and GPUs",
        "host",
        {
            "show-inventory": "Show hosts, groups and variables of the inventory.",
            "list-hosts": "List the hosts of the inventory and how they answer.",
            "inspect-host": "Show all facts of a host.",
            "list-gpus": "List the GPUs of all hosts.",
            "show-gpu": "Show one GPU: health, shares, readings, events, its last hour.",
            "list-profiles": "List the vGPU types and what can still be created.",
            "check-hosts": "Check hosts for drift and known failures.",
            "record-host": "Record what vgpuctl reads of a host, for the lab to replay.",
            "adopt-host": "Adopt the running VMs and the layout of a host.",
        },
    ),
    CommandSection(
        "Layout of hosts",
        "layout",
        {
            "plan-hosts": "Show the steps that bring hosts into their declared layout.",
            "apply-hosts": "Bring every host into its declared layout.",
            "import-layout": "Convert another tool's file to a declared layout.",
            "export-layout": "Convert a declared layout to another tool's file.",
            "export-nova": "Write what OpenStack Nova needs of hosts' GPUs.",
            "export-proxmox": "Write what Proxmox VE needs of hosts' GPUs.",
            "export-kubevirt": "Write what KubeVirt needs of hosts' GPUs.",
        },
    ),
    CommandSection(
        "VMs",
        "vm",
        {
            "create-vm": "Create a tenant's VM with its GPU shares and start it.",
            "list-vms": "List the VMs of the store.",
            "show-vm": "Show one VM: its lease, its domain and its devices.",
            "start-vm": "Start a VM that is stopped or paused.",
            "stop-vm": "Stop a VM and keep or release its GPU shares.",
            "restart-vm": "Stop a VM and start it again with its GPU shares.",
            "reset-vm": "Reset a running VM as by its reset button.",
            "force-off": "Force a VM off without asking its guest.",
            "rename-vm": "Rename a VM that is off.",
            "attach-nic": "Attach a network interface to a VM, running or not.",
            "detach-nic": "Detach a network interface from a VM.",
            "move-vm": "Move a VM to another host with its disk and equal GPU shares.",
            "resize-vm": "Change the vCPUs, memory or GPU shares of a VM.",
            "attach-gpu": "Give a VM one more GPU share.",
            "detach-gpu": "Take a GPU share from a VM.",
            "delete-vm": "Delete VMs and release their devices.",
            "check-vm": "Check whether a VM has the GPU shares it was promised.",
            "render-vm": "Print the domain XML of a VM without creating it.",
        },
    ),
    CommandSection(
        "Displays and consoles of VMs",
        "display",
        {
            "view": "Show the display of a running VM.",
            "screenshot": "Take a picture of a VM's screen.",
            "set-console": "Change what the console of a VM shows from its next start on.",
            "console": "Connect this terminal to a VM's serial console.",
        },
    ),
    CommandSection(
        "Disks of VMs",
        "disk",
        {
            "attach-disk": "Attach a new or kept data disk to a VM, running or not.",
            "detach-disk": "Detach a data disk from a VM; the tenant keeps it.",
            "resize-disk": "Make a disk of a VM larger, running or not.",
            "list-disks": "List the data disks of tenants and the VMs that have them.",
            "delete-disk": "Delete data disks that no VM has.",
            "create-snapshot": "Take a snapshot of all disks of a VM.",
            "list-snapshots": "List the snapshots of a VM's disks.",
            "revert-snapshot": "Bring the disks of a stopped VM back to a snapshot.",
            "delete-snapshot": "Delete a snapshot; the disks keep what they hold.",
            "eject-iso": "Eject the install media of a VM.",
        },
    ),
    CommandSection(
        "Images",
        "image",
        {
            "register-image": "Add a base image, kernel or initrd to the catalogue.",
            "list-images": "List the images that VMs can name.",
            "delete-image": "Remove an image from the catalogue.",
        },
    ),
    CommandSection(
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
    CommandSection(
        "Tenants",
        "tenant",
        {
            "onboard": "Create or change a tenant from its file.",
            "offboard-tenant": "Remove a tenant with all its objects.",
            "create-tenant": "Add a tenant to the store.",
            "list-tenants": "List the tenants, their quotas and what they use.",
            "set-quota": "Change the quotas and the preemption policy of a tenant.",
            "show-usage": "Show the usage of tenants.",
            "report": "Report a month of tenants: use, promise, queue waits, incidents.",
            "create-pool": "Create a pool of hosts for some tenants only.",
            "grant-pool": "Grant a pool of hosts to tenants.",
            "list-pools": "List pools of hosts and their tenants.",
            "delete-pool": "Delete a pool; its hosts serve every tenant again.",
        },
    ),
    CommandSection(
        "Node pools of clusters",
        "node",
        {
            "create-node-pool": "Create a pool of VMs that are nodes of a tenant's cluster.",
            "set-node-pool": "Change the bounds, labels, secrets or timeouts of a node pool.",
            "list-node-pools": "List node pools: sizes, nodes, why a node is not ready.",
            "scale-node-pool": "Want more or fewer nodes in a pool.",
            "delete-node-pool": "Drain and delete all nodes of a pool, and the pool.",
            "render-node": "Show labels, join files and device plugin configuration of a node.",
        },
    ),
    CommandSection(
        "Kubernetes clusters",
        "kubernetes",
        {
            "export-dra": "Write the fleet as ResourceSlices of Kubernetes.",
            "serve-autoscaler": "Serve node pools to a Kubernetes cluster-autoscaler.",
            "serve-extender": "Place pods that share GPUs, for kube-scheduler, until interrupted.",
        },
    ),
    CommandSection(
        "Slurm clusters",
        "slurm",
        {
            "export-slurm": "Write Slurm's configuration for the node pools of a tenant.",
            "slurm-resume": "Want the nodes that Slurm resumes (ResumeProgram).",
            "slurm-suspend": "Let the nodes go that Slurm suspends (SuspendProgram).",
            "slurm-fail": "Give nodes up that did not register in time (ResumeFailProgram).",
        },
    ),
    CommandSection(
        "Licences",
        "licence",
        {
            "create-licence-pool": "Create a pool of vGPU licences, of which VMs take seats.",
            "set-licence-pool": "Change the seats, lease, server or token of a licence pool.",
            "list-licence-pools": "List licence pools: seats, who holds them, who waits.",
            "delete-licence-pool": "Delete a licence pool of which no seat is taken.",
        },
    ),
    CommandSection(
        "Networks",
        "network",
        {
            "create-network": "Create a network for a tenant's VMs.",
            "list-networks": "List the tenants' networks.",
            "show-network": "Show one network with its addresses.",
            "delete-network": "Delete a tenant's networks.",
            "create-external-network": "Declare an external network for the tenants' gateways.",
            "list-external-networks": "List the external networks.",
            "delete-external-network": "Delete an external network.",
            "create-gateway": "Create a tenant's gateway to an external network.",
            "delete-gateway": "Delete a tenant's gateway.",
            "create-floating-ip": "Assign a floating IP to a VM.",
            "delete-floating-ip": "Release the floating IPs of VMs.",
            "create-port-forward": "Forward a port of the gateway's address to a VM.",
            "delete-port-forward": "Delete port forwards.",
            "create-security-group": "Create a security group for a tenant's VMs.",
            "delete-security-group": "Delete security groups.",
            "create-security-rule": "Add rules to a security group.",
            "delete-security-rule": "Remove rules from a security group.",
            "create-load-balancer": "Create a load balancer for a tenant's VMs.",
            "set-load-balancer": "Change the VMs and health checks of a load balancer.",
            "delete-load-balancer": "Delete load balancers.",
            "create-peering": "Peer a tenant's networks with those of another tenant.",
            "delete-peering": "Delete a tenant's peerings with other tenants.",
            "create-direct-connect": "Connect a tenant's network to a physical network or VLAN.",
            "delete-direct-connect": "Disconnect a tenant's networks from physical networks.",
            "list-vpc-objects": "List gateways, floating IPs, security groups and other VPC objects.",
            "create-certificate": "Create keys and certificates for OVN's databases.",
        },
    ),
    CommandSection(
        "Maintenance of hosts and GPUs",
        "maintenance",
        {
            "cordon-host": "Take a host or GPU out of placement; its VMs go on.",
            "uncordon-host": "Let a cordoned host or GPU take VMs again.",
            "drain-host": "Empty a host: move or stop its VMs, move its reservations.",
            "evacuate-host": "Start the VMs of a dead host on others.",
            "forget-host": "Settle everything that the store has of a dead host.",
            "plan-upgrade": "Plan the upgrade of hosts to another driver or kernel.",
            "quarantine-gpu": "Put a GPU or VF in quarantine; no VM starts on it.",
            "release-gpu": "Release a GPU or VF from quarantine.",
            "gc": "Remove leftovers that the store does not know.",
        },
    ),
    CommandSection(
        "Monitoring",
        "telemetry",
        {
            "exporter": "Serve the readings of all hosts and the store's states to Prometheus.",
            "list-targets": "List the targets that Prometheus can discover.",
            "export-monitoring": "Write rules, dashboards and configurations for Prometheus and Grafana.",
            "top": "Show what each share uses of what was promised, live.",
            "map": "Draw each GPU with its shares and what is left.",
            "advise": "Advise changes that are worth it, from kept readings.",
            "fit-performance": "Fit the model of throughput of VMs that share GPUs.",
            "web": "Serve read-only pages of the fleet.",
        },
    ),
    CommandSection(
        "Operation",
        "operate",
        {
            "controller": "Keep the store true, serve the queue and start VMs again, until interrupted.",
            "list-controllers": "List the controllers and the hosts that each one watches.",
            "repair": "Finish or roll back interrupted runs.",
            "show-config": "Show each setting, its value and what set it.",
            "list-contexts": "List the contexts of the configuration files.",
            "use-context": "Choose the context of the following commands.",
            "completion": "Print the script for completion in a shell.",
            "show-schema": "Show the JSON schema of VM files, tenants' files or host variables.",
        },
    ),
    CommandSection(
        "Events and the store",
        "store",
        {
            "list-events": "List what happened, and who did it.",
            "prune-events": "Delete old events.",
            "grant-store": "Grant a role of PostgreSQL rights on the store.",
            "backup-store": "Write a backup of the store to a file.",
            "restore-store": "Restore the store from a backup.",
            "reconcile-store": "Compare a restored store with the hosts.",
        },
    ),
)
COMMANDS = {name: text for section in SECTIONS for name, text in section.commands.items()}
FOLDERS = {name: section.folder for section in SECTIONS for name in section.commands}
_VPC_OBJECTS = {
    *("create-gateway", "create-floating-ip", "create-port-forward", "create-security-group", "create-security-rule"),
    *("create-load-balancer", "set-load-balancer", "create-peering", "create-direct-connect"),
    *("delete-gateway", "delete-floating-ip", "delete-port-forward", "delete-security-group", "delete-security-rule"),
    *("delete-load-balancer", "delete-peering", "delete-direct-connect"),
}
MADE_BY = dict.fromkeys(_VPC_OBJECTS, "vpc_objects")
"""Commands without a module of their own → the module of their folder that makes them, by `make(name, text)`."""
