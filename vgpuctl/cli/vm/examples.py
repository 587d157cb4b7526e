# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "create-vm": (
        Example("create-vm acme/web-3 --gpu A40-8Q --memory 4GiB --network none", "a VM with a vGPU"),
        Example("create-vm -t acme -f web.yml --dry-run", "VMs of a file: where they would go"),
    ),
    "list-vms": (
        Example("list-vms -t acme", "the VMs of one tenant"),
        Example("list-vms -A --selector app=web,env!=dev", "by labels"),
        Example("list-vms --filter 'state=running*' --sort-by -memory", "running VMs, the largest first"),
    ),
    "show-vm": (
        Example("show-vm acme/web-1", "one VM: shares, disks, addresses, events"),
        Example("show-vm 'acme/web-*' -o json", "several, for a program"),
    ),
    "start-vm": (
        Example("start-vm acme/web-1", "start it with its shares"),
        Example("start-vm 'acme/web-*' --yes", "several"),
    ),
    "stop-vm": (
        Example("stop-vm acme/web-1 --timeout 0", "without waiting for the guest"),
        Example("stop-vm acme/web-1 --hold release", "and give its shares back"),
        Example("stop-vm acme/web-1 --force", "end a guest that hangs"),
    ),
    "suspend-vm": (
        Example("suspend-vm acme/web-1", "its memory and vGPU state to the host's disk"),
        Example("suspend-vm acme/web-2 --hold release", "and give its shares back"),
    ),
    "resume-vm": (
        Example("resume-vm acme/web-1", "go on where it was"),
        Example("resume-vm acme/web-2", "with its shares made again"),
    ),
    "restart-vm": (
        Example("restart-vm acme/web-1 --timeout 0", "stop and start again"),
        Example("restart-vm --all -t acme --yes --timeout 0", "every VM of a tenant"),
        Example("restart-vm acme/web-1 --reset", "as by its reset button"),
    ),
    "wait": (
        Example("wait acme/web-1 --for running", "after create-vm --queue"),
        Example("wait --all -t acme --for placed --timeout 30s", "every VM of a tenant"),
    ),
    "label-vm": (
        Example("label-vm acme/web-1 app=web env=prod", "set two labels"),
        Example("label-vm 'acme/web-*' env- --yes", "remove a label from several"),
    ),
    "rename-vm": (
        Example("rename-vm acme/web-2 web-9", "a VM that is off"),
        Example("rename-vm -t acme web-9 web-2", "the same with -t"),
    ),
    "attach-nic": (
        Example("attach-nic acme/web-1 back", "one more network interface"),
        Example("attach-nic acme/web-2 back --model e1000e", "with another model"),
    ),
    "detach-nic": (
        Example("detach-nic acme/web-1 back", "by its network"),
        Example("detach-nic acme/web-2 back", "from another VM"),
    ),
    "move-vm": (
        Example("move-vm acme/web-1 --check", "to which hosts, live or cold"),
        Example("move-vm acme/web-1 --dry-run", "where it would go"),
        Example("move-vm acme/web-1 --to gpu2", "to a host of your choice"),
    ),
    "resize-vm": (
        Example("resize-vm acme/web-2 --memory 6GiB --restart", "more memory; the VM restarts"),
        Example("resize-vm acme/web-2 --vcpus 4 --restart --dry-run", "what would change"),
    ),
    "attach-gpu": (
        Example("attach-gpu acme/db-1 A40-8Q --dry-run", "where the share would come from"),
        Example("attach-gpu acme/db-1 A40-8Q", "one more GPU share"),
    ),
    "detach-gpu": (
        Example("detach-gpu acme/db-1 0 --dry-run", "what would be released"),
        Example("detach-gpu acme/db-1 0", "the first share"),
    ),
    "delete-vm": (
        Example("delete-vm acme/web-9 --if-exists --yes", "no error if it does not exist"),
        Example("delete-vm acme/web-2 --keep-disk=7d --yes", "keep its disks for a week"),
    ),
    "restore-vm": (
        Example("restore-vm acme/web-2 --dry-run", "where it would run"),
        Example("restore-vm acme/web-2", "make a deleted VM again with its kept disks"),
    ),
    "check-vm": (
        Example("check-vm acme/web-1", "prove that it has what it was promised"),
        Example("check-vm --all -t acme -o json", "every VM of a tenant, for a program"),
    ),
    "render-vm": (
        Example("render-vm acme/web-1 --existing", "the domain XML of a VM"),
        Example("render-vm acme/new --gpu A40-8Q --network none", "what create-vm would define"),
    ),
}
