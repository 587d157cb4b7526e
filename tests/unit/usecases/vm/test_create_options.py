# SPDX-License-Identifier: Apache-2.0
"""Options of create-vm that exclude each other are refused before anything is done."""

from typing import Any

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.usecases.vm.create_vm import CreateOptions


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"is_gang": True, "reservation": "training"}, "--gang and --reservation"),
        ({"may_queue": True, "reservation": "training"}, "--queue and --reservation"),
        ({"may_queue": True, "waits_for_console": True}, "--queue and --wait"),
    ],
)
def test_options_that_exclude_each_other_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        CreateOptions(**given)


def test_a_gang_may_wait_in_the_queue() -> None:
    assert CreateOptions(is_gang=True, may_queue=True).may_queue
