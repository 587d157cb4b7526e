# SPDX-License-Identifier: Apache-2.0
"""Texts that users may write after --gpu, and sizes."""

import pytest

from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.errors import UsageError
from vgpuctl.model.compute import ComputeKind
from vgpuctl.model.gpu_request import GpuRequest, Monitors, parse_gpu_request
from vgpuctl.model.units import format_mib, parse_mib
from vgpuctl.model.vm import check_name

GUARANTEED = ComputeKind.GUARANTEED


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A40-8Q", GpuRequest("A40-8Q", profile="A40-8Q")),
        ("2*L40S-48Q", GpuRequest("2*L40S-48Q", 2, profile="L40S-48Q")),
        ("L40S-48Q*2", GpuRequest("L40S-48Q*2", 2, profile="L40S-48Q")),
        ("passthrough", GpuRequest("passthrough", sharing=Sharing.PASSTHROUGH)),
        ("passthrough:H100*4", GpuRequest("passthrough:H100*4", 4, sharing=Sharing.PASSTHROUGH, board="H100")),
        ("vf:flex-170", GpuRequest("vf:flex-170", sharing=Sharing.VF, board="flex-170")),
        (
            "memory>=16GiB,series=Q",
            GpuRequest("memory>=16GiB,series=Q", minimum_memory_mib=16384, series="Q"),
        ),
        ("memory=8GiB", GpuRequest("memory=8GiB", exact_memory_mib=8192)),
        ("2*memory>=48GiB", GpuRequest("2*memory>=48GiB", 2, minimum_memory_mib=49152)),
        ("monitors=3x2560x1440", GpuRequest("monitors=3x2560x1440", monitors=Monitors(3, 2560, 1440))),
        ("A40-8Q,compute>=15%", GpuRequest("A40-8Q,compute>=15%", profile="A40-8Q", minimum_compute_percent=15.0)),
        (
            "passthrough*2,compute=guaranteed",
            GpuRequest("passthrough*2,compute=guaranteed", 2, sharing=Sharing.PASSTHROUGH, compute=GUARANTEED),
        ),
        (" memory>=16GiB,series=Q*3 ", GpuRequest("memory>=16GiB,series=Q*3", 3, minimum_memory_mib=16384, series="Q")),
    ],
)
def test_every_form_is_understood(text: str, wanted: GpuRequest) -> None:
    assert parse_gpu_request(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        *("", "*", "0*A40-8Q", "17*A40-8Q", "2*A40*2", "a:", ":b", "A40;reboot", "memory>16", "series=X"),
        *("0*memory>=8GiB", "17*memory>=8GiB", "2*memory>=8GiB*2", "2*", "*2", "2*=", "memory>=2*8GiB"),
        *("monitors=3", "monitors=3x2560", "monitors>=3x2560x1440", "monitors=axbxc", "a:b:c", "passthrough:"),
        *("A40-8Q,compute>=10%,compute>=20%", "compute=guaranteed,compute=at-least", "A40-8Q,", "A40-8Q,memory>=8GiB"),
        *("A40-8Q,compute=best-effort,compute>=5%", "compute>=5%,compute=best-effort", "A40-8Q,compute>=0%"),
        *("A40-8Q,compute>=101%", "A40-8Q,compute>=30", "A40-8Q,compute>=0.3", "A40-8Q,compute>=30 %", "compute=most"),
        "9" * 50 + "*memory>=8GiB",
    ],
)
def test_anything_else_is_refused_with_the_value_and_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_gpu_request(text)
    assert repr(text) in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("text", ["memory>=48GiB", "2*memory>=48GiB", "memory>=48GiB*2"])
def test_the_request_for_one_share_is_without_the_count(text: str) -> None:
    assert parse_gpu_request(text).text_of_one == "memory>=48GiB"


@pytest.mark.parametrize(("text", "mib"), [("2GiB", 2048), ("1.5G", 1536), ("1TB", 953674), ("64 MiB", 64)])
def test_sizes_are_read_in_mib(text: str, mib: int) -> None:
    assert parse_mib(text, what="--memory") == mib


@pytest.mark.parametrize("text", ["0", "-1", "", "many", "1XB", "0.5MiB", "1e9", "8", "512", "1.5"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--memory"):
        parse_mib(text, what="--memory")


def test_sizes_are_written_as_people_read_them() -> None:
    assert [format_mib(size) for size in (512, 2048, 1536)] == ["512 MiB", "2 GiB", "1.5 GiB"]


@pytest.mark.parametrize("name", ["<b>", 'a"b', "a\nb", "x" * 300, "", ".a", "a/b", "a b", "-a"])
def test_names_that_xml_files_or_shells_could_trip_over_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_name(name, what="VM name")
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 150


@pytest.mark.parametrize("text", ["none", "NONE", " none "])
def test_none_is_told_not_to_be_a_gpu(text: str) -> None:
    with pytest.raises(UsageError, match="is no GPU") as refused:
        parse_gpu_request(text)
    assert "stands alone" in (refused.value.hint or "")
