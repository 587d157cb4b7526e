# SPDX-License-Identifier: Apache-2.0
"""The page of one host: hostile names, floods, what is missing, and tenants of leases."""

import math
import subprocess
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families

from vgpuctl.agent.wire.labelled import MOST_LABEL_CHARACTERS
from vgpuctl.agent.wire.readings import (
    NOT_MEASURABLE,
    GpuReadings,
    HostReadings,
    Measured,
    VgpuReadings,
    VmReadings,
)
from vgpuctl.agent.wire.sharing import Sharing
from vgpuctl.model.lease import Lease, LeaseState, Share
from vgpuctl.telemetry.exposition import Dropped, Page, encode, measured_families
from vgpuctl.telemetry.host_page import MOST_OBJECTS, MOST_PARTS, host_page, kept_values

GPU = "0000:41:00.0"
CPU = Measured((("vcpus", (), 2.0),))
USED = Measured((("utilization_ratio", (), 0.5),))
HOSTILE = 'a"b\\c\nd\x1b[2J\u202e\udcff' + "x" * 1000


def host_with(*vgpus: VgpuReadings, vms: tuple[VmReadings, ...] = ()) -> HostReadings:
    """Readings of one GPU with these vGPUs."""
    card = GpuReadings(GPU, "GPU-1", "NVIDIA A40", "nvidia", Measured((("power_watts", (), 100.0),)))
    return HostReadings("boot", 1000.0, 1.0, (card,), vgpus=vgpus, vms=vms)


def vgpu(
    device: str | None = "0000:41:00.4",
    vm: str | None = "vm-1",
    measured: Measured = USED,
) -> VgpuReadings:
    """Readings of one vGPU."""
    return VgpuReadings(GPU, device, vm, "A40-8Q", None, measured)


