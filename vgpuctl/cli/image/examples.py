# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.support.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "register-image": (
        Example(
            "register-image debian-13 --volume debian-13.qcow2 --format qcow2 --host gpu1", "a volume of a host's pool"
        ),
        Example("register-image debian-13 --volume debian-13.qcow2 --format qcow2 --host gpu1 --dry-run", "only look"),
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
