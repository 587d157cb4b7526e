# SPDX-License-Identifier: Apache-2.0
"""Choice of the agent's Python: the distribution's own, else the newest if the own one is too old or gone."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.sshd_fixture import LoopbackSshd, missing_for_accounts
from vgpuctl.errors import PythonMissing
from vgpuctl.hosts.agent_client import AgentClient
from vgpuctl.hosts.connection import Connection
from vgpuctl.hosts.python_check import SYSTEM_PYTHON

REASON = missing_for_accounts()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")
# EL 8 and SLES 15: `python3` is 3.6, and answers so to the start of the agent and to the question for its version.
OLD = """\
#!/bin/sh
for word in "$@"; do
  case $word in
    *vgpuctl-agent*) echo "vgpuctl-agent old 3.6"; exit 0;;
    *version_info*) printf 3.6; exit 0;;
  esac
done
"""
OS_RELEASE = 'NAME="Rocky Linux"\nVERSION_ID="8.10"\nID="rocky"\nID_LIKE="rhel centos fedora"\n'


class OldHost:
    """A host whose own Python is 3.6, and whose PATH has what a test puts in `programs`."""

    def __init__(self, folder: Path, *, own: str | None = OLD) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir()
        release = folder / "os-release"
        release.write_text(OS_RELEASE)
        mounts = {Path("/etc/os-release"): release}
        self.put("own", own or "")
        mounts[Path(SYSTEM_PYTHON)] = self.programs / "own"
        if own is None:
            (self.programs / "own").chmod(0o644)
        environment = {"PATH": str(self.programs)}
        for name in ("cat", "sleep"):
            (self.programs / name).symlink_to(f"/bin/{name}")
        self.sshd = LoopbackSshd(folder / "sshd", environment=environment, mounts=mounts)

    def put(self, name: str, text: str) -> Path:
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def put_good(self, name: str) -> Path:
        """Put a Python that is new enough: the one that runs the tests, under a path of its own."""
        real = self.programs / "real"
        if not real.exists():
            shutil.copy(os.path.realpath(sys.executable), real)
        return self.put(name, f'#!/bin/sh\nexec {real} "$@"\n')

    def connection(self, **changes: object) -> Connection:
        return Connection(self.sshd.target(**changes), settings=self.sshd.settings())


def test_the_newest_is_taken_where_the_own_one_is_too_old(tmp_path: Path) -> None:
    host = OldHost(tmp_path)
    host.put_good("python3.9")
    newest = host.put_good("python3.12")
    host.put("python3.13", "#!/bin/sh\nexit 1\n")
    with host.sshd, host.connection() as connection, AgentClient(connection) as client:
        assert client.facts().kernel
        assert client.python == str(newest)
        client.close()
        assert client.facts().kernel
        # Three for the first start: the own one, the search, the chosen one.
        assert connection.statistics.read().channels == 4


def test_the_newest_is_taken_where_the_own_one_is_gone(tmp_path: Path) -> None:
    host = OldHost(tmp_path, own=None)
    chosen = host.put_good("python3.11")
    with host.sshd, host.connection() as connection, AgentClient(connection) as client:
        assert client.facts().kernel
        assert client.python == str(chosen)


def test_none_that_is_good_is_refused_with_the_hosts_package(tmp_path: Path) -> None:
    host = OldHost(tmp_path)
    lacking = 'case "$*" in *zlib*) exit 1;; *) printf 3.11;; esac'
    host.put("python3.11", f"#!/bin/sh\n{lacking}\n")
    with (
        host.sshd,
        host.connection() as connection,
        AgentClient(connection) as client,
        pytest.raises(PythonMissing, match=r"no Python 3\.9 or newer: /usr/bin/python3 is 3\.6") as caught,
    ):
        client.facts()
    assert f"{host.programs}/python3.11 is 3.11 without its modules" in caught.value.message
    assert "dnf install -y python3.11" in str(caught.value.hint)


def test_a_pinned_one_is_kept(tmp_path: Path) -> None:
    host = OldHost(tmp_path)
    host.put_good("python3.12")
    pinned = host.put_good("pinned")
    with host.sshd:
        with host.connection(python_interpreter=str(pinned)) as connection, AgentClient(connection) as client:
            assert client.facts().kernel
            assert client.python == str(pinned)
        with (
            host.connection(python_interpreter=SYSTEM_PYTHON) as connection,
            AgentClient(connection) as client,
            pytest.raises(PythonMissing, match=r"/usr/bin/python3 is Python 3\.6, which is older than 3\.9") as caught,
        ):
            client.facts()
        assert "`auto`" in str(caught.value.hint)


def test_a_good_one_of_the_hosts_own_costs_no_search(tmp_path: Path) -> None:
    with (
        LoopbackSshd(tmp_path / "sshd") as sshd,
        Connection(sshd.target(), settings=sshd.settings()) as connection,
        AgentClient(connection) as client,
    ):
        assert client.facts().kernel
        assert client.python == SYSTEM_PYTHON
        assert connection.statistics.read().channels == 1
