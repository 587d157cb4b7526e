# SPDX-License-Identifier: Apache-2.0
"""Differences of specifications in words."""

from vgpuctl.model.vm import CloudInit
from vgpuctl.usecases.support.differences import difference


def test_differences_are_words_and_never_contents() -> None:
    assert list(difference("autostart", False, True)) == ["autostart: no there, yes wanted"]
    assert list(difference("gpus", ("A40-8Q",), ())) == ["gpus: A40-8Q there, none wanted"]
    assert list(difference("memory_mib", 5, 5)) == []
    one, other = CloudInit(user_data="password: a", hostname="x"), CloudInit(user_data="password: b", hostname="y")
    assert list(difference("cloud_init", one, other)) == [
        "cloud_init.user_data: differs",
        "cloud_init.hostname: x there, y wanted",
    ]
