# SPDX-License-Identifier: Apache-2.0
"""Two models can have types of one name: request, placement, charge and quota tell them apart."""

from dataclasses import replace

import pytest

from tests.unit.emulated_gpu import EmulatedGpu
from tests.unit.fleet_factory import host
from vgpuctl import catalog
from vgpuctl.catalog import read_gpu_request
from vgpuctl.errors import NoCapacity
from vgpuctl.model.lease import Share
from vgpuctl.model.placement import HostCapacity
from vgpuctl.model.vm import VmRequest
from vgpuctl.quota import charge
from vgpuctl.quota.limits import Quota, excesses
from vgpuctl.quota.resources import parse_assignment
from vgpuctl.scheduler.place import place

PAIRS = [
    ("DC-16Q", "nvidia-rtx-pro-6000-blackwell-server", "nvidia-rtx-pro-4500-blackwell-server"),
    ("A30-6C", "nvidia-a30", "nvidia-a30x"),
    ("A100D-8C", "nvidia-a100-pcie-80gb", "nvidia-a100x"),
]


def _host(key: str) -> HostCapacity:
    return host(key.removeprefix("nvidia-"), EmulatedGpu(catalog.board(key), "0000:c1:00.0", "vf-profile", vf_count=16))


def _request(text: str) -> VmRequest:
    return VmRequest("web-1", "acme", (read_gpu_request(text),))


@pytest.mark.parametrize(("name", "first", "second"), PAIRS, ids=lambda one: one)
def test_a_type_of_two_models_can_be_meant_of_one(name: str, first: str, second: str) -> None:
    hosts = [_host(first), _host(second)]
    for key in (first, second):
        word = key.removeprefix("nvidia-")
        placement = place(_request(f"{name.lower()}:{word}"), hosts, [])
        assert placement.host == word
        assert placement.shares[0].board == word
        assert placement.shares[0].profile == name
    assert place(_request(name), hosts, []).shares[0].board is not None
    with pytest.raises(NoCapacity) as refused:
        place(_request(f"{name}:{second}"), hosts[:1], [])
    assert any("wrong-board" in line for line in refused.value.context)


@pytest.mark.parametrize(("name", "first", "second"), PAIRS, ids=lambda one: one)
def test_a_quota_on_one_model_leaves_the_other_alone(name: str, first: str, second: str) -> None:
    words = [key.removeprefix("nvidia-") for key in (first, second)]
    shares: list[Share] = [place(_request(name), [_host(key)], []).shares[0] for key in (first, second)]
    assert {one: amount for one, amount in charge.of_shares(shares).items() if one.startswith("shares:")} == {
        f"shares:{name}": 2,
        **{f"shares:{name}:{word}": 1 for word in words},
    }
    resource, most = parse_assignment(f"shares:{name.lower()}:{second}=1", what="quota")
    quotas = [Quota(resource, most)]
    used = charge.of_shares(shares[1:])
    assert not excesses(quotas, used, charge.of_shares(shares[:1]))
    assert [one.resource for one in excesses(quotas, used, charge.of_shares(shares[1:]))] == [
        f"shares:{name}:{words[1]}"
    ]
    assert excesses(quotas, used, charge.of_request(_request(f"{name}:{second}")))
    assert not excesses(quotas, used, charge.of_request(_request(name)))


def test_a_share_of_before_the_model_was_recorded_counts_for_each_that_it_can_be_of() -> None:
    share = place(_request("DC-16Q"), [_host(PAIRS[0][1])], []).shares[0]
    counted = charge.of_shares([replace(share, board=None)])
    assert counted["shares:DC-16Q:rtx-pro-4500-blackwell-server"] == 1
    assert counted["shares:DC-16Q:rtx-pro-6000-blackwell-server"] == 1


def test_a_type_of_one_model_has_one_name_and_one_count() -> None:
    share = place(_request("dc-24q"), [_host(PAIRS[0][1])], []).shares[0]
    assert share.board is None
    assert [one for one in charge.of_shares([share]) if one.startswith("shares:")] == ["shares:DC-24Q"]
