# SPDX-License-Identifier: Apache-2.0
"""One emulated host for the session, and an operator with a fresh store per test file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.operator import Operator
from tests.e2e.witness import Witness
from tests.lab_fixtures import kernel_host, lab_folder  # noqa: F401 (fixtures)


@pytest.fixture(scope="session")
def witness(kernel_host: Any) -> Witness:  # noqa: F811
    """Ask the host without any of our code."""
    return Witness(kernel_host)


@pytest.fixture(scope="module")
def operator(kernel_host: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:  # noqa: F811
    """An operator whose inventory is the lab's and whose store is new; the VFs are enabled as on a set-up host."""
    code, out, err = kernel_host.run("/usr/lib/nvidia/sriov-manage -e ALL", timeout_s=240)
    assert code == 0, out + err
    home: Path = tmp_path_factory.mktemp("operator")
    yield Operator(home, Path(kernel_host.inventory), f"sqlite:///{home}/store.db")
