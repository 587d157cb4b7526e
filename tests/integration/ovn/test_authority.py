# SPDX-License-Identifier: Apache-2.0
"""Our own authority, and a real OVN central behind it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ovn_fixture import LocalOvn, missing_for_ovn
from vgpuctl.errors import OvnUnreachable, StateError, UsageError
from vgpuctl.ovn.authority import Authority
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
from vgpuctl.ovn.rows import Row


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "authority")
    made.create()
    return made


@pytest.fixture
def short_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="vgpuctl-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


def test_an_identity_is_made_once_and_belongs_to_its_owner_alone(authority: Authority) -> None:
    assert not authority.create()
    first, again = authority.issue("gpu1"), authority.issue("gpu1")
    assert first == again and first != authority.issue("gpu2")
    assert "PRIVATE" not in repr(first)
    assert {path.stat().st_mode & 0o777 for path in authority.folder.iterdir()} == {0o600}
    for name in ("authority", "../x", ""):
        with pytest.raises(UsageError):
            authority.issue(name)


def test_an_identity_of_another_authority_is_made_anew(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    other.create()
    other.issue("gpu1")
    for ending in ("key", "pem"):
        shutil.copy(other.folder / f"gpu1.{ending}", authority.folder / f"gpu1.{ending}")
    assert authority.issue("gpu1").key != (other.folder / "gpu1.key").read_text()


def test_a_folder_that_others_can_read_is_no_authority_s(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(StateError, match="open to other users"):
        Authority(tmp_path / "open").create()
    with pytest.raises(StateError, match="there is no authority"):
        Authority(tmp_path / "none").issue("gpu1")


@pytest.mark.skipif(missing_for_ovn() is not None, reason="ovn-central is not installed")
def test_the_database_takes_our_certificate_and_nobody_else_s(
    authority: Authority, short_folder: Path, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    other.create()
    for one, name in ((authority, "central"), (authority, "vgpuctl"), (other, "vgpuctl")):
        one.issue(name)
    files = authority.files("central")
    with LocalOvn(short_folder, (files.key, files.certificate, files.authority)) as central:
        remote = f"ssl:127.0.0.1:{central.ports['nb']}"
        own, foreign = authority.files("vgpuctl"), other.files("vgpuctl")
        with Northbound(NorthboundAddress(remote, own.key, own.certificate, own.authority)) as northbound:
            northbound.apply({"tenant/acme": [Row("Logical_Switch", "switch/1", {"name": "one"})]})
        assert central.nbctl("--bare", "--columns=name", "list", "Logical_Switch").split() == ["one"]
        address = NorthboundAddress(remote, foreign.key, foreign.certificate, own.authority)
        with pytest.raises(OvnUnreachable), Northbound(address, timeout_s=3):
            pass
