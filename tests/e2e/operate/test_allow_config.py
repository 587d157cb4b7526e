# SPDX-License-Identifier: Apache-2.0
"""allow-config: a configuration file that lies in a folder does nothing before its user has allowed it."""

import contextlib
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.operator import Operator

VALUES = ("--json", "--with-secrets")
_COMMANDS = ("list-hosts", "show-inventory", "list-vms", "show-config", "list-contexts", "check-hosts", "map")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from somebody else, which is entered. Its file names an inventory that runs a program."""
    made = tmp_path / "checkout"
    made.mkdir()
    (made / "hosts.yml").write_text(
        f"all: {{hosts: {{gpu1: {{ansible_ssh_common_args: '-o ProxyCommand=\"touch {made}/ran\"'}}}}}}\n"
    )
    (made / "vgpuctl.yaml").write_text("inventory: hosts.yml\ndatabase: sqlite:///store.db\ntenant: evil\n")
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def operator(tmp_path: Path, folder: Path) -> Operator:
    """An operator who has configured nothing."""
    assert folder.is_dir()
    of_user = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    unset = ("VGPUCTL_DATABASE_URL", "VGPUCTL_INVENTORY", "VGPUCTL_CONFIG")
    return Operator(tmp_path, folder, "", of_user, unset)


def _effects(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if one.name in ("ran", "store.db", "was-here"))


def test_a_folder_that_is_only_entered_sets_nothing_and_one_line_says_so(operator: Operator, folder: Path) -> None:
    for command in _COMMANDS:
        done = operator.run(command)
        about = [line for line in done.err.splitlines() if "vgpuctl.yaml" in line]
        said = "is not used: it is not allowed yet; `vgpuctl allow-config` shows it and asks"
        assert about == [f"warning: {folder}/vgpuctl.yaml {said}"]
    assert _effects(folder) == []
    settings = {one["setting"]: one["value"] for one in operator.json("show-config")}
    assert {settings["tenant"], settings["inventory"], settings["database"]} == {None}


def test_an_allowed_file_counts_here_and_below_until_it_changes(
    operator: Operator, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = operator.run("allow-config")
    assert shown.code == 2 and "tenant: evil" in shown.err and str(folder / "vgpuctl.yaml") in shown.err
    assert "not used" not in shown.err
    assert operator.json("allow-config", "--dry-run")["changed"] is True
    assert operator.run("list-hosts").code != 0 and _effects(folder) == []
    assert operator.json("allow-config", "--yes") == {
        "file": str(folder / "vgpuctl.yaml"),
        "is_allowed": True,
        "changed": True,
    }
    assert operator.json("allow-config", "--yes")["changed"] is False
    (folder / "below").mkdir()
    monkeypatch.chdir(folder / "below")
    operator.run("list-hosts")
    assert _effects(folder) == ["ran", "store.db"]
    (folder / "ran").unlink()
    (folder / "vgpuctl.yaml").write_text((folder / "vgpuctl.yaml").read_text() + "forks: 3\n")
    assert "it has changed since it was allowed" in operator.run("list-hosts").err
    assert _effects(folder) == ["store.db"]


def test_a_file_is_allowed_no_longer_after_forget_also_one_that_is_gone(operator: Operator, folder: Path) -> None:
    operator.does("allow-config", str(folder), "--yes")
    text = (folder / "vgpuctl.yaml").read_text()
    (folder / "vgpuctl.yaml").unlink()
    assert operator.json("allow-config", "--forget", str(folder))["changed"] is True
    assert operator.json("allow-config", "--forget", str(folder))["changed"] is False
    (folder / "vgpuctl.yaml").write_text(text)
    assert "not allowed yet" in operator.run("list-vms").err


def test_the_same_file_at_another_place_is_another_one(operator: Operator, folder: Path, tmp_path: Path) -> None:
    operator.does("allow-config", "--yes")
    other = tmp_path / "other"
    other.mkdir()
    (other / "vgpuctl.yaml").write_bytes((folder / "vgpuctl.yaml").read_bytes())
    with contextlib.chdir(other):
        assert "not allowed yet" in operator.run("list-vms").err
    (tmp_path / "link").symlink_to(folder)
    with contextlib.chdir(tmp_path / "link"):
        assert "not allowed yet" not in operator.run("list-vms").err


@pytest.mark.parametrize(
    ("content", "reference"),
    [("froks: 3\n", "inventory"), ("- a\n", "inventory"), ("a: [\n", "inventory"), ("\x00", "inventory")],
)
def test_a_wrong_file_is_not_allowed(content: str, reference: str, operator: Operator, folder: Path) -> None:
    (folder / "vgpuctl.yaml").write_text(content)
    assert operator.is_refused("allow-config", "--yes")["reference"] == reference
    assert "not allowed yet" in operator.run("list-vms").err  # a wrong file that is not allowed stops no command


def test_what_can_be_written_by_others_cannot_be_allowed(operator: Operator, folder: Path) -> None:
    (folder / "vgpuctl.yaml").chmod(0o666)
    refused = operator.is_refused("allow-config", "--yes")
    assert refused["reference"] == "file-not-trusted" and "chmod o-w" in refused["hint"]


def test_nothing_is_shown_that_acts_on_the_terminal(operator: Operator, folder: Path) -> None:
    (folder / "vgpuctl.yaml").write_text("tenant: acme # \u202e\n")
    assert "\\u202e" in operator.run("allow-config").err


def test_other_names_and_missing_files_are_errors(operator: Operator, folder: Path) -> None:
    assert operator.is_refused("allow-config", str(folder / "hosts.yml"), "--yes")["reference"] == "usage"
    assert "cannot be read" in operator.is_refused("allow-config", "absent/vgpuctl.yaml", "--yes")["message"]
    (folder / "vgpuctl.yaml").unlink()
    assert operator.is_refused("allow-config", "--yes")["reference"] == "not-found"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that somebody else runs, to which nobody should connect."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.setblocking(False)
        yield made


def test_completion_says_nothing_runs_nothing_and_connects_to_nothing(
    operator: Operator, folder: Path, listener: socket.socket
) -> None:
    script = folder / "inventory.sh"
    script.write_text(f"#!/bin/sh\ntouch {folder}/was-here\necho '{{}}'\n")
    script.chmod(0o755)
    (folder / "vgpuctl.yaml").write_text(
        f"database: postgresql://root@127.0.0.1:{listener.getsockname()[1]}/x\n"
        "inventory: inventory.sh\ninventory_reader: ansible\n"
    )
    for line in ("vgpuctl show-vm ", "vgpuctl list-hosts ", "vgpuctl list-vms --context ", "vgpuctl list-vms -t "):
        words = {"_VGPUCTL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        done = replace(operator, variables={**operator.variables, **words}).run()
        assert (done.code, done.err) == (0, ""), done
    with pytest.raises(BlockingIOError):
        listener.accept()
    assert _effects(folder) == []


@pytest.mark.parametrize("reader", ["vgpuctl", "ansible"])
def test_variables_of_a_folder_that_is_only_entered_do_not_count(
    reader: str, operator: Operator, folder: Path, tmp_path: Path
) -> None:
    (folder / "vgpuctl.yaml").unlink()
    (folder / "group_vars").mkdir()
    (folder / "group_vars/all.yml").write_text("where: entered\n")
    (folder / "ansible.cfg").write_text("[defaults]\ninventory_plugins = .\n")
    mine = tmp_path / "mine"
    (mine / "host_vars").mkdir(parents=True)
    (mine / "hosts.yml").write_text("all: {hosts: {gpu1: {}}}\n")
    (mine / "host_vars/gpu1.yml").write_text("own: true\n")
    done = operator.run("show-inventory", "-i", str(mine / "hosts.yml"), "--inventory-reader", reader, *VALUES)
    assert done.code == 0, done.err
    assert "entered" not in done.out and '"own": true' in done.out
    assert f"group_vars{' and ansible.cfg' if reader == 'ansible' else ''} of {folder} are not used" in done.err
    (mine / "hosts.yml").replace(folder / "hosts.yml")
    done = operator.run("show-inventory", "-i", "hosts.yml", "--inventory-reader", reader, *VALUES)
    assert "entered" in done.out and "not used" not in done.err


@pytest.fixture
def rehearsal(operator: Operator, folder: Path, tmp_path: Path) -> Operator:
    """An operator whose context is prod, in a folder whose allowed file chose rehearsal and has changed since."""
    mine = tmp_path / "config/vgpuctl/config.yaml"
    mine.parent.mkdir(parents=True)
    stores = "\n".join(f"  {one}: {{database: 'sqlite:///{tmp_path}/{one}.db'}}" for one in ("prod", "rehearsal"))
    mine.write_text(f"context: prod\ncontexts:\n{stores}\n")
    (folder / "vgpuctl.yaml").write_text("context: rehearsal\n")
    operator.does("allow-config", "--yes")
    operator.does("create-tenant", "acme")
    assert (tmp_path / "rehearsal.db").exists()
    with (folder / "vgpuctl.yaml").open("a") as file:
        file.write("# note\n")
    return operator


def test_a_command_that_changes_something_does_not_do_it_elsewhere(rehearsal: Operator, tmp_path: Path) -> None:
    for command in (
        ("-q", "create-tenant", "globex"),
        ("create-tenant", "globex", "--dry-run"),
        ("delete-vm", "web", "--tenant", "acme", "--yes"),
        ("apply-hosts", "-i", "gpu1,"),
        ("gc", "--yes"),
        ("controller", "--once"),
        ("check-hosts", "--snapshot"),
        ("backup-store", str(tmp_path / "backup")),
        ("serve", "autoscaler", "--tenant", "acme", "--cluster", "k8s"),
    ):
        refused = rehearsal.is_refused(*command)
        assert refused["reference"] == "file-not-trusted", refused
        assert "it has changed since it was allowed" in refused["message"]
        assert "`vgpuctl allow-config`" in refused["hint"] and "--database" in refused["hint"]
    assert not (tmp_path / "prod.db").exists()


def test_a_command_that_only_reads_goes_on_and_warns_also_with_q(rehearsal: Operator) -> None:
    for command in ("list-tenants", "list-vms", "show-config", "list-contexts"):
        done = rehearsal.does("-q", command)
        assert "warning: " in done.err and "has changed since it was allowed" in done.err


def test_naming_the_store_or_a_context_is_consent_to_go_on(rehearsal: Operator, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    rehearsal.does("create-tenant", "one", "--database", other)
    rehearsal.does("create-tenant", "two", "--context", "rehearsal")
    for variables in (
        {"VGPUCTL_DATABASE_URL": other},
        {"VGPUCTL_CONTEXT": "rehearsal"},
        {"VGPUCTL_CONFIG": ""},
    ):
        unset = [one for one in rehearsal.without if one not in variables]
        named = replace(rehearsal, variables={**rehearsal.variables, **variables}, without=unset)
        named.does("create-tenant", "three")
    assert not (tmp_path / "prod.db").exists()


def test_a_link_to_an_allowed_file_is_another_file(operator: Operator, folder: Path, tmp_path: Path) -> None:
    operator.does("allow-config", "--yes")
    other = tmp_path / "other"
    other.mkdir()
    (other / "vgpuctl.yaml").symlink_to("../checkout/vgpuctl.yaml")
    with contextlib.chdir(other):
        assert f"{other}/vgpuctl.yaml is not used: it is not allowed yet" in operator.run("list-vms").err
        shown = operator.run("allow-config")
        assert f"{other}/vgpuctl.yaml" in shown.err and f"{folder}/vgpuctl.yaml" in shown.err
        operator.does("allow-config", "--yes")
        assert "not used" not in operator.run("list-vms").err
        settings = {one["setting"]: one["value"] for one in operator.json("show-config")}
        assert settings["inventory"] == [str(folder / "hosts.yml")]
        copied = tmp_path / "copied"
        copied.mkdir()
        (copied / "vgpuctl.yaml").write_bytes((folder / "vgpuctl.yaml").read_bytes())
        (other / "vgpuctl.yaml").unlink()
        (other / "vgpuctl.yaml").symlink_to(copied / "vgpuctl.yaml")  # the same content beside other files
        assert "has changed since it was allowed" in operator.run("list-vms").err
        assert operator.json("allow-config", "--forget")["changed"] is True
        assert "not allowed yet" in operator.run("list-vms").err
    assert "not used" not in operator.run("list-vms").err


def test_a_pipe_in_the_place_of_the_file_costs_no_time(operator: Operator, folder: Path) -> None:
    (folder / "vgpuctl.yaml").unlink()
    os.mkfifo(folder / "vgpuctl.yaml", 0o600)
    assert f"warning: {folder}/vgpuctl.yaml is not used: it is a pipe" in operator.does("list-tenants").err
    assert "it is a pipe" in operator.is_refused("allow-config", "--yes")["message"]


def test_the_content_is_shown_also_when_nobody_is_asked(operator: Operator, folder: Path) -> None:
    assert "tenant: evil" in operator.does("allow-config", "--yes").err
    forgotten = operator.does("allow-config", "--forget", "--dry-run").err
    assert f"{folder}/vgpuctl.yaml: would not be used any more" in forgotten


def test_a_folder_that_was_deleted_is_told(operator: Operator, folder: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.yml"
    mine.write_text("all: {hosts: {gpu1: {}}}\n")
    shutil.rmtree(folder)
    for command in (
        ("allow-config",),
        ("allow-config", "--forget"),
        ("show-inventory", "-i", "x.yml"),
        ("list-hosts", "-i", "x.yml"),
    ):
        said = operator.start(*command).communicate()[1]
        assert said.splitlines()[0] == "error: the working folder was deleted", said
    for source in (str(mine), "gpu1,"):
        assert "gpu1" in operator.start("show-inventory", "-i", source).communicate()[0]
