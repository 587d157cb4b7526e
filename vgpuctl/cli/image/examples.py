# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

_DEBIAN = "debian-13 --path /var/lib/libvirt/images/debian-13.qcow2 --format qcow2"
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "register-image": (
        Example(f"register-image {_DEBIAN} --host gpu1", "a file of that path on each host"),
        Example(f"register-image {_DEBIAN} --host gpu1 --dry-run", "only look"),
    ),
    "list-images": (
        Example("list-images", "all that VMs can name"),
        Example("list-images -o name", "names alone"),
    ),
    "delete-image": (
        Example("delete-image debian-13 --dry-run", "what would be removed"),
        Example("delete-image debian-13 --yes", "from the catalogue; volumes stay"),
    ),
}