def samples(page: Page) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and values of every sample by name, read back from the text that promtool accepts."""
    text = encode([page], "")[0].decode()
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return samples_of_many(page)


def samples_of_many(page: Page) -> dict[str, list[tuple[dict[str, str], float]]]:
    """As `samples`, without promtool: 2.53 compares each series with each other, minutes for ten thousand."""
    text = encode([page], "")[0].decode()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            found.setdefault(one.name, []).append((one.labels, one.value))
    return found


def test_hostile_names_are_escaped_and_bounded() -> None:
    hostile = replace(vgpu(), profile=HOSTILE, device=HOSTILE)
    found = samples(host_page("gpu1", host_with(hostile, vms=(VmReadings("vm-1", HOSTILE, HOSTILE),)), ()))
    [(labels, value)] = found["vgpuctl_vgpu_utilization_ratio"]
    assert value == 0.5
    for name in ("profile", "share", "tenant", "vm"):
        assert labels[name].startswith('a"b\\c\\nd\\x1b[2J\\u202e\\udcffx'), labels[name]
        assert len(labels[name]) < 2 * MOST_LABEL_CHARACTERS


def test_names_that_are_cut_to_the_same_are_counted_and_not_exposed_twice() -> None:
    long = "x" * MOST_LABEL_CHARACTERS
    found = samples(host_page("gpu1", host_with(vgpu(long + "a"), vgpu(long + "b")), ()))
    assert len(found["vgpuctl_vgpu_utilization_ratio"]) == 1
    assert ({"host": "gpu1", "reason": "duplicate"}, 1.0) in found["vgpuctl_dropped_series"]


def test_a_flood_of_objects_is_bounded_and_counted() -> None:
    many = [vgpu(f"device-{number}") for number in range(MOST_OBJECTS + 500)]
    found = samples_of_many(host_page("gpu1", host_with(*many), ()))
    assert len(found["vgpuctl_vgpu_utilization_ratio"]) == MOST_OBJECTS
    assert len(found["vgpuctl_vgpu_info"]) == MOST_OBJECTS
    assert ({"host": "gpu1", "reason": "too-many"}, 500.0) in found["vgpuctl_dropped_series"]


def test_a_flood_of_values_is_bounded_and_counted() -> None:
    dropped = Dropped()
    flood = Measured(tuple(("xid", (str(number), "x"), 1.0) for number in range(50)))
    [family] = measured_families([("gpu", ("gpu1", GPU), flood)], dropped, most=10)
    assert (len(family.rows), dropped.too_many) == (10, 40)


def test_values_that_are_no_measure_are_counted_and_not_exposed() -> None:
    odd = Measured(
        (("utilization_ratio", ("label",), 1.0), ("made_up", (), 1.0), ("framebuffer_used_bytes", (), math.nan)),
        (("made_up", "not-measurable", "x"), ("utilization_ratio", "made-up", "x")),
    )
    found = samples(host_page("gpu1", host_with(vgpu(measured=odd)), ()))
    assert "vgpuctl_vgpu_utilization_ratio" not in found
    assert math.isnan(found["vgpuctl_vgpu_framebuffer_used_bytes"][0][1])
    assert ({"host": "gpu1", "reason": "malformed"}, 2.0) in found["vgpuctl_dropped_series"]
    assert "vgpuctl_reading_missing" not in found


def test_ten_thousand_series_of_one_tenant_are_exposed_whole() -> None:
    many = [vgpu(f"device-{number}", f"vm-{number}") for number in range(MOST_OBJECTS)]
    vms = tuple(VmReadings(f"vm-{number}", f"acme/web-{number}", "acme", CPU) for number in range(MOST_OBJECTS))
    found = samples_of_many(host_page("gpu1", host_with(*many, vms=vms), ()).of_tenant("acme"))
    assert {name: len(one) for name, one in found.items()} == {
        "vgpuctl_vgpu_utilization_ratio": MOST_OBJECTS,
        "vgpuctl_vm_vcpus": MOST_OBJECTS,
        "vgpuctl_vgpu_info": MOST_OBJECTS,
    }


def test_the_lease_names_tenant_vm_and_share() -> None:
    share = Share(GPU, Sharing.VF_PROFILE, "A40-8Q", "0000:41:00.5")
    lease = Lease("1", "vm-1", "acme", "web-1", "gpu1", 0, share, LeaseState.RUNNING)
    readings = host_with(vgpu(device=None))
    [(labels, _value)] = samples(host_page("gpu1", readings, [lease]))["vgpuctl_vgpu_utilization_ratio"]
    assert (labels["tenant"], labels["vm"], labels["share"]) == ("acme", "web-1", "0000:41:00.5")
    [kept] = [one for one in kept_values("gpu1", readings, [lease]) if one.subject.kind == "vgpu"]
    assert (kept.subject.tenant, kept.subject.object, kept.measure) == ("acme", "0000:41:00.5", "utilization_ratio")


def test_values_with_other_labels_than_their_measure_and_floods_of_parts_are_not_kept() -> None:
    odd = [("pool_total_bytes", labels, 1.0) for labels in ((), ("p",), ("p", "/srv"), ("p", "/srv", "more"))]
    own = Measured((*odd, ("memory_available_bytes", ("odd",), 1.0), ("memory_available_bytes", (), 2.0)))
    vms = tuple(
        VmReadings(f"vm-{number}", f"web-{number}", None, Measured((("disk_allocated_bytes", ("/srv",), 1.0),)))
        for number in range(MOST_OBJECTS)
    )
    kept = kept_values("gpu1", replace(host_with(vms=vms), measured=own), ())
    assert [(one.measure, one.subject.labels) for one in kept if one.subject.kind == "host"] == [
        ("pool_total_bytes", ("p", "/srv")),
        ("memory_available_bytes", ()),
    ]
    assert sum(bool(one.subject.labels) for one in kept) == MOST_PARTS


def test_without_a_lease_the_domain_names_them() -> None:
    vms = (VmReadings("vm-1", "a..b.web-1", "a.b"), VmReadings("vm-2", "foreign"))
    found = samples(host_page("gpu1", host_with(vgpu(), vgpu("0000:41:00.6", "vm-2"), vms=vms), ()))
    named = {(one["tenant"], one["vm"]) for one, _value in found["vgpuctl_vgpu_utilization_ratio"]}
    assert named == {("a.b", "web-1"), ("", "foreign")}


def test_a_missing_reading_is_counted_with_its_kind() -> None:
    silent = vgpu(measured=Measured(missing=(("utilization_ratio", NOT_MEASURABLE, "MIG"),)))
    found = samples(host_page("gpu1", host_with(silent, silent), ()))
    labels = {"host": "gpu1", "gpu": GPU, "measure": "vgpu_utilization_ratio", "kind": NOT_MEASURABLE}
    assert found["vgpuctl_reading_missing"] == [(labels, 2.0)]
    assert "vgpuctl_vgpu_utilization_ratio" not in found


def test_pages_are_joined_by_family_in_both_formats() -> None:
    pages = [host_page(name, host_with(vgpu()), ()) for name in ("gpu1", "gpu2")]
    plain, plain_type = encode(pages, "")
    assert plain_type.startswith("text/plain; version=0.0.4")
    assert plain.count(b"# HELP vgpuctl_gpu_power_watts ") == 1
    assert plain.count(b"\nvgpuctl_gpu_power_watts{") == 2
    metrics, its_type = encode(pages, "application/openmetrics-text; version=1.0.0")
    assert its_type.startswith("application/openmetrics-text")
    assert metrics.endswith(b"# EOF\n")
    assert metrics.count(b"# EOF") == 1
    assert metrics.count(b"# TYPE vgpuctl_gpu_power_watts gauge") == 1
