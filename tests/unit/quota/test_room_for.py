# SPDX-License-Identifier: Apache-2.0
"""How many more VMs of one kind the quotas of a tenant allow."""

import pytest

from vgpuctl.quota.limits import Quota, room_for

ASKED = {"vms": 1, "vcpus": 4, "memory": 8192, "shares:A40-8Q": 1}


@pytest.mark.parametrize(
    ("quotas", "used", "room"),
    [
        ([], {}, {}),
        ([Quota("vms", 3)], {"vms": 1}, {"vms": 2}),
        ([Quota("vms", 3)], {"vms": 40}, {"vms": 0}),
        ([Quota("vcpus", 10)], {"vcpus": 1}, {"vcpus": 2}),
        ([Quota("vms", 3), Quota("memory", 8192)], {}, {"vms": 3, "memory": 1}),
        ([Quota("shares:A40-8Q", 4)], {"shares:A40-8Q": 4}, {"shares:A40-8Q": 0}),
        ([Quota("shares:L40S-48Q", 0)], {}, {}),
        ([Quota("cards", 0)], {}, {}),
        ([Quota("vms", None, 3)], {"vms": 9}, {}),
        ([Quota("framebuffer", 100)], {}, {}),
    ],
)
def test_each_quota_that_limits_them_says_how_many(
    quotas: list[Quota], used: dict[str, int], room: dict[str, int]
) -> None:
    assert room_for(quotas, used, ASKED) == room


def test_gpu_hours_that_are_used_up_allow_none() -> None:
    assert room_for([Quota("gpu-hours", 10)], {"gpu-hours": 10}, {"gpu-hours": 0}) == {"gpu-hours": 0}
    assert room_for([Quota("gpu-hours", 10)], {"gpu-hours": 4}, {"gpu-hours": 0}) == {}
    assert room_for([Quota("gpu-hours", 10)], {"gpu-hours": 4}, {"gpu-hours": 3}) == {"gpu-hours": 2}
