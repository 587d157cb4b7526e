# SPDX-License-Identifier: Apache-2.0
"""One OVN central for all tests of this folder, empty for each test."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ovn_fixture import LocalOvn, missing_for_ovn
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress


@pytest.fixture(scope="session")
def central() -> Iterator[LocalOvn]:
    missing = missing_for_ovn()
    if missing is not None:
        if os.environ.get("VGPUCTL_TESTS_MUST_RUN"):
            pytest.fail(missing)
        pytest.skip(missing)
    # A socket's name is limited to 108 characters, pytest's folders are long.
    folder = Path(tempfile.mkdtemp(prefix="vgpuctl-", dir="/tmp"))
    try:
        with LocalOvn(folder) as ovn:
            yield ovn
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def northbound(central: LocalOvn) -> Iterator[Northbound]:
    with Northbound(NorthboundAddress(central.northbound)) as opened:
        yield opened
        opened.apply({owner: [] for owner in opened.owners()})
