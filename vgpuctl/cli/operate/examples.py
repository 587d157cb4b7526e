# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "controller": (
        Example("controller", "until interrupted"),
        Example("controller --once", "one round"),
        Example("controller --tune power-limit,rebalance", "tries advice, and rolls back what makes VMs worse"),
    ),
    "list-controllers": (
        Example("list-controllers", "who watches which hosts"),
        Example("list-controllers -o json", "for a program"),
    ),
    "support-bundle": (
        Example("support-bundle --to bundle.tar.gz", "for a bug report"),
        Example("support-bundle gpu1 --refresh --anonymous --to anonymous.tar.gz", "one host, names replaced"),
    ),
    "repair": (
        Example("repair --dry-run", "what interrupted commands left"),
        Example("repair", "finish or roll back"),
    ),
    "show-config": (
        Example("show-config", "every setting, its value and what set it"),
        Example("show-config --filter 'from!=default'", "only what somebody set"),
    ),
    "list-contexts": (
        Example("list-contexts", "the contexts of the configuration files"),
        Example("list-contexts -o name", "names alone"),
    ),
    "use-context": (
        Example("use-context lab", "for all commands that follow"),
        Example("use-context prod -o json", "for a program"),
    ),
    "allow-config": (
        Example("allow-config", "shows the file of this folder and asks"),
        Example("allow-config --forget", "use it no longer"),
    ),
    "help": (
        Example("help networks", "a subject, its commands and pages"),
        Example("help all", "every command by subject"),
    ),
    "completion": (
        Example("completion bash", "for `eval` in ~/.bashrc"),
        Example("completion fish", "for ~/.config/fish/completions/vgpuctl.fish"),
    ),
    "show-schema": (
        Example("show-schema vm", "for an editor of VM files"),
        Example("show-schema --output-of list-vms", "for a program that reads `list-vms --json`"),
    ),
}
