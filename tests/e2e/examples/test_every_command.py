# SPDX-License-Identifier: Apache-2.0
"""Every command has a scene in which its examples are run."""

from collections import Counter

from tests.e2e.examples import (
    test_disks,
    test_hosts,
    test_networks,
    test_operation,
    test_real_host,
    test_tenants,
    test_vms,
)
from vgpuctl.cli.contents import COMMANDS

_FILES = (test_disks, test_hosts, test_networks, test_operation, test_real_host, test_tenants, test_vms)


def test_each_command_has_one_scene() -> None:
    count = Counter(name for file in _FILES for name in file.SCENES)
    assert {name: count[name] for name in COMMANDS if count[name] != 1} == {}, "a scene for each command, in one file"
    assert count.keys() - COMMANDS.keys() == set()
