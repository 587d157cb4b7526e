# SPDX-License-Identifier: Apache-2.0
"""What the command line cannot read is told in words to people and as JSON to programs."""

import json
from pathlib import Path

import pytest

from vgpuctl.cli.main import run


@pytest.mark.parametrize("form", [["--json"], ["-o", "json"], ["-ojson"], ["--output=json"], ["--output", "yaml"]])
@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["list-gpus", "--nope"], "No such option '--nope'.", "see `vgpuctl list-gpus --help`"),
        (["nope"], "No such command 'nope'.", "see `vgpuctl --help`"),
        (["list-gpus", "gpu1"], "Got unexpected extra argument (gpu1); hosts are", "see `vgpuctl list-gpus --help`"),
        (["delete-vm", "a", "--timeout", "soon"], "Invalid value for '--timeout'", "see `vgpuctl delete-vm --help`"),
    ],
)
def test_a_wrong_command_line_is_json_where_json_is_wanted(
    words: list[str], message: str, hint: str, form: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for line in ([*words, *form], [words[0], *form, *words[1:]]):
        assert run(line) == 2
        out, err = capsys.readouterr()
        error = json.loads(err)["error"]
        assert (out, error["reference"], error["context"]) == ("", "usage", [])
        assert error["message"].startswith(message) and error["hint"].startswith(hint)


@pytest.mark.parametrize(
    ("words", "usual", "is_json"),
    [
        (["list-vms", "-Ao", "json", "--bogus"], "", True),
        (["list-vms", "-Aojson", "--bogus"], "", True),
        (["show-vm", "--bogus", "--", "--json"], "", False),
        (["show-vm", "--bogus", "see -o json"], "", False),
        (["list-vms", "--bogus", "-o", "csv"], "json", False),
        (["list-vms", "--bogus"], "json", True),
        (["frobnicate"], "yaml", True),
        (["export", "foo"], "json", True),
        (["export"], "json", False),
        (["list-vms", "--bogus"], "table", False),
    ],
)
def test_json_is_wanted_by_options_and_by_the_environment(
    words: list[str], usual: str, is_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VGPUCTL_OUTPUT", usual)
    monkeypatch.setenv("VGPUCTL_CONFIG", "")
    assert run(words) == 2
    assert capsys.readouterr().err.startswith('{"error"') == is_json


@pytest.mark.parametrize(
    ("words", "is_told"),
    [
        (["create-tenant", "acme"], True),
        (["create-tenant", "acme", "--dry-run"], False),
        (["list-tenants"], False),
        (["check-vm", "acme/web-1"], True),
    ],
)
def test_an_interrupt_speaks_of_repair_where_something_may_be_left(
    words: list[str], is_told: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupt(*_given: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vgpuctl.wiring.open_services", interrupt)
    assert run([*words, "--database", f"sqlite:///{tmp_path}/store.db"]) == 130
    assert ("`vgpuctl repair`" in capsys.readouterr().err) == is_told
