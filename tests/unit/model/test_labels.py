# SPDX-License-Identifier: Apache-2.0
"""Labels and selectors, by the rules of Kubernetes."""

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.labels import (
    MOST_LABELS,
    check_labels,
    parse_label,
    parse_label_change,
    parse_label_value,
    parse_selector,
)

VMS = {
    "web": (("app", "web"), ("env", "prod"), ("example.com/tier", "front")),
    "db": (("app", "db"), ("env", "dev")),
    "bare": (),
    "empty": (("env", ""),),
}


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("app=web", ["web"]),
        ("app==web", ["web"]),
        ("app!=web", ["bare", "db", "empty"]),
        ("app", ["db", "web"]),
        ("!app", ["bare", "empty"]),
        ("! app,env", ["empty"]),
        ("env in (prod, dev)", ["db", "web"]),
        ("env notin (prod)", ["bare", "db", "empty"]),
        ("env in (prod,dev),app!=db", ["web"]),
        ("env=", ["empty"]),
        ("env= , !app", ["empty"]),
        ("env in (,dev)", ["db", "empty"]),
        ("example.com/tier = front ", ["web"]),
        ("app=web,app=db", []),
        ("in", []),
    ],
)
def test_a_selector_selects_as_kubectl_does(selector: str, wanted: list[str]) -> None:
    assert sorted(name for name, labels in VMS.items() if parse_selector(selector).fits(labels)) == wanted


@pytest.mark.parametrize(
    "text",
    [
        *("", ",", "app=web,", "app in", "app in web", "app in (web", "app=a b", "=web", "!app=web", "-x", "app>3"),
        *("a=b=c", "a" * 64, "app=" + "b" * 64, "Example.com/x", "app in ()x", "\x1b[1m", "app=web;env"),
    ],
)
def test_a_broken_selector_is_refused_with_its_forms(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--selector ") as caught:
        parse_selector(text)
    assert "KEY notin (A,B)" in (caught.value.hint or "") and caught.value.message.isprintable()


def test_labels_are_those_of_kubernetes() -> None:
    assert parse_label("example.com/app=v1.2_x") == ("example.com/app", "v1.2_x")
    assert parse_label("spot=") == ("spot", "")
    for bad in ("app", "=x", "-a=x", "a=-x", "a/b/c=d", "a b=c", f"{'k' * 64}=v", "a=ö"):
        with pytest.raises(UsageError):
            parse_label(bad)
    with pytest.raises(UsageError, match="no value of a Kubernetes label"):
        parse_label_value("x" * 64)
    labels = tuple((f"k{number}", "") for number in range(MOST_LABELS + 1))
    check_labels(labels[1:], what="VM web")
    with pytest.raises(UsageError, match=f"VM web has {MOST_LABELS + 1} labels"):
        check_labels(labels, what="VM web")


def test_a_change_sets_and_removes_labels() -> None:
    change = parse_label_change(["env=dev", "app-", "gone-", "new="])
    assert change.of(VMS["web"]) == (("env", "dev"), ("example.com/tier", "front"), ("new", ""))
    assert change.replaced(VMS["web"]) == ["env=prod"] and change.replaced(VMS["db"]) == []
    for bad in (["env=a", "env=b"], ["env=a", "env-"], ["--"]):
        with pytest.raises(UsageError):
            parse_label_change(bad)
