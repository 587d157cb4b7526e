# SPDX-License-Identifier: Apache-2.0
"""Labels of VMs on simulated hosts: who sets them, what finds VMs by them, and what they outlive."""

from pathlib import Path

import pytest

from tests.e2e.operator import Operator
from tests.e2e.small_vms import ACME, SIZE, operator
from vgpuctl.guests.domain.metadata import parse_metadata

__all__ = ["operator"]
HOST = ("--host", "sim-001")
OFF = ("--yes", "--timeout", "0")


@pytest.fixture(scope="module")
def labelled(operator: Operator) -> Operator:
    """VMs web-1, web-2 and web-10; the one that wants more GPUs than there are waits in the queue."""
    operator.does("create-vm", "acme/web-2", *SIZE, *HOST, "--label", "app=web", "--label", "env=prod")
    operator.does("create-vm", "acme/web-10", *SIZE, *HOST, "--label", "app=web")
    operator.does("create-vm", "acme/db", *SIZE, *HOST)
    gpus = [one for _ in range(9) for one in ("--gpu", "A40-48Q")]
    operator.does("create-vm", "acme/waits", *SIZE, *gpus, "--queue", "--label", "app=web", "--label", "env=dev")
    return operator


def _selected(operator: Operator, selector: str) -> list[str]:
    return [one["name"] for one in operator.json("list-vms", *ACME, "--selector", selector)]


def test_lists_and_commands_find_vms_by_labels(labelled: Operator) -> None:
    assert _selected(labelled, "app=web") == ["waits", "web-2", "web-10"]
    assert _selected(labelled, "app=web,env notin (dev)") == ["web-2", "web-10"]
    assert _selected(labelled, "!app") == ["db"]
    (row,) = labelled.json("list-vms", "-A", "--selector", "env=prod")
    assert row["labels"] == {"app": "web", "env": "prod"} and row["vm"]["request"]["labels"]
    wide = labelled.does("list-vms", "-o", "wide").out
    assert "LABELS" in wide and "env=prod" in wide
    assert "LABELS" not in labelled.does("list-vms").out
    on = {one["name"]: one["host"] for one in labelled.json("list-vms")}
    assert [one["name"] for one in labelled.json("list-vms", "-l", on["db"])] == [
        name for name, host in on.items() if host == on["db"]
    ]
    assert "--limit names hosts" in labelled.is_refused("list-vms", "-l", "app=web")["hint"]
    would = labelled.json("stop-vm", *ACME, "-l", "simulated_hosts", "--selector", "env", "--dry-run")
    assert [one["vm"]["request"]["name"] for one in would] == ["web-2"]
    assert labelled.is_refused("stop-vm", "acme/db", "-l", on["db"])["exit_code"] == 2
    assert labelled.does("list-vms", "--filter", "labels=env=dev", "-o", "name").out == "acme/waits\n"
    shown = labelled.json("show-vm", *ACME, "--selector", "env")
    assert [(one["labels"], "holders" in one) for one in shown] == [
        ({"app": "web", "env": "dev"}, False),
        ({"app": "web", "env": "prod"}, True),
    ]
    assert "labels    app=web, env=prod" in labelled.does("show-vm", "acme/web-2").out
    assert "labels    app=web, env=dev" in labelled.does("show-vm", "acme/waits").out

    refused = labelled.is_refused("stop-vm", *ACME, "--selector", "app=web,env!=dev")
    assert (refused["exit_code"], refused["reference"]) == (2, "usage"), "it asks before it acts"
    done = labelled.does("stop-vm", *ACME, "--selector", "app=web,env!=dev", *OFF)
    assert "2 VMs: 2 stopped, " in done.err
    assert "1 VM: 1 started, " in labelled.does("start-vm", "acme/web-*", "--selector", "env", "--yes").err
    nothing = labelled.does("stop-vm", *ACME, "--selector", "app=none", *OFF).err
    assert "acme/* with --selector 'app=none': no VM fits, nothing to do" in nothing
    assert labelled.is_refused("stop-vm", "acme/web-2", "--selector", "env")["exit_code"] == 2
    assert "KEY notin (A,B)" in labelled.is_refused("list-vms", "--selector", "app in web")["hint"]


