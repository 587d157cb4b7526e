# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.support.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "list-hosts": (
        Example("list-hosts", "contact every host"),
        Example("list-hosts --cached -o wide", "hosts as they were last seen, all columns"),
    ),
    "list-gpus": (
        Example("list-gpus", "the GPUs of all hosts"),
        Example("list-gpus -l gpu1 -o json", "of one host, for a program"),
    ),
}
