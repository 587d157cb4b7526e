# SPDX-License-Identifier: Apache-2.0
"""The device of a VM that the console shows, and the refusals of the sharing kinds."""

from dataclasses import replace

import pytest
from lxml import etree

from tests.unit.guests.cases import MDEV_UUID, REQUEST, facts, gpu, leases, vgpu, vm, whole
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.errors import GuestError
from vgpuctl.guests.domain.render import render_domain
from vgpuctl.guests.domain.view import domain_view
from vgpuctl.model.display import DisplayKind, DisplayRequest, VgpuDisplay, VideoModel
from vgpuctl.model.lease import Share

ON_VF = vgpu("0000:41:00.0", Sharing.VF_PROFILE, "0000:41:00.4")
MEDIATED = vgpu("0000:41:00.0", Sharing.MDEV, "0000:41:00.0", MDEV_UUID)
CARD = whole("0000:42:00.0", "0000:42:00.1")
PLAIN = Share("0000:41:00.0", Sharing.VF, "vf", "0000:41:00.4")


def shown(share: Share, display: VgpuDisplay, libvirt: str | None = "10.3.0") -> list[dict[str, str]]:
    """The attributes of the domain's host devices."""
    video = VideoModel.NONE if display is VgpuDisplay.RAMFB else VideoModel.BOCHS
    request = replace(REQUEST, display=DisplayRequest(DisplayKind.VNC, video, display))
    read = facts(gpu("0000:41:00.0"), gpu("0000:42:00.0"), libvirt_version=libvirt)
    host = replace(read, hostname="its-own-name")  # errors name a host as the inventory does
    root = etree.fromstring(render_domain(domain_view(vm(request), leases(share), host)).encode())
    return [dict(hostdev.attrib) for hostdev in root.findall("devices/hostdev")]


@pytest.mark.parametrize("share", [ON_VF, MEDIATED])
def test_the_picture_of_a_vgpu_is_shown(share: Share) -> None:
    (hostdev,) = shown(share, VgpuDisplay.ON)
    assert hostdev["display"] == "on" and "ramfb" not in hostdev
    (hostdev,) = shown(share, VgpuDisplay.RAMFB)
    assert hostdev["display"] == "on" and hostdev["ramfb"] == "on"
    (hostdev,) = shown(share, VgpuDisplay.OFF)
    assert not {"display", "ramfb"} & set(hostdev)


@pytest.mark.parametrize(
    ("share", "display", "libvirt", "said"),
    [
        (ON_VF, VgpuDisplay.ON, "10.2.0", "10.3.0 and newer can"),
        (MEDIATED, VgpuDisplay.ON, "4.5.0", "4.6.0 and newer can"),
        (MEDIATED, VgpuDisplay.RAMFB, "5.9.0", "5.10.0 and newer can"),
        (CARD, VgpuDisplay.ON, "12.0.0", "only a vGPU's picture"),
        (PLAIN, VgpuDisplay.RAMFB, "12.0.0", "only a vGPU's picture"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_its_reason(
    share: Share, display: VgpuDisplay, libvirt: str, said: str
) -> None:
    with pytest.raises(GuestError, match=f"vGPU display {display} is not possible on gpu1") as caught:
        shown(share, display, libvirt)
    assert said in caught.value.context[0]
    assert caught.value.hint


def test_an_unknown_libvirt_counts_as_able() -> None:
    assert shown(ON_VF, VgpuDisplay.ON, None)[0]["display"] == "on"
