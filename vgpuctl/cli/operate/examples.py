# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.support.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "help": (
        Example("help networks", "a subject, its commands and pages"),
        Example("help all", "every command by subject"),
    ),
    "completion": (
        Example("completion bash", "for `eval` in ~/.bashrc"),
        Example("completion fish", "for ~/.config/fish/completions/vgpuctl.fish"),
    ),
    "show-config": (
        Example("show-config", "every setting, its value and what set it"),
        Example("show-config --filter from!=default", "only what somebody set"),
    ),
}
