# SPDX-License-Identifier: Apache-2.0
"""All captures of the tree as one fleet: commands that read answer for each of them without an error."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import vgpuctl_lab as lab
from tests.e2e.operator import Operator
from tests.lab.simulated_fixtures import need_simulated
from tests.lab.test_captures import FILES
from vgpuctl.model.capture import SUFFIX
from vgpuctl_lab.simulated.layout import simulated_folder

_LAYOUT = """
vgpu:
  version: 1
  hugepages: {2MiB: 64}
"""


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator of the captured hosts, each with a small layout that it is not in."""
    need_simulated()
    home = tmp_path_factory.mktemp("captures")
    folder = lab.LabFolder(home / "lab")
    lab.simulated.replay(FILES, folder=folder)
    inventory = home / "inventory"
    (inventory / "group_vars").mkdir(parents=True)
    (inventory / "hosts.yml").write_text(simulated_folder(folder).inventory.read_text())
    (inventory / "group_vars/simulated_hosts.yml").write_text(_LAYOUT)
    yield Operator(home, inventory, f"sqlite:///{home}/store.db")
    lab.simulated.down(folder=folder)


ASKED_SINCE = ("/etc/vgpuctl/", "/boot/config-", "/etc/libvirt/qemu.conf")
"""Files that the agent did not look for when the captures of the tree were made."""


def _names() -> list[str]:
    return [Path(file).name.removesuffix(SUFFIX) for file in FILES]


def test_every_gpu_and_profile_is_listed(operator: Operator) -> None:
    assert {one["host"] for one in operator.json("list-gpus")} == set(_names())
    assert {one["host"] for one in operator.json("list-profiles")} >= {"lab-kernel", "simulated-vf-profile"}


def test_every_host_is_checked(operator: Operator) -> None:
    done = operator.run("check-hosts", "--no-boot")  # a capture has no files of the restore
    assert done.code == 1, "no host has the huge pages of the layout"
    assert [name for name in _names() if not re.search(rf"^{name}: [1-9][0-9]* difference", done.out, re.M)] == []
    lacking = [line for line in (done.out + done.err).splitlines() if "not in this capture" in line]
    assert [line for line in lacking if not any(one in line for one in ASKED_SINCE)] == []


def test_a_plan_is_made_and_its_steps_are_refused(operator: Operator) -> None:
    planned = operator.run("plan-hosts", "--limit", "lab-kernel")
    assert "have 64 huge pages of 2 MiB" in planned.out, planned.err
    refused = operator.run("apply-hosts", "--limit", "lab-kernel")
    assert refused.code != 0
    assert "takes no change" in refused.out + refused.err
