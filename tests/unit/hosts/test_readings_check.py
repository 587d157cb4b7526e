# SPDX-License-Identifier: Apache-2.0
"""Readings of a host that lies or floods are refused, with the field that is wrong."""

from dataclasses import replace

import pytest

from vgpuctl.agent.wire.decode import WireError, from_json, to_json
from vgpuctl.agent.wire.readings import (
    GpuReadings,
    HostReadings,
    InstanceReadings,
    Measured,
    VgpuReadings,
    VmReadings,
)
from vgpuctl.hosts.readings_check import check_readings

PF = "0000:41:00.0"
UUID = "11111111-2222-4333-8444-555555555555"
GOOD = HostReadings(
    "boot",
    1.0,
    2.0,
    gpus=(
        GpuReadings(
            PF,
            "GPU-1",
            "NVIDIA A40",
            "nvidia",
            Measured(
                (("power_watts", (), 30.0), ("xid", ("31", "restart-app"), 2.0)),
                (("temperature_celsius", "not-readable", "because"),),
            ),
        ),
    ),
    instances=(InstanceReadings(PF, 1, "1g.5gb"),),
    vgpus=(VgpuReadings(PF, "0000:41:00.4", UUID, "A40-8Q", None, Measured((("utilization_ratio", (), 0.5),))),),
    vms=(VmReadings(UUID, "acme/web", "acme"),),
    measured=Measured((("reading_seconds", (), 0.1),)),
    unread=("something",),
)


def _gpu(measured: Measured) -> HostReadings:
    return replace(GOOD, gpus=(replace(GOOD.gpus[0], measured=measured),))


def test_good_readings_pass() -> None:
    check_readings(GOOD)
    check_readings(HostReadings("boot", 1.0, 2.0))


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        (replace(GOOD, vms=GOOD.vms * 8193), "vms: has 8193 entries, more than 8192"),
        (replace(GOOD, gpus=GOOD.gpus * 2), "gpus: the same address is there twice"),
        (replace(GOOD, vgpus=GOOD.vgpus * 2), "vgpus: the same device is there twice"),
        (replace(GOOD, vms=GOOD.vms * 2), "vms: the same VM is there twice"),
        (replace(GOOD, instances=GOOD.instances * 2), "instances: the same GPU instance is there twice"),
        (replace(GOOD, gpus=()), "instances[0]: its GPU '0000:41:00.0' is none of the host's"),
        (replace(GOOD, unread=("x" * 2049,)), "unread[0]: has a text of 2049 characters"),
        (replace(GOOD, boot_id="x" * 129), "boot_id: has a text of 129 characters"),
        (replace(GOOD, vms=(VmReadings(UUID, "x" * 257),)), "vms[0]: has a text of 257 characters"),
        (_gpu(Measured((("made_up", (), 1.0),))), "gpus[0].measured: 'made_up' is no measure of gpu"),
        (_gpu(Measured((("share_utilization_ratio", (), 1.0),))), "'share_utilization_ratio' is no measure of gpu"),
        (_gpu(Measured((("power_watts", ("x",), 1.0),))), "power_watts has 1 labels, not 0"),
        (_gpu(Measured((("xid", ("31",), 1.0),))), "xid has 1 labels, not 2"),
        (_gpu(Measured((("power_watts", (), 1.0),) * 2)), "power_watts is there twice with the same labels"),
        (_gpu(Measured((("utilization_ratio", (), 1e9),))), "utilization_ratio is 1e+09, more than 1000"),
        (
            _gpu(Measured(tuple(("xid", (str(number), "x"), 1.0) for number in range(1025)))),
            "has 1025 values, more than 1024",
        ),
        (_gpu(Measured((("xid", ("x" * 129, "y"), 1.0),))), "has a text of 129 characters"),
        (_gpu(Measured((), (("power_watts", "lost", "y"),))), "'lost' is no reason for a missing value"),
        (_gpu(Measured((), (("power_watts", "not-readable", "y" * 2049),))), "has a text of 2049 characters"),
    ],
)
def test_what_a_host_cannot_have_is_refused_with_its_field(readings: HostReadings, said: str) -> None:
    with pytest.raises(WireError) as refused:
        check_readings(readings)
    assert said in str(refused.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, -float("inf"), 2.0**63, "1", None, True])
def test_a_value_that_is_no_measured_number_does_not_come_over_the_wire(value: object) -> None:
    wire = to_json(GOOD)
    wire["gpus"][0]["measured"]["values"][0][2] = value
    with pytest.raises(WireError, match=r"gpus\[0\]\.measured\.values\[0\]\[2\]|gpus"):
        from_json(HostReadings, wire)
