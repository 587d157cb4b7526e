# SPDX-License-Identifier: Apache-2.0
"""Readings of health become findings: states as they are, counters and the log by what is new."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vgpuctl.agent.wire.health import (
    Bar,
    DriverFailure,
    EccErrors,
    GpuHealth,
    HostHealth,
    RemappedRows,
    RetiredPages,
    Xid,
)
from vgpuctl.model.faults import FAULTS, FaultId
from vgpuctl.model.health import DEFAULT_HEALTH_POLICY, HealthCode, HealthFinding, HealthPolicy
from vgpuctl.sharing.health import START_S, findings_of, has_whole_log, news, tells_not_yet, with_last_known
from vgpuctl.sharing.xids import CLASSES, classify

CARD = "0000:41:00.0"
PAGE = (Path(__file__).parents[3] / "docs/health.md").read_text(encoding="utf-8")
HEALTHY = GpuHealth(
    address=CARD,
    kernel_ids="10de:2235",
    config_ids="10de:2235",
    driver="nvidia",
    bars=(Bar(0, 1 << 24, True), Bar(1, 1 << 36, True)),
    reset_methods=("flr", "bus"),
    uuid="GPU-1",
    vbios="94.02",
    volatile=EccErrors(0, 0),
    aggregate=EccErrors(0, 4),
    remapped=RemappedRows(0, 0, False, False),
)

GIVEN_UP = (DriverFailure(5.0, "probe with driver nvidia failed with error -1"),)


def host(*gpus: GpuHealth, boot: str = "boot-1", **values: Any) -> HostHealth:
    return HostHealth(boot, gpus, **values)


def codes(found: Sequence[HealthFinding]) -> list[str]:
    return [str(one.code) for one in found]


def changed(**values: Any) -> list[str]:
    """The codes found of a card that was healthy before and now has these values."""
    return codes(findings_of(host(replace(HEALTHY, **values)), CARD, host(HEALTHY)))


def test_a_healthy_card_has_no_finding() -> None:
    assert changed() == []
    assert findings_of(host(HEALTHY), CARD, None) == []


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"config_ids": "ffff:ffff", "bars": (Bar(0, 1, False),)}, ["off-the-bus"]),
        ({"nvml_state": "lost"}, ["off-the-bus"]),
        ({"config_ids": "10de:2236"}, ["config-differs"]),
        ({"bars": (Bar(0, 1, True), Bar(3, 1, False))}, ["bar-unassigned"]),
        ({"nvml_state": "reset-required"}, ["reset-required"]),
        ({"remapped": RemappedRows(0, 1, True, False)}, ["row-remap-pending"]),
        ({"remapped": RemappedRows(0, 1, False, True)}, ["row-remap-failed"]),
        ({"retired": RetiredPages(0, 1, True)}, ["page-retirement-pending"]),
        ({"vbios": "94.03"}, ["vbios-changed"]),
        ({"vbios": None}, []),
        ({"unread": ("NVML does not tell the remapped rows",)}, ["health-unread"]),
        ({"aggregate": EccErrors(9, 5)}, ["ecc-uncorrected"]),
        ({"aggregate": EccErrors(9, 4)}, []),
        ({"xids": (Xid(79, 5.0, "GPU has fallen off the bus."),)}, ["xid-restart-bm"]),
        ({"xids": (Xid(31, 5.0, ""), Xid(45, 6.0, ""))}, ["xid-restart-app"]),
        ({"xids": (Xid(45, 6.0, ""),)}, ["xid-workflow-45"]),
        ({"driver": None, "uuid": None, "driver_failures": GIVEN_UP}, ["driver-failed"]),
        ({"driver": "vfio-pci", "uuid": None, "driver_failures": GIVEN_UP}, ["driver-failed"]),
        ({"unread": ("NVML does not show it",), "driver_failures": GIVEN_UP}, ["health-unread", "driver-failed"]),
        ({"nvml_state": "lost", "driver_failures": GIVEN_UP}, ["off-the-bus", "driver-failed"]),
        # The driver was loaded again, has the card and answers.
        ({"driver_failures": GIVEN_UP}, []),
    ],
)
def test_each_value_has_its_finding(values: dict[str, Any], found: list[str]) -> None:
    assert changed(**values) == found


def test_a_card_that_its_driver_gave_up_is_news_once_and_not_again_when_a_vm_gets_it() -> None:
    sick = host(replace(HEALTHY, driver=None, driver_failures=GIVEN_UP))
    assert codes(news(sick, host(HEALTHY))) == codes(findings_of(sick, CARD, None)) == ["driver-failed"]
    assert news(sick, sick) == []
    again = replace(HEALTHY, driver=None, driver_failures=(*GIVEN_UP, DriverFailure(9.0, "again")))
    assert [one.text for one in news(host(again), sick)] == ["again"]
    # It was in service since; on vfio-pci, for a VM, nobody asks its driver.
    served, given = replace(HEALTHY, driver_failures=GIVEN_UP), replace(HEALTHY, driver="vfio-pci", uuid=None)
    assert news(host(replace(given, driver_failures=GIVEN_UP)), host(served)) == []
    assert codes(news(host(again, boot="boot-2"), host(served))) == ["driver-failed"]


def test_states_are_found_every_time_and_are_news_once() -> None:
    sick = host(replace(HEALTHY, remapped=RemappedRows(0, 1, True, False)))
    assert codes(news(sick, host(HEALTHY))) == codes(findings_of(sick, CARD, sick)) == ["row-remap-pending"]
    assert news(sick, sick) == []


def test_what_the_log_already_had_is_not_new_until_the_next_boot() -> None:
    before = host(replace(HEALTHY, xids=(Xid(95, 5.0, ""),)))
    again = host(replace(HEALTHY, xids=(Xid(95, 5.0, ""), Xid(13, 7.0, ""))))
    assert codes(news(again, before)) == ["xid-restart-app"]
    assert codes(news(replace(again, boot_id="boot-2"), before)) == ["xid-reset-gpu", "xid-restart-app"]
    assert codes(news(again, None)) == ["xid-reset-gpu", "xid-restart-app"]


@pytest.mark.parametrize(
    ("begins_s", "before", "whole"),
    [
        (0.0, None, True),
        (90.0, None, False),
        (90.0, host(HEALTHY, read_at_s=100.0), True),
        (110.0, host(HEALTHY, read_at_s=100.0), False),
        (90.0, host(HEALTHY, read_at_s=100.0, boot="boot-0"), False),
    ],
)
def test_a_log_that_does_not_go_back_to_the_reading_before_is_not_whole(
    begins_s: float, before: HostHealth | None, whole: bool
) -> None:
    assert has_whole_log(host(HEALTHY, log_begins_s=begins_s), before) is whole


def test_an_xid_that_comes_again_and_again_is_one_finding() -> None:
    many = host(replace(HEALTHY, xids=tuple(Xid(31, float(second), f"no. {second}") for second in range(40))))
    assert [one.text for one in news(many, host(HEALTHY))] == ["Xid 31: 40 times, the last one: no. 39"]


def test_without_a_count_of_the_cards_life_that_of_the_driver_is_compared() -> None:
    def errors(count: int, boot: str = "boot-1") -> HostHealth:
        return host(replace(HEALTHY, aggregate=None, volatile=EccErrors(0, count)), boot=boot)

    assert news(errors(2), errors(2)) == []
    assert news(errors(0), errors(2)) == []
    assert codes(news(errors(1), errors(2))) == ["ecc-uncorrected"]
    assert codes(news(errors(2, "boot-2"), errors(2))) == ["ecc-uncorrected"]
    assert codes(news(errors(1), None)) == ["ecc-uncorrected"]


def test_pages_retired_since_the_reading_before_are_found() -> None:
    before, now = (host(replace(HEALTHY, retired=RetiredPages(0, pages, False))) for pages in (3, 5))
    assert [one.text for one in news(now, before)] == ["2 more memory pages are retired"]
    assert news(now, None) == []


def test_what_a_card_told_before_a_vm_had_it_whole_is_compared_when_it_is_back() -> None:
    on_vfio = replace(HEALTHY, driver="vfio-pci", uuid=None, vbios=None, volatile=None, aggregate=None, remapped=None)
    pages = RetiredPages(0, 3, False)
    before = with_last_known(host(on_vfio), host(replace(HEALTHY, retired=pages)))
    assert news(host(on_vfio), before) == news(host(replace(HEALTHY, retired=pages)), before) == []
    back = replace(HEALTHY, vbios="94.03", aggregate=EccErrors(0, 5), retired=RetiredPages(0, 4, False))
    assert codes(news(host(back), before)) == ["ecc-uncorrected", "pages-retired", "vbios-changed"]
    other = replace(HEALTHY, uuid="GPU-2", vbios="95.00", aggregate=EccErrors(0, 9))
    assert codes(news(host(other), before)) == ["gpu-missing"]
    assert with_last_known(host(replace(on_vfio, kernel_ids="10de:1eb8")), before).gpus[0].vbios is None


def test_a_card_is_followed_to_another_slot_and_another_card_in_its_place_is_a_new_one() -> None:
    moved = replace(HEALTHY, address="0000:61:00.0", vbios="94.03")
    other = replace(HEALTHY, uuid="GPU-2", vbios="95.00")
    found = news(host(other, moved), host(HEALTHY))
    assert [(one.code, one.device) for one in found] == [("vbios-changed", "0000:61:00.0")]


def test_a_card_that_the_host_no_longer_shows_is_missing_unless_something_could_not_be_read() -> None:
    assert codes(news(host(), host(HEALTHY))) == ["gpu-missing"]
    assert news(host(unread=("0000:41:00.0 cannot be read",)), host(HEALTHY)) == []
    assert codes(findings_of(host(), CARD, None)) == ["gpu-missing"]


def test_what_could_not_be_read_of_the_host_and_a_driver_that_does_not_clear_memory_concern_each_card() -> None:
    assert codes(findings_of(host(HEALTHY, unread=("the log",)), CARD, None)) == ["health-unread"]
    assert codes(findings_of(host(HEALTHY, scrubs_memory=False), CARD, None)) == ["scrub-off"]
    on_vfio = replace(HEALTHY, driver="vfio-pci")
    assert findings_of(host(on_vfio, scrubs_memory=False), CARD, None) == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)", HealthCode.XID_RESET_GPU),
        ("GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", HealthCode.XID_RESTART_BM),
        ("GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", HealthCode.XID_IGNORE),
        ("something new", HealthCode.XID_CONTACT_SUPPORT),
    ],
)
def test_xid_154_says_itself_what_is_wanted(words: str, code: HealthCode) -> None:
    assert classify(154, words) is code


def test_the_action_that_the_driver_asks_for_comes_before_what_the_table_says_of_the_xids_beside_it() -> None:
    asked = Xid(154, 6.0, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")
    done = Xid(154, 6.0, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    assert changed(xids=(Xid(95, 5.0, ""), asked)) == ["xid-restart-bm", "xid-reset-gpu"]
    assert changed(xids=(Xid(95, 5.0, ""), done)) == ["xid-reset-gpu", "xid-ignore"]


def test_every_xid_has_one_class_and_an_unknown_one_is_for_support() -> None:
    every = [code for one in CLASSES.values() for code in one]
    assert len(every) == len(set(every))
    assert classify(9999, "") is HealthCode.XID_CONTACT_SUPPORT


def test_a_card_without_a_spare_for_bad_memory_takes_no_new_vm() -> None:
    found = HealthFinding(classify(157, ""), CARD, "", "")
    assert DEFAULT_HEALTH_POLICY.forbids(found)


def test_the_default_policy_forbids_all_but_what_guests_cause() -> None:
    forbidden = {one for one in HealthCode if DEFAULT_HEALTH_POLICY.forbids(HealthFinding(one, CARD, "", ""))}
    assert forbidden == set(HealthCode) - set(DEFAULT_HEALTH_POLICY.tolerate)
    assert HealthCode.XID_RESTART_APP not in forbidden
    assert not HealthPolicy(tolerate=(HealthCode.NO_RESET,)).forbids(HealthFinding(HealthCode.NO_RESET, CARD, "", ""))


def test_every_code_has_its_remedy_and_its_row_in_the_docs() -> None:
    assert set(FAULTS) == {*HealthCode, *FaultId}
    assert [code for code in HealthCode if f"| `{code}` | " not in PAGE] == []


@pytest.mark.parametrize("code", CLASSES)
def test_the_docs_list_the_xids_of_each_class(code: HealthCode) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{code}` | ")]
    numbers = row.split(" | ")[2]
    listed = {
        xid
        for part in numbers.split(", ")
        for first, _, last in [part.partition("-")]
        for xid in range(int(first), int(last or first) + 1)
    }
    assert listed == set(CLASSES[code])


def test_only_a_host_that_was_booted_a_moment_ago_may_tell_something_later() -> None:
    silent = replace(HEALTHY, unread=("NVML does not show it",))
    assert codes(tells_not_yet(host(silent, read_at_s=20.0))) == ["health-unread"]
    assert tells_not_yet(host(silent, read_at_s=START_S)) == []
    assert tells_not_yet(host(HEALTHY, read_at_s=20.0)) == []
