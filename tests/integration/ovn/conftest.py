# SPDX-License-Identifier: Apache-2.0
"""One OVN central for each test file of this folder, empty for each test."""

from collections.abc import Iterator

import pytest

from tests.ovn_fixture import LocalOvn, central
from vgpuctl.ovn.northbound import Northbound, NorthboundAddress

__all__ = ["central"]


@pytest.fixture
def northbound(central: LocalOvn) -> Iterator[Northbound]:
    with Northbound(NorthboundAddress(central.northbound)) as opened:
        yield opened
        opened.apply({owner: [] for owner in opened.owners()})
