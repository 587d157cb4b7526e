# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands in this folder."""

from vgpuctl.cli.frame.examples import Example

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "cordon-host": (
        Example("cordon-host gpu1 --reason 'new firmware'", "no new VMs there"),
        Example("cordon-host gpu1 --gpu 0000:41:00.0 --reason 'fan is loud'", "one GPU"),
    ),
    "uncordon-host": (
        Example("uncordon-host gpu1", "it takes VMs again"),
        Example("uncordon-host gpu1 --gpu 0000:41:00.0", "one GPU"),
    ),
    "drain-host": (
        Example("drain-host gpu1 --reason 'new firmware' --dry-run", "what would happen to each VM"),
        Example("drain-host gpu1 --reason 'new firmware' --yes", "move or stop its VMs"),
    ),
    "evacuate-host": (
        Example("evacuate-host gpu2 --reason 'power supply' --fenced --dry-run", "what would start elsewhere"),
        Example("evacuate-host gpu2 --reason 'power supply' --fenced --yes", "it is off for certain"),
    ),
    "forget-host": (
        Example("forget-host gpu2 --reason scrapped --fenced --dry-run", "what the store would lose"),
        Example("forget-host gpu2 --reason scrapped --fenced --yes", "a host that never comes back"),
    ),
    "plan-upgrade": (
        Example("plan-upgrade --driver 580.105.06", "the order of hosts, and who is hurt"),
        Example("plan-upgrade --driver 590.48.01 --at-once 2 -l gpu1", "two hosts at a time"),
    ),
    "quarantine-gpu": (
        Example("quarantine-gpu gpu1 0000:41:00.0 --reason 'smells'", "no VM starts on it"),
        Example("quarantine-gpu gpu1 0000:41:00.0 --reason 'smells' --dry-run", "what would change"),
    ),
    "unquarantine-gpu": (
        Example("unquarantine-gpu gpu1 0000:41:00.0 --reason 'fan replaced'", "it takes VMs again"),
        Example("unquarantine-gpu gpu1 0000:41:00.0 --reason 'fan replaced' --dry-run", "what would change"),
    ),
    "gc": (
        Example("gc --dry-run", "leftovers that the store does not know"),
        Example("gc -l gpu1 --yes", "remove those of one host"),
    ),
}
