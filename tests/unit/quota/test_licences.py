# SPDX-License-Identifier: Apache-2.0
"""The choice of a licence pool."""

import pytest

from vgpuctl.model.licence import Edition, LicencePool
from vgpuctl.quota.licences import WantedSeat, choose_pool

VWS, VPC = Edition.VWS, Edition.VPC
A = LicencePool("a", VWS, 2, server="dls-1", has_token=True)
B = LicencePool("b", VWS, 4, server="dls-2", has_token=True)
P = LicencePool("p", VPC, 1)


@pytest.mark.parametrize(
    ("taken", "wanted", "last", "expected"),
    [
        ({}, WantedSeat((VWS,)), None, "b"),
        ({"b": 2}, WantedSeat((VWS,)), None, "a"),
        ({"b": 4}, WantedSeat((VWS,)), None, "a"),
        ({"a": 2, "b": 4}, WantedSeat((VWS,)), None, None),
        ({}, WantedSeat((VPC, VWS)), None, "p"),
        ({"p": 1}, WantedSeat((VPC, VWS)), None, "b"),
        ({}, WantedSeat((VWS,), pool="a"), None, "a"),
        ({"a": 3}, WantedSeat((VWS,), pool="a"), None, None),
        ({}, WantedSeat((VWS,), servers=("dls-1",)), None, "a"),
        ({}, WantedSeat((VWS,)), A, "a"),
        ({"a": 2}, WantedSeat((VWS,)), A, None),
    ],
)
def test_a_pool_is_chosen_by_edition_server_and_free_seats(
    taken: dict[str, int], wanted: WantedSeat, last: LicencePool | None, expected: str | None
) -> None:
    found = choose_pool([A, B, P], taken, wanted, last=last)
    assert (None if found is None else found.name) == expected


def test_a_guest_that_runs_is_counted_beyond_the_seats() -> None:
    found = choose_pool([A], {"a": 5}, WantedSeat((VWS,)), may_exceed=True)
    assert found is A
