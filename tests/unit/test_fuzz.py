# SPDX-License-Identifier: Apache-2.0
"""A small part of `make fuzz`, equal on every machine: every reader refuses damaged text by its own error."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.host_targets import host_target
from tests.proof.fuzz import READERS, case
from vgpuctl.errors import InventoryError
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.hosts.ssh_config import resolve
from vgpuctl.inventory import load_inventory
from vgpuctl.model.host_target import HostTarget


# One seed of "an answer of ssh -G" names a jump host for every jump host, which is refused.
@pytest.mark.parametrize("name", [name for name in READERS if name != "an answer of ssh -G"])
def test_a_seed_is_read_before_it_is_damaged(name: str, tmp_path: Path) -> None:
    for number, seed in enumerate(READERS[name].seeds):
        folder = tmp_path / str(number)
        folder.mkdir()
        READERS[name].read(seed, folder)


def test_damaged_text_of_every_kind_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.fuzz", "--cases", "800", "--seed", "2"],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_case_is_equal_for_equal_seed_and_number() -> None:
    assert {case(number, 1, None)[0] for number in range(len(READERS))} == set(READERS)
    assert case(5, 1, None) == case(5, 1, None) != case(5, 2, None)


@pytest.mark.parametrize("limit", ["~" + "(" * 5000, "rack1[" + "9" * 5000 + "]", "~a{99999999999999999999}"])
def test_a_pattern_that_no_expression_can_be_is_refused(limit: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts.ini"
    path.write_text("[rack1]\ngpu1\n")
    with pytest.raises(InventoryError):
        load_inventory([path]).select(limit)


@pytest.mark.parametrize("line", ["IdentityFile ~nobody-here/key", "IdentityFile %Q", "IdentityAgent ${NOT_SET_HERE}"])
def test_a_line_of_ssh_config_that_cannot_be_used_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(f"Host *\n  {line}\n")
    settings = SshSettings(ssh_config_file=path)
    with pytest.raises(InventoryError):
        resolve(HostTarget("gpu1", "gpu1"), settings)
    with pytest.raises(InventoryError):
        resolve(host_target("gpu1", "gpu1", common_args="-F " + "a" * 5000), settings)
