# SPDX-License-Identifier: Apache-2.0
"""resize-vm gives a VM other limits of its disks, interfaces and CPUs, while it runs where libvirt can.

The test driver of simulated hosts limits no disks and CPUs of a domain that runs; test_live_changes.py has QEMU.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.kills import kill_after, kill_points, side_effects
from tests.e2e.libvirt_of import libvirt_of
from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, operator
from vgpuctl.guests.xml_reader import read_xml

__all__ = ["operator"]

FLEET = (1, "a40")
HOST = "sim-001"
WEB = ("web", *ACME)
SIZE = ("--memory", "96MiB", "--vcpus", "1", "--disk", "64MiB", "--gpu", "none", "--host", HOST)
NOW = ("--restart", "--shutdown-timeout", "0")


@pytest.fixture(scope="module")
def web(operator: Operator) -> Iterator[Operator]:
    """A VM that runs, with two disks and an interface, all without a limit."""
    operator.does("create-network", "front", *ACME, "--cidr", "10.0.0.0/24", "--host", HOST)
    operator.does("create-vm", *WEB, *SIZE, "--network", "front", "--data-disk", "data,size=32MiB")
    yield operator
    assert operator.json("repair") == []


def _seen(operator: Operator, *, defined: bool = False) -> dict[str, Any]:
    """IOPS and bytes of each disk, KiB of the interface, and the weight, of the running domain or its definition."""
    uuid = operator.json("show-vm", *WEB)["vm"]["uuid"]
    with libvirt_of(operator.inventory, HOST) as there:
        xml = there.definition("acme.web", uuid=uuid) if defined else there.xml("acme.web")
    assert xml is not None
    domain = read_xml(xml)
    found: dict[str, Any] = {}
    for disk in domain.iterfind("devices/disk[@device='disk']"):
        limits = (disk.findtext("iotune/total_iops_sec"), disk.findtext("iotune/total_bytes_sec"))
        found[disk.findtext("serial") or ""] = tuple(None if one == "0" else one for one in limits)
    rate = domain.find("devices/interface/bandwidth/inbound")
    found["nic"] = None if rate is None else rate.get("average")
    found["weight"] = domain.findtext("cputune/shares")
    return found


def _request(operator: Operator) -> Any:
    return operator.json("show-vm", *WEB)["vm"]["request"]


LIMITS = ("--disk-iops", "500", "--disk-mbps", "data=20", "--bandwidth", "100")


def test_interfaces_are_limited_while_the_vm_runs(web: Operator) -> None:
    before = _seen(web)
    planned = web.json("resize-vm", *WEB, "--bandwidth", "100", "--dry-run")
    assert (planned["changed"], planned["notes"]) == (False, ["it changes while it runs"])
    assert planned["differences"] == ["bandwidth_mbps: none there, 100 wanted"]
    assert _seen(web) == before, "a dry run writes nothing"
    assert web.json("resize-vm", *WEB, "--bandwidth", "100", "--reason", "it is loud")["changed"] is True
    limited = {**before, "nic": "12207"}
    assert (_seen(web), _seen(web, defined=True)) == (limited, limited)
    assert web.json("resize-vm", *WEB, "--bandwidth", "front=100")["changed"] is False
    assert web.run("check-vm", *WEB).code == 0, "the promise rows compare the new values"
    (told,) = web.json("list-events", "--kind", "vm-resized", "--limit", "1")
    assert (told["before"]["limits"], told["after"]["limits"]) == ([], ["nic-mbps of interface 0: 100"])
    assert told["detail"] == "it is loud"
    with libvirt_of(web.inventory, HOST) as there:
        mac = web.json("show-vm", *WEB)["interfaces"][0]["mac_address"]
        domain = there.connection.lookupByName("acme.web")
        domain.setInterfaceParameters(mac, {"inbound.average": 9, "outbound.average": 9}, 1)
    broken = web.run("check-vm", *WEB)
    assert broken.code == 1 and "9 KiB/s" in broken.out
    again = web.run("resize-vm", *WEB, "--bandwidth", "100")
    assert "its limits set as they are to be" in again.err, again.err
    assert _seen(web) == limited
    web.does("resize-vm", *WEB, "--bandwidth", "none")
    assert _seen(web) == before


def test_what_libvirt_cannot_limit_while_it_runs_needs_a_restart_and_changes_nothing_before(web: Operator) -> None:
    before = _seen(web)
    refused = web.is_refused("resize-vm", *WEB, "--cpu-weight", "300", "--bandwidth", "100")
    assert refused["reference"] == "state" and "--restart" in refused["hint"]
    assert "cannot limit vCPUs of a VM that runs" in refused["context"][-1], refused
    refused = web.is_refused("resize-vm", *WEB, *LIMITS)
    assert "cannot limit disk vda of a VM that runs" in refused["context"][-1], refused
    assert (_seen(web), _seen(web, defined=True)) == (before, before)
    done = web.json("resize-vm", *WEB, *LIMITS, "--cpu-weight", "300", "--cpu-limit", "50%", *NOW)
    assert done["after"]["limits"] == [
        "disk-iops of the first disk: 500",
        "disk-mbps of disk data: 20",
        "nic-mbps of interface 0: 100",
        "cpu-limit of its vCPUs: 50%",
        "cpu-weight of its vCPUs: 300",
    ]
    assert _seen(web) == {"": ("500", None), "data": (None, "20000000"), "nic": "12207", "weight": "300"}
    shown = web.does("show-vm", *WEB).out
    assert "at most 500 IOPS" in shown and "at most 20 MB/s" in shown and "at most 100 Mbit/s" in shown
    assert web.run("check-vm", *WEB).code == 0
    fixed = web.is_refused("resize-vm", *WEB, "--cpu-weight", "none")
    assert "libvirt takes no weight away" in fixed["context"][-1]


REFUSED = {
    "disk": (("--disk-iops", "nope=5"), "usage", "has no disk 'nope'"),
    "network": (("--bandwidth", "back=5"), "usage", "no interface in network 'back'"),
    "number": (("--disk-iops", "5k"), "usage", "--disk-iops='5k' is no limit"),
    "twice": (("--disk-iops", "5", "--disk-iops", "6"), "usage", "given twice"),
    "no name": (("--disk-mbps", "=6"), "usage", "names no part"),
    "CPU": (("--cpu-limit", "web=5%"), "usage", "names no part"),
    "ceiling": (("--disk-iops", "1001"), "quota-exceeded", "above a ceiling"),
    "no limit above a ceiling": (("--disk-iops", "none"), "quota-exceeded", "above a ceiling"),
    "sum": (("--disk-iops", "data=400"), "quota-exceeded", "iops"),
    "sum of interfaces": (("--bandwidth", "301"), "quota-exceeded", "bandwidth"),
}


def test_what_is_above_a_ceiling_or_a_sum_is_refused_and_changes_nothing(web: Operator) -> None:
    web.does("resize-vm", *WEB, "--disk-iops", "700", "--disk-iops", "data=200", "--bandwidth", "100", *NOW)
    before, seen = _request(web), _seen(web)
    web.does("set-quota", "acme", "each:disk-iops=1000", "iops=1000", "bandwidth=300")
    try:
        for number, (options, reference, words) in enumerate(REFUSED.values()):
            refused = web.is_refused("resize-vm", *WEB, *options, *(("--dry-run",) if number % 2 else ()))
            assert (refused["reference"], words in refused["message"]) == (reference, True), (options, refused)
        assert (_request(web), _seen(web)) == (before, seen)
        web.does("resize-vm", *WEB, "--bandwidth", "300")
        text = web.does("show-tenant", "acme").out
        assert "iops 900 / 1000" in text and "bandwidth 300 / 300" in text, text
        warned = web.does("set-quota", "acme", "bandwidth=200").err
        assert "uses 300 of bandwidth, more than 200" in warned
        web.does("resize-vm", *WEB, "--bandwidth", "250")
        assert web.is_refused("resize-vm", *WEB, "--bandwidth", "251")["reference"] == "quota-exceeded"
    finally:
        web.does("set-quota", "acme", "each:disk-iops=none", "iops=none", "bandwidth=none")
    same = (*WEB, *SIZE, "--network", "front")
    differs = web.is_refused("create-vm", *same, "--data-disk", "data,size=32MiB,iops=9", "--disk-iops", "800")
    hint = "resize it: vgpuctl resize-vm acme/web --disk-iops 800 --disk-iops data=9"
    assert differs["hint"] == hint, differs


def test_a_resize_that_is_killed_anywhere_leaves_the_limits_as_the_store_says(web: Operator) -> None:
    web.does("resize-vm", *WEB, "--bandwidth", "100")
    effects = side_effects(web, "resize-vm", *WEB, "--bandwidth", "200")
    assert "set" in effects and "define" in effects
    seen = set()
    for point in kill_points(effects, most=3):
        web.does("resize-vm", *WEB, "--bandwidth", "100")
        kill_after(web, point, "resize-vm", *WEB, "--bandwidth", "200")
        web.does("repair")
        assert web.json("repair") == [], point
        wanted = _request(web)["bandwidth_mbps"]
        rate = {100: "12207", 200: "24414"}[wanted]
        assert (_seen(web)["nic"], _seen(web, defined=True)["nic"]) == (rate, rate), point
        seen.add(wanted)
    kill_after(web, "set", "resize-vm", *WEB, "--bandwidth", "50")
    (found,) = web.json("repair")
    assert found["found"].startswith("its resize did not end: other limits of interface "), found
    assert found["outcome"] == "finished" and _seen(web)["nic"] == rate
    assert seen == {100, 200}


def test_a_run_of_a_machine_that_never_comes_back_is_ended_and_repaired_by_one_command(web: Operator) -> None:
    web.does("resize-vm", *WEB, "--bandwidth", "100")
    kill_after(web, "set", "resize-vm", *WEB, "--bandwidth", "50")
    with contextlib.closing(sqlite3.connect(web.database.removeprefix("sqlite:///"))) as store, store:
        store.execute("UPDATE operations SET hostname = 'admin-2', machine = 'm'")
    (left,) = web.json("repair")
    assert (left["outcome"], "admin-2" in left["found"]) == ("left alone", True)
    blocked = web.is_refused("resize-vm", *WEB, "--bandwidth", "60")
    assert blocked["reference"] == "concurrent-change" and "repair --gone admin-2" in blocked["hint"], blocked
    assert web.is_refused("repair", "--gone", "admin-3")["hint"].startswith("machines with open work: admin-2;")
    done = web.json("repair", "--gone", "admin-2")
    assert [one["outcome"] for one in done] == ["ended", "ended", "finished"], done
    assert _seen(web)["nic"] == "12207" and web.json("repair") == []
    (told,) = web.json("list-events", "--kind", "machine-gone")
    assert (told["subject"], len(told["before"]["open"])) == ("admin-2", 2)


def test_a_stopped_vm_is_defined_with_its_new_limits_and_starts_with_them(web: Operator) -> None:
    web.does("stop-vm", *WEB, "--timeout", "0")
    web.does("resize-vm", *WEB, "--disk-iops", "300", "--cpu-weight", "200")
    assert (_seen(web)[""][0], _seen(web)["weight"]) == ("300", "200")
    web.does("start-vm", *WEB)
    assert (_seen(web)[""][0], _seen(web)["weight"], web.run("check-vm", *WEB).code) == ("300", "200", 0)
