# SPDX-License-Identifier: Apache-2.0
"""Pictures as hosts send them: PNG stays, PPM becomes PNG, and what is neither is refused."""

from typing import Any

import pytest

from tests.png_reader import read_png
from vgpuctl.errors import GuestError
from vgpuctl.guests.libvirtd.screenshot import MOST_BYTES, as_screenshot, receive_screenshot

PIXELS = ((255, 0, 0), (0, 255, 0), (0, 0, 255), (1, 2, 3), (4, 5, 6), (7, 8, 9))
PPM = b"P6\n# QEMU's\n3 2\n255\n" + bytes(value for pixel in PIXELS for value in pixel)


def test_a_picture_of_an_old_qemu_becomes_png_with_the_same_pixels() -> None:
    taken = as_screenshot(PPM, where="here")
    picture = read_png(taken.png)
    assert (taken.width, taken.height) == (picture.width, picture.height) == (3, 2)
    assert picture.rows == (PIXELS[:3], PIXELS[3:])
    assert as_screenshot(taken.png, where="here") == taken


@pytest.mark.parametrize(
    "sent",
    [
        b"", b"GIF89a", b"\x89PNG\r\n\x1a\n", PPM[:-1], PPM + b"x", PPM.replace(b"3 2", b"0 2"),
        PPM.replace(b"3 2", b"99999 99999"), b"P6 3 2 65535 " + bytes(36),
        b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\xff\xff\xff\xff\0\0\0\x02\x08\x02\0\0\0",
    ],
)  # fmt: skip
def test_what_is_no_picture_is_refused(sent: bytes) -> None:
    with pytest.raises(GuestError, match="the picture of here is neither PNG nor PPM"):
        as_screenshot(sent, where="here")


class Endless:
    """libvirt's connection, domain and stream, of a host that never ends its picture."""

    def __init__(self, part: bytes | int) -> None:
        self.part = part
        self.was_aborted = False

    def newStream(self, _flags: int) -> "Endless":  # noqa: N802  (libvirt's name)
        return self

    def screenshot(self, _stream: Any, _screen: int, _flags: int) -> str:
        return "image/png"

    def recv(self, _size: int) -> bytes | int:
        return self.part

    def abort(self) -> None:
        self.was_aborted = True


@pytest.mark.parametrize(("part", "said"), [(bytes(MOST_BYTES // 4), "has more than 128 MiB"), (-2, "in time")])
def test_a_picture_without_end_is_given_up(part: bytes | int, said: str) -> None:
    host = Endless(part)
    with pytest.raises(GuestError, match=said):
        receive_screenshot(host, host, 0, where="here", timeout_s=0.1)
    assert host.was_aborted
