# SPDX-License-Identifier: Apache-2.0
"""The switch between the hosts of a lab: started once, ended with the last host, and a clear word when it cannot be."""

from pathlib import Path

import pytest

from vgpuctl.errors import LabError
from vgpuctl_lab.folder import LabFolder
from vgpuctl_lab.network import address_of, end_switch, ensure_switch, mac_of


def test_the_switch_starts_once_and_leaves_nothing(tmp_path: Path) -> None:
    folder = LabFolder(tmp_path / "lab")
    folder.claim()
    ensure_switch(folder)
    record = (folder.path / "switch.json").read_text()
    ensure_switch(folder)
    assert (folder.path / "switch.json").read_text() == record
    assert (folder.path / "switch" / "ctl").is_socket()
    end_switch(folder)
    assert [path.name for path in folder.path.iterdir()] == ["lab-folder"]


def test_a_path_that_no_socket_can_have_is_named(tmp_path: Path) -> None:
    folder = LabFolder(tmp_path / ("long" * 30))
    folder.claim()
    with pytest.raises(LabError, match="too long"):
        ensure_switch(folder)


def test_every_host_has_an_address_of_its_own() -> None:
    numbers = range(1, 201)
    assert len({address_of(number) for number in numbers}) == len({mac_of(number) for number in numbers}) == 200
