# SPDX-License-Identifier: Apache-2.0
"""One normal form of the names of vGPU types."""

import pytest

from vgpuctl import catalog
from vgpuctl.catalog import ProfileName, board_beside, boards_beside, normal_gpu, profile_name, read_gpu_request
from vgpuctl.errors import UsageError
from vgpuctl.model.gpu_request import parse_gpu_request

_6000, _4500 = "rtx-pro-6000-blackwell-server", "rtx-pro-4500-blackwell-server"


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("A40-24q", "A40-24Q"),
        (" nvidia  a40-24q ", "A40-24Q"),
        ("GRID T4-16Q", "T4-16Q"),
        ("NVIDIA A100-1-5CME", "A100-1-5CME"),
        ("RTX Pro 6000 Blackwell DC-24Q", "DC-24Q"),
        ("NVIDIA RTX Pro 6000 Blackwell DC-24Q", "DC-24Q"),
        ("NVIDIA RTX 6000D-84Q", "6000D-84Q"),
        ("l40s-48Q", "L40S-48Q"),
        ("A40-8Q:A40", "A40-8Q"),
        ("DC-16Q", "DC-16Q"),
        ("RTX Pro 6000 Blackwell DC-16Q", f"DC-16Q:{_6000}"),
        ("rtx pro 4500 blackwell dc-16q", f"DC-16Q:{_4500}"),
        ("dc-16q:RTX PRO 4500", f"DC-16Q:{_4500}"),
        ("A30-6C:a30x", "A30-6C:a30x"),
        ("A30-6c:NVIDIA A30", "A30-6C:a30"),
        ("A100D-8C:A100X", "A100D-8C:a100x"),
        ("NoSuch-1Q", "NoSuch-1Q"),
        ("NVIDIA RTX Pro 9000 Later XY-8Q", "XY-8Q"),
        ("i915-GVTg_V5_4", "i915-GVTg_V5_4"),
        ("RTX Pro 4500 Blackwell DC-96Q", "RTX Pro 4500 Blackwell DC-96Q"),
    ],
)
def test_every_way_to_write_a_type_has_one_normal_form(written: str, normal: str) -> None:
    assert str(profile_name(written)) == normal
    assert str(profile_name(normal)) == normal


def test_every_type_of_the_catalogue_is_read_as_hosts_print_it() -> None:
    for board in catalog.boards().values():
        for one in catalog.types_of(board):
            wanted = ProfileName(one.name)
            assert profile_name(one.name) == profile_name(one.name.lower()) == wanted
            assert profile_name(f"NVIDIA {one.name}") == wanted
            assert profile_name(one.full_name or one.name).name == one.name
            beside = board_beside(one.name, board)
            assert profile_name(f"{one.name}:{board.key}") == ProfileName(one.name, beside)
            assert (beside is None) == (not boards_beside(one.name))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("A40-8Q:H100", "A40-8Q is a type of NVIDIA A40"),
        ("DC-96Q:RTX PRO 4500", "NVIDIA RTX PRO 6000"),
        ("DC-16Q:", ""),
    ],
)
def test_a_model_without_the_type_is_refused(written: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        profile_name(written)
    assert said in str(refused.value.hint)


@pytest.mark.parametrize(
    ("written", "text", "profile", "board"),
    [
        ("2*a40-8q", "2*A40-8Q", "A40-8Q", None),
        ("a40-8q*2", "A40-8Q*2", "A40-8Q", None),
        ("RTX Pro 6000 Blackwell DC-24Q", "DC-24Q", "DC-24Q", None),
        ("3*dc-16q:rtx pro 4500", f"3*DC-16Q:{_4500}", "DC-16Q", _4500),
        ("passthrough:h100", "passthrough:h100", None, "h100"),
        ("memory>=16GiB", "memory>=16GiB", None, None),
    ],
)
def test_a_request_has_the_name_in_normal_form(written: str, text: str, profile: str | None, board: str | None) -> None:
    read = read_gpu_request(written)
    assert (read.text, read.profile, read.board) == (text, profile, board)
    assert normal_gpu(read) is read
    assert read_gpu_request(read.text) == read == normal_gpu(parse_gpu_request(written))
