# SPDX-License-Identifier: Apache-2.0
"""A VF goes into quarantine for a fault of its own, not for one of its host or its VM."""

import pytest

from vgpuctl.usecases.share.quarantine import is_not_opened

VF = "0000:41:00.4"


@pytest.mark.parametrize(
    ("said", "is_broken"),
    [
        (f"vfio {VF}: error getting device from group 24: Input/output error", True),
        (f"vfio {VF}: error bind device fd=21 to iommufd=20: Input/output error", True),
        (f"vfio {VF}: failed to setup container for group 24: memory listener initialization failed", False),
        (f"vfio {VF}: group 24 is not viable", False),
        ("vfio 0000:41:00.5: error getting device from group 25: Input/output error", False),
    ],
)
def test_only_a_device_that_qemu_could_not_open_is_broken(said: str, is_broken: bool) -> None:
    assert is_not_opened(f"internal error: qemu unexpectedly closed the monitor: {said}", VF) is is_broken