def test_labels_are_set_and_removed(labelled: Operator) -> None:
    change = ("label-vm", "acme/db", "app=db", "example.com/spot=")
    rehearsed = labelled.does(*change, "--dry-run")
    assert "dry run: acme/db: labels app=db, example.com/spot=" in rehearsed.err and _selected(labelled, "!app")
    answer = labelled.json(*change)
    assert answer["changed"] and answer["vms"][0]["labels"] == {"app": "db", "example.com/spot": ""}
    assert labelled.json(*change)["changed"] is False
    refused = labelled.is_refused("label-vm", "acme/*", "app=all", "--yes")
    assert refused["reference"] == "state" and "--overwrite" in refused["hint"]
    assert _selected(labelled, "app=all") == [], "none of them was changed"
    done = labelled.does(
        "label-vm", "--selector", "app=db", *ACME, "app=store", "example.com/spot-", "--overwrite", "--yes"
    )
    assert "acme/db: labels app=store" in done.err and "1 VM: 1 changed" in done.err
    queued = labelled.json("label-vm", "acme/waits", "acme/db", "team=ml")
    assert [one["name"] for one in queued["vms"]] == ["db", "waits"]
    assert _selected(labelled, "team=ml") == ["db", "waits"]
    events = labelled.json("list-events", "acme/waits", "--kind", "vm-labelled")
    assert events[-1]["after"] == {"labels": ["app=web", "env=dev", "team=ml"]}
    for bad in (("label-vm", "acme/db"), ("label-vm", "a=b"), ("label-vm", "acme/db", "a b=c")):
        assert labelled.is_refused(*bad)["exit_code"] == 2
    assert labelled.is_refused("label-vm", "acme/nobody", "a=b")["reference"] == "not-found"
    many = [f"k{number}=" for number in range(64)]
    assert "labels" in labelled.is_refused("label-vm", "acme/db", *many)["message"]


def test_labels_outlive_what_changes_a_vm(labelled: Operator) -> None:
    made = ("create-vm", "acme/keeps", *SIZE, "--label", "app=keeps")
    labelled.does(*made)
    xml = labelled.json("show-vm", "acme/keeps")["xml"]
    metadata = parse_metadata(xml)
    assert metadata is not None and metadata.labels() == (("app", "keeps"),)
    labelled.does("label-vm", "acme/keeps", "more=yes")
    differs = labelled.is_refused(*made)
    assert "label-vm" in differs["hint"] and differs["context"] == [
        "labels: app=keeps, more=yes there, app=keeps wanted"
    ]
    assert labelled.json("create-vm", "acme/keeps", *SIZE)[0]["changed"] is False
    labelled.does("stop-vm", "acme/keeps", "--timeout", "0")
    labelled.does("resize-vm", "acme/keeps", "--vcpus", "2")
    labelled.does("rename-vm", "acme/keeps", "kept")
    labelled.does("move-vm", "acme/kept")
    labelled.does("delete-vm", "acme/kept", "--keep-disk", *OFF)
    labelled.does("restore-vm", "acme/kept")
    assert labelled.json("show-vm", "acme/kept")["labels"] == {"app": "keeps", "more": "yes"}
    labelled.does("delete-vm", "--selector", "app=keeps", *ACME, *OFF)
    assert _selected(labelled, "app=keeps") == []


def test_files_give_labels_and_onboard_changes_them(labelled: Operator, tmp_path: Path) -> None:
    file = tmp_path / "globex.yml"
    head = "version: 1\ntenant: globex\nvms:\n"
    text = head + "- {name: w, memory: 96MiB, vcpus: 1, network: none, labels: {app: shop, empty: ''}}\n"
    file.write_text(text)
    labelled.does("onboard", str(file))
    assert labelled.json("show-vm", "globex/w")["labels"] == {"app": "shop", "empty": ""}
    file.write_text(text.replace("app: shop", "app: other"))
    planned = labelled.json("onboard", str(file), "--dry-run")
    assert "labels: app=shop, empty= there, app=other, empty= wanted" in str(planned)
    labelled.does("onboard", str(file))
    assert labelled.json("show-vm", "globex/w")["labels"]["app"] == "other"
    assert "app" not in str(labelled.json("onboard", str(file)))
    file.write_text(text.replace("shop", "'no good'"))
    refused = labelled.is_refused("onboard", str(file))
    assert refused["message"].startswith(f"{file}:4: ") and "no value of a Kubernetes label" in refused["message"]


def test_a_queued_vm_is_deleted_by_its_labels(labelled: Operator) -> None:
    done = labelled.does("delete-vm", "--selector", "team=ml,env=dev", *ACME, "--yes")
    assert "acme/waits: queued" in done.err
    assert _selected(labelled, "env=dev") == []
