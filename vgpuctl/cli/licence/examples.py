# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "create-licence-pool": (
        Example("create-licence-pool vws --edition vws --seats 20", "seats of one edition"),
        Example("create-licence-pool vcs --edition vcs --seats 4 --dry-run", "what would change"),
    ),
    "set-licence-pool": (
        Example("set-licence-pool vws --seats 30", "more seats"),
        Example("set-licence-pool vws --lease 12h", "how long a seat is kept"),
    ),
    "list-licence-pools": (
        Example("list-licence-pools", "seats taken and free"),
        Example("list-licence-pools vws", "with who holds them"),
    ),
    "delete-licence-pool": (
        Example("delete-licence-pool vws --dry-run", "what would change"),
        Example("delete-licence-pool vws --yes", "a pool that nobody counts any more"),
    ),
}
