# SPDX-License-Identifier: Apache-2.0
"""Our own authority, and a real OVN central behind it."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.ovn.chassis import Chassis, missing_for_controller, wait_for
from tests.ovn_fixture import LocalOvn, missing_for_ovn
from vgpuctl.errors import FileNotTrusted, OvnUnreachable, StateError, UsageError
from vgpuctl.ovn.authority import Authority
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress
from vgpuctl.ovn.rows import Row
from vgpuctl.ovn.southbound import GatewaysSeen, Southbound

needs_ovn = pytest.mark.skipif(missing_for_ovn() is not None, reason="ovn-central is not installed")


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
    for name in ("authority", "operators", "../x", ""):
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
    with pytest.raises(FileNotTrusted, match="may be read by every user"):
        Authority(tmp_path / "open").create()
    with pytest.raises(StateError, match="there is no authority"):
        Authority(tmp_path / "none").issue("gpu1")


@pytest.fixture
def guarded(authority: Authority, short_folder: Path) -> Iterator[LocalOvn]:
    """A central that listens as the guide says; two hosts and an operator have certificates."""
    for name in ("central", "vgpuctl", "gpu1", "gpu2"):
        authority.issue(name)
    with LocalOvn(short_folder, authority) as central:
        yield central


@needs_ovn
def test_the_northbound_database_takes_the_operator_s_certificate_and_no_host_s(
    authority: Authority, guarded: LocalOvn, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    other.create()
    other.issue("vgpuctl")
    remote = f"ssl:127.0.0.1:{guarded.ports['nb']}"
    own = authority.files("vgpuctl")
    with Northbound(NorthboundAddress(remote, own.key, own.certificate, own.authority)) as northbound:
        northbound.apply({"tenant/acme": [Row("Logical_Switch", "switch/1", {"name": "one"})]})
    assert guarded.nbctl("--bare", "--columns=name", "list", "Logical_Switch").split() == ["one"]
    for foreign in (other.files("vgpuctl"), authority.files("gpu1")):
        address = NorthboundAddress(remote, foreign.key, foreign.certificate, own.authority)
        with pytest.raises(OvnUnreachable), Northbound(address, timeout_s=3):
            pass


@needs_ovn
def test_a_host_may_write_its_own_chassis_and_no_other_s(authority: Authority, guarded: LocalOvn) -> None:
    guarded.sbctl("chassis-add", "gpu2", "geneve", "127.0.0.2")
    guarded.nbctl("ls-add", "front")

    def as_host(name: str, *command: str) -> str:
        """The southbound database's answer to a host's certificate."""
        files = authority.files(name)
        identity = (f"--private-key={files.key}", f"--certificate={files.certificate}", f"--ca-cert={files.authority}")
        remote = f"--db=ssl:127.0.0.1:{guarded.ports['sb']}"
        done = subprocess.run(
            ["ovn-sbctl", *identity, remote, "--timeout=60", *command], capture_output=True, text=True, check=False
        )
        return "" if done.returncode == 0 else done.stderr

    assert as_host("gpu1", "chassis-add", "gpu1", "geneve", "127.0.0.1") == ""
    for command in (
        ("chassis-del", "gpu2"),
        ("set", "Chassis", "gpu2", "external_ids:x=y"),
        ("chassis-add", "gpu3", "geneve", "127.0.0.3"),
        ("--all", "destroy", "Datapath_Binding"),
        ("set-connection", "ptcp:0:127.0.0.1"),
    ):
        assert "RBAC rules" in as_host("gpu1", *command), command
    assert as_host("gpu2", "chassis-del", "gpu2") == ""
    assert guarded.sbctl("--bare", "--columns=name", "list", "Chassis").split() == ["gpu1"]
    # As it comes back after a reboot: at the same port, with the same role.
    guarded.stop()
    guarded.start()
    assert "RBAC rules" in as_host("gpu2", "chassis-del", "gpu1")


@needs_ovn
def test_the_southbound_database_is_read_with_a_certificate_of_the_hosts_authority(
    authority: Authority, guarded: LocalOvn
) -> None:
    guarded.sbctl("chassis-add", "gpu2", "geneve", "127.0.0.2")
    authority.issue("southbound")
    remote = f"ssl:127.0.0.1:{guarded.ports['sb']}"
    own, operators = authority.files("southbound"), authority.files("vgpuctl")
    address = NorthboundAddress(remote, own.key, own.certificate, own.authority)
    assert Southbound(address).gateways() == GatewaysSeen(frozenset(["gpu2"]), {})
    for key, certificate, believed in (
        (operators.key, operators.certificate, own.authority),
        (own.key, own.certificate, authority.operators),
    ):
        with pytest.raises(OvnUnreachable, match="does not answer"):
            Southbound(NorthboundAddress(remote, key, certificate, believed), timeout_s=5).gateways()


@needs_ovn
@pytest.mark.skipif(missing_for_controller() is not None, reason="ovn-host is not installed")
def test_ovn_controller_does_its_work_within_its_role(authority: Authority, guarded: LocalOvn) -> None:
    guarded.nbctl("ls-add", "front", "--", "lsp-add", "front", "port-1")
    files = authority.files("gpu1")
    with Chassis(guarded.folder / "gpu1", "gpu1", f"ssl:127.0.0.1:{guarded.ports['sb']}", files) as chassis:
        chassis.plug("port-1")
        guarded.nbctl("--timeout=55", "--wait=hv", "sync")
        wait_for(lambda: guarded.nbctl("lsp-get-up", "port-1").strip() == "up", "the port is up")
    assert "RBAC rules" not in (guarded.folder / "sb.log").read_text()
