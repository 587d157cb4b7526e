# SPDX-License-Identifier: Apache-2.0
"""One sshd for the whole folder; tests that need another configuration start their own."""

from collections.abc import Iterator

import pytest

from tests.sshd_fixture import LoopbackSshd, missing_for_sshd
from vgpuctl.hosts.connection import Connection


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    """A server where root logs in with `client_key`."""
    if missing := missing_for_sshd():
        pytest.skip(missing)
    folder = tmp_path_factory.mktemp("sshd")
    with LoopbackSshd(folder, options=["MaxSessions 10"], key_kinds=("ed25519", "ecdsa")) as server:
        yield server


@pytest.fixture
def connection(sshd: LoopbackSshd) -> Iterator[Connection]:
    """A connection to it that is not open yet."""
    with Connection(sshd.target(), settings=sshd.settings()) as opened:
        yield opened
