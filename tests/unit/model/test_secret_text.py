# SPDX-License-Identifier: Apache-2.0
"""Passwords of URLs are hidden, and nothing else of a text."""

import pytest

from vgpuctl.model.masking import without_passwords


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://vgpuctl:secret@db1:5432/vgpuctl", "postgresql://vgpuctl:***@db1:5432/vgpuctl"),
        ("postgresql://vgpuctl:se@cret@db1/vgpuctl", "postgresql://vgpuctl:***@db1/vgpuctl"),
        ("postgresql://db1/vgpuctl?user=a&password=secret&sslmode=require",
         "postgresql://db1/vgpuctl?user=a&password=***&sslmode=require"),
        ("url=postgresql://db1/v?sslPassword=secret host=gpu1", "url=postgresql://db1/v?sslPassword=*** host=gpu1"),
        ("http://u:one@a/x and http://u:two@b/y", "http://u:***@a/x and http://u:***@b/y"),
        ("ssh://operator@gpu1:22 and nobody@example.com", "ssh://operator@gpu1:22 and nobody@example.com"),
        ("sqlite:////var/lib/vgpuctl/store.db", "sqlite:////var/lib/vgpuctl/store.db"),
    ],
)  # fmt: skip
def test_passwords_alone_are_hidden(text: str, shown: str) -> None:
    assert without_passwords(text) == shown
