# SPDX-License-Identifier: Apache-2.0
"""show-config, list-contexts, use-context: the settings of files count, and where each comes from is shown."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.operator import Operator


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """An operator whose inventory and store are only in a configuration file."""
    hosts = tmp_path / "hosts.yml"
    hosts.write_text("all: {hosts: {gpu1: {ansible_connection: ssh}}}\n")
    file = tmp_path / "config.yaml"
    file.write_text(
        "output: csv\ncontexts:\n"
        "  one: {database: 'sqlite:///one.db', inventory: hosts.yml, tenant: acme}\n"
        "  two: {database: 'sqlite:///two.db', inventory: hosts.yml}\n"
    )
    made = Operator(tmp_path, hosts, "", {"VGPUCTL_CONFIG": str(file), "XDG_CONFIG_HOME": str(tmp_path)})
    return replace(made, without=("VGPUCTL_DATABASE_URL", "VGPUCTL_INVENTORY"))


def test_commands_use_the_store_inventory_and_tenant_of_the_context(operator: Operator) -> None:
    operator.does("create-tenant", "acme", "--context", "one")
    assert (operator.home / "one.db").exists()
    assert [one["tenant"] for one in operator.json("list-tenants", "--context", "one")] == ["acme"]
    assert operator.json("list-tenants", "--context", "two") == []
    assert operator.does("show-inventory", "--context", "two", "--json").out.count("gpu1") > 0
    refused = operator.is_refused("stop-vm", "web-1", "--context", "one")
    assert "web-1" in refused["message"] and refused["reference"] == "not-found"
    assert "the tenant of" in operator.is_refused("stop-vm", "web-1", "--context", "two")["message"]


def test_the_form_of_lists_is_the_file_s_and_other_commands_print_text(operator: Operator) -> None:
    operator.does("create-tenant", "acme", "--context", "one")
    assert operator.does("list-contexts").out.startswith("context,chosen,tenant,")
    assert operator.does("create-tenant", "acme", "--context", "one").out == ""


def test_each_setting_is_shown_with_what_set_it(operator: Operator) -> None:
    shown = {one["setting"]: one for one in operator.json("show-config", "--context", "one")}
    file = operator.home / "config.yaml"
    assert shown["tenant"]["origin"] == f"{file}:3 (context one)"
    assert shown["output"]["origin"] == f"{file}:1"
    assert shown["forks"]["origin"] == "default"
    assert shown["command_timeout"] | {"meaning": ""} == {
        "setting": "command_timeout",
        "value": "300",
        "origin": "environment VGPUCTL_COMMAND_TIMEOUT",
        "variable": "VGPUCTL_COMMAND_TIMEOUT",
        "meaning": "",
    }


def test_a_context_is_listed_and_chosen_for_the_commands_that_follow(operator: Operator, tmp_path: Path) -> None:
    assert operator.does("list-contexts", "-o", "name").out.split() == ["one", "two"]
    refused = operator.is_refused("use-context", "three")
    assert (refused["reference"], refused["hint"]) == ("not-found", "contexts: one, two")
    assert operator.json("use-context", "two")["changed"] is True
    assert operator.json("use-context", "two")["changed"] is False
    chosen = tmp_path / "vgpuctl/config.yaml"
    assert chosen.read_text() == "context: two\n"
    chosen.write_text(f"{chosen.read_text()}contexts:\n  two: {{database: 'sqlite:///of-user.db'}}\n")
    by_default = replace(operator, without=(*operator.without, "VGPUCTL_CONFIG"))
    assert [(one["name"], one["is_chosen"]) for one in by_default.json("list-contexts")] == [("two", True)]


def test_a_wrong_file_is_named_with_its_line_and_help_still_works(operator: Operator) -> None:
    (operator.home / "config.yaml").write_text("forks: 3\nfroks: 4\n")
    refused = operator.is_refused("list-tenants")
    assert (
        refused["message"].startswith(f"{operator.home}/config.yaml:2: ") and refused["hint"] == "did you mean forks?"
    )
    assert "Usage:" in operator.does("list-tenants", "--help").out


def test_names_are_completed_from_the_store_of_the_context(operator: Operator) -> None:
    for tenant in ("acme", "aperture", "umbrella"):
        operator.does("create-tenant", tenant, "--context", "two")

    def completed(line: str) -> list[str]:
        words = {"_VGPUCTL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
        done = replace(operator, variables={**operator.variables, **words}).run()
        assert (done.code, done.err) == (0, ""), done
        return [one.partition(",")[2] for one in filter(None, done.out.splitlines())]

    assert completed("vgpuctl set-quota --context two a") == ["acme", "aperture"]
    assert completed("vgpuctl set-quota --context one ") == []
    assert completed("vgpuctl list-vms --context t") == ["two"]
    assert completed("vgpuctl list-vms -o w") == ["wide"]
    assert "complete -o nosort" in operator.does("completion", "bash").out
    assert "create-network" in operator.does("help", "networks").out
    assert "#compdef vgpuctl" in operator.does("completion", "zsh").out
