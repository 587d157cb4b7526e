# SPDX-License-Identifier: Apache-2.0
"""The limits of a running domain against those of its definition."""

import pytest

from vgpuctl.errors import GuestError
from vgpuctl.guests.facts.domain_limits import LimitChange, LimitedPart, limit_changes


def _domain(
    *,
    tune: str = "",
    first: str = "",
    data: str = "",
    nic: str = "",
    path: str = "/a.qcow2",
    target: str = "vdb",
    ovn: str = "",
) -> str:
    return f"""<domain><cputune>{tune}</cputune><devices>
      <disk type='file' device='disk'><source file='{path}'/><target dev='vda'/>{first}</disk>
      <disk type='file' device='disk'><source file='/b'/><target dev='{target}'/><serial>data</serial>{data}</disk>
      <disk type='file' device='cdrom'><target dev='sda'/></disk>
      <interface type='network'><mac address='52:54:00:AA:00:01'/>{nic}</interface>
      <interface type='bridge'><mac address='52:54:00:aa:00:02'/><virtualport type='openvswitch'/>{ovn}</interface>
    </devices></domain>"""


def _iotune(iops: int | None = None, bytes_s: int | None = None) -> str:
    parts = [("total_iops_sec", iops), ("total_bytes_sec", bytes_s)]
    return "<iotune>" + "".join(f"<{name}>{value}</{name}>" for name, value in parts if value) + "</iotune>"


def _rate(kib: int) -> str:
    return f"<bandwidth><inbound average='{kib}'/><outbound average='{kib}'/></bandwidth>"


QUOTA = "<period>100000</period><quota>50000</quota>"
NO_RATE = {"inbound.average": 0, "outbound.average": 0}
# The running domain, its definition, and what is to be set.
CASES: dict[str, tuple[str, str, list[tuple[LimitedPart, str, dict[str, int]]]]] = {
    "the same": (_domain(first=_iotune(5)), _domain(first=_iotune(5)), []),
    "limited": (
        _domain(),
        _domain(first=_iotune(5)),
        [(LimitedPart.DISK, "vda", {"total_bytes_sec": 0, "total_iops_sec": 5})],
    ),
    "no limit any more": (
        _domain(data=_iotune(5, 9)),
        _domain(),
        [(LimitedPart.DISK, "vdb", {"total_bytes_sec": 0, "total_iops_sec": 0})],
    ),
    "a disk that runs under another target and path": (
        _domain(path="/overlay", target="vdf"),
        _domain(first=_iotune(7), data=_iotune(8)),
        [
            (LimitedPart.DISK, "vda", {"total_bytes_sec": 0, "total_iops_sec": 7}),
            (LimitedPart.DISK, "vdf", {"total_bytes_sec": 0, "total_iops_sec": 8}),
        ],
    ),
    "an interface": (
        _domain(),
        _domain(nic=_rate(12)),
        [(LimitedPart.INTERFACE, "52:54:00:aa:00:01", {"inbound.average": 12, "outbound.average": 12})],
    ),
    "its limit taken away": (
        _domain(nic=_rate(12)),
        _domain(),
        [(LimitedPart.INTERFACE, "52:54:00:aa:00:01", NO_RATE)],
    ),
    "a port of OVN, which OVN limits": (_domain(ovn=_rate(1)), _domain(), []),
    "a CPU limit": (
        _domain(),
        _domain(tune=QUOTA),
        [(LimitedPart.VCPUS, "", {"vcpu_period": 100000, "vcpu_quota": 50000})],
    ),
    "no CPU limit": (
        _domain(tune=QUOTA),
        _domain(),
        [(LimitedPart.VCPUS, "", {"vcpu_period": 100000, "vcpu_quota": -1})],
    ),
    "libvirt's word for none": (_domain(tune="<quota>-1</quota>"), _domain(), []),
    "a weight": (_domain(), _domain(tune="<shares>300</shares>"), [(LimitedPart.VCPUS, "", {"cpu_shares": 300})]),
    "the host's own weight": (_domain(tune="<shares>100</shares>"), _domain(), []),
    "a disk that is not there yet": (
        "<domain><devices/></domain>",
        _domain(first=_iotune(5), nic=_rate(1)),
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_only_what_differs_is_set(name: str) -> None:
    live, definition, changes = CASES[name]
    assert limit_changes(live, definition) == [LimitChange(*one) for one in changes]
    assert limit_changes(definition, definition) == []


def test_a_change_is_named_and_no_xml_is_refused() -> None:
    assert str(LimitChange(LimitedPart.VCPUS, "", {})) == "vCPUs"
    assert str(LimitChange(LimitedPart.DISK, "vda", {})) == "disk vda"
    with pytest.raises(GuestError):
        limit_changes("<domain", _domain())
