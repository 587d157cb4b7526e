# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "show-inventory": (
        Example("show-inventory", "hosts, groups and variables as they were read"),
        Example("show-inventory -l 'gpu_hosts:!gpu3' -o json", "some hosts, for a program"),
    ),
    "list-hosts": (
        Example("list-hosts", "contact every host"),
        Example("list-hosts --cached -o wide", "hosts as they were last seen, all columns"),
    ),
    "inspect-host": (
        Example("inspect-host gpu1", "what a host has: cards, drivers, libvirt"),
        Example("inspect-host gpu1 --readings -o json", "with utilisation, power and temperature, for a program"),
    ),
    "list-gpus": (
        Example("list-gpus", "the GPUs of all hosts"),
        Example("list-gpus --free -l gpu1", "what is free on one host"),
    ),
    "show-gpu": (
        Example("show-gpu gpu1 0000:41:00.0", "health, shares and events of one GPU"),
        Example("show-gpu gpu1 0000:41:00.0 -o json", "the same for a program"),
    ),
    "list-profiles": (
        Example("list-profiles --creatable", "what can be created now"),
        Example("list-profiles -l gpu1 -o wide", "of one host, with heads and resolutions"),
    ),
    "list-partitions": (
        Example("list-partitions", "the partitions of all HGX hosts, with their VMs"),
        Example("list-partitions --free -l gpu1 -o wide", "what is free on one host, with the GPUs' addresses"),
    ),
    "check-hosts": (
        Example("check-hosts", "drift and known failures of all hosts"),
        Example("check-hosts --prepare -l gpu1", "what a new host lacks, with the commands that fix it"),
    ),
    "record-host": (
        Example("record-host gpu1 --to gpu1.capture.json.gz", "for a bug report or the lab"),
        Example("record-host gpu1 --to gpu1.capture.json.gz --show", "with every name that was replaced"),
    ),
    "adopt-host": (
        Example("adopt-host gpu2 --dry-run", "what would be adopted"),
        Example("adopt-host gpu2 --tenant acme", "adopt the domains with GPUs for one tenant"),
    ),
}
