# SPDX-License-Identifier: Apache-2.0
"""Examples of the commands of `vgpuctl lab`."""

import click

from vgpuctl.cli.frame.examples import Example, examples_text

EXAMPLES: dict[str, tuple[Example, ...]] = {
    "up": (
        Example("lab up --simulated 3", "three light hosts, named sim-001 and so on"),
        Example("lab up --simulated 5 --mix a40:2,t4*2+flex-170:1", "more of them, with several boards"),
    ),
    "status": (
        Example("lab status", "the hosts of this lab"),
        Example("lab status -o json", "for a program"),
    ),
    "fault": (
        Example("lab fault sim-001 power-off", "a host without power"),
        Example("lab fault sim-001 power-off --clear", "and with power again"),
    ),
    "play": (
        Example("lab play sim-001 thermal-throttle", "readings of a GPU that is too hot"),
        Example("lab play sim-001 --stop", "the usual readings again"),
    ),
    "reboot": (
        Example("lab reboot sim-001", "its VFs and vGPUs are gone then"),
        Example("lab reboot sim-002", "another host"),
    ),
    "log": (
        Example("lab log sim-001", "the kernel's log of a simulated host"),
        Example("lab log sim-002", "of another one"),
    ),
    "shell": (
        Example("lab shell sim-001 -- id", "one command as root"),
        Example("lab shell sim-002 -- python3 --version", "another command"),
    ),
    "licence-token": (
        Example("lab licence-token dls.example --to client.tok", "for one server"),
        Example("lab licence-token 192.0.2.5 192.0.2.6 --to both.tok", "for two servers"),
    ),
    "tutorial": (
        Example("lab tutorial", "twelve hosts, and files in tutorial/"),
        Example("lab tutorial rehearsal", "the files in another folder"),
    ),
    "down": (
        Example("lab down sim-003", "one host"),
        Example("lab down", "all of them"),
    ),
}


def show_examples(group: click.Group) -> None:
    """Let the help page of each command of `vgpuctl lab` end with its examples."""
    for name, command in group.commands.items():
        command.epilog = command.epilog or examples_text(EXAMPLES.get(name, ()))
