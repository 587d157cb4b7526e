# SPDX-License-Identifier: Apache-2.0
"""`~USER` in paths of ssh_config and of the inventory, with names that no user can have."""

import pytest

from vgpuctl.agent.host import Host
from vgpuctl.agent.wire.envelope import Problem
from vgpuctl.errors import InventoryError
from vgpuctl.hosts.common_args import in_home
from vgpuctl.hosts.ssh_tokens import Tokens

NAMES = ("nobody-here", "a\0b", "a\udc80b")


@pytest.mark.parametrize("name", NAMES)
def test_a_home_of_nobody_is_refused_by_its_path(name: str) -> None:
    with pytest.raises(InventoryError, match="names a user who does not exist"):
        Tokens("gpu1", {}).in_home(f"~{name}/key")
    with pytest.raises(InventoryError, match="it is of the SSH configuration"):
        in_home(f"~{name}/key")


@pytest.mark.parametrize("name", NAMES)
def test_an_agent_refuses_to_give_a_file_to_nobody(name: str) -> None:
    with pytest.raises(Problem, match="this host has no user"):
        Host().user_id(name)
