# SPDX-License-Identifier: Apache-2.0
"""Editions of licences follow from the vGPU type."""

import pytest

from vgpuctl import catalog
from vgpuctl.catalog.licence_editions import editions_for, editions_of_type
from vgpuctl.model.licence import Edition

VWS, VPC, VAPPS, VCS = Edition.VWS, Edition.VPC, Edition.VAPPS, Edition.VCS
_PRODUCTS = {"vWS": VWS, "vPC": VPC, "vApps": VAPPS, "NVAIE": VCS}


def test_every_type_of_the_catalogue_has_the_licences_that_the_catalogue_says() -> None:
    seen = 0
    for board in catalog.boards().values():
        for one in catalog.types_of(board):
            assert editions_of_type(one.name) == tuple(_PRODUCTS[product] for product in one.license), one.name
            seen += 1
    assert seen > 1000


@pytest.mark.parametrize(
    ("profiles", "asked", "has_card", "expected"),
    [
        (["A40-8Q"], None, False, (VWS,)),
        (["A40-2B"], None, False, (VPC, VWS)),
        (["A40-8A"], None, False, (VAPPS,)),
        (["A100-1-5C"], None, False, (VCS,)),
        (["A100-1-5C"], VWS, False, (VWS,)),
        (["A40-8Q"], VPC, False, None),
        (["A40-8Q", "A40-8Q"], None, False, (VWS,)),
        (["A40-8Q", "A40-2B"], None, False, (VWS,)),
        (["A40-8C", "A40-8Q"], None, False, (VWS,)),
        (["A40-8A", "A40-8Q"], None, False, None),
        ([], None, True, ()),
        ([], VCS, True, (VCS,)),
        ([], VPC, True, None),
        ([], VWS, False, None),
        (["i915-GVTg_V5_4"], None, False, ()),
    ],
)
def test_one_licence_serves_all_gpus_of_a_vm(
    profiles: list[str], asked: Edition | None, has_card: bool, expected: tuple[Edition, ...] | None
) -> None:
    assert editions_for(profiles, asked, has_card=has_card) == expected
