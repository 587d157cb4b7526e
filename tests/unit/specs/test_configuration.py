# SPDX-License-Identifier: Apache-2.0
"""Configuration files: what they may say, which one counts, and which is not trusted."""

from pathlib import Path

import pytest

from vgpuctl.errors import InventoryError, NotFound, UsageError
from vgpuctl.model.configuration import VARIABLES
from vgpuctl.specs.configuration import CONTEXT, with_context
from vgpuctl.usecases.operate.allow_config import allow_config, read_config
from vgpuctl.usecases.operate.show_config import show_config
from vgpuctl.usecases.running.configuration import load_configuration

_USER = """\
# ours
forks: 20
output: wide
context: prod
contexts:
  prod: {database: "postgresql://ops:secret@db/fleet", inventory: hosts.yml, tenant: acme}
  lab:
    database: sqlite:///lab.db
    inventory: ["gpu1,", "~/hosts"]
    forks: 5
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a file of two contexts, and a folder for a project."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    file = tmp_path / "config/vgpuctl/config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(_USER)
    (tmp_path / "project/inner").mkdir(parents=True)
    return file


def _allow(folder: Path) -> None:
    allow_config(read_config(folder, folder), dry_run=False)


def _values(folder: Path, context: str | None = None, **environment: str) -> dict[str, object]:
    return {key: one.value for key, one in load_configuration(environment, folder, context).settings.items()}


def test_the_chosen_context_and_what_is_outside_of_contexts_count(user: Path) -> None:
    assert _values(user.parents[2]) == {
        "forks": 20,
        "output": "wide",
        "database": "postgresql://ops:secret@db/fleet",
        "inventory": (str(user.parent / "hosts.yml"),),
        "tenant": "acme",
    }


def test_another_context_is_chosen_by_the_option_or_the_variable(user: Path) -> None:
    lab = {
        "forks": 5,
        "output": "wide",
        "database": f"sqlite:///{user.parent}/lab.db",
        "inventory": ("gpu1,", str(user.parents[2] / "hosts")),
    }
    assert _values(user.parents[2], "lab") == lab
    assert _values(user.parents[2], VGPUCTL_CONTEXT="lab") == lab
    assert load_configuration({"VGPUCTL_CONTEXT": "prod"}, user.parent, "lab").chosen_by == "--context"


def test_a_project_s_file_counts_more_and_is_found_from_below(user: Path) -> None:
    project = user.parents[2] / "project"
    (project / "vgpuctl.yaml").write_text("tenant: umbrella\ninventory: here.yml\n")
    _allow(project)
    found = load_configuration({}, project / "inner", None)
    assert found.settings["tenant"].value == "umbrella"
    assert found.settings["tenant"].origin == f"{project}/vgpuctl.yaml:1"
    assert found.settings["inventory"].value == (str(project / "here.yml"),)
    assert found.settings["database"].origin == f"{user}:6 (context prod)"
    assert found.files == (str(project / "vgpuctl.yaml"), str(user))


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_project_s_file_that_others_may_write_is_ignored_and_named(what: str, user: Path) -> None:
    project = user.parents[2] / "project"
    (project / "vgpuctl.yaml").write_text("tenant: evil\n")
    _allow(project)
    (project if what == "folder" else project / "vgpuctl.yaml").chmod(0o777)
    found = load_configuration({}, project, None)
    assert found.settings["tenant"].value == "acme"
    assert found.unused is not None and "chmod o-w" in found.unused.remedy
    assert found.unused.reason.startswith(f"{project}/vgpuctl.yaml is not used: ")


def test_one_file_can_be_named_or_none(user: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("forks: 3\n")
    assert _values(tmp_path, VGPUCTL_CONFIG=str(other)) == {"forks": 3}
    assert _values(tmp_path, VGPUCTL_CONFIG="") == {}
    with pytest.raises(UsageError, match=r"VGPUCTL_CONFIG names .*absent\.yaml, which is no file"):
        _values(tmp_path, VGPUCTL_CONFIG=str(tmp_path / "absent.yaml"))


def test_an_unknown_context_names_those_there_are(user: Path) -> None:
    with pytest.raises(NotFound, match="VGPUCTL_CONTEXT names the context 'labb', which no file has") as caught:
        _values(user.parent, VGPUCTL_CONTEXT="labb")
    assert caught.value.hint == "contexts: lab, prod"


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("forsk: 1\n", 1, "configuration.forsk is not a key of a configuration file"),
        ("forks: many\n", 1, "forks is 'many', text, not a whole number"),
        ("output: tabel\n", 1, "is 'tabel', not a form of output"),
        ("contexts:\n  a:\n    tenat: x\n", 3, "tenat is not a key of a context"),
        ("contexts:\n  ../a: {}\n", 2, "the name of a context is '../a'"),
        ("contexts: [a]\n", 1, "contexts is a list, not a mapping"),
        ("- a\n", 1, "is a list, not a mapping"),
        ("forks: 1\n  x: 2\n", 2, "mapping values are not allowed"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(text: str, line: int, message: str, user: Path) -> None:
    user.write_text(text)
    with pytest.raises(InventoryError) as caught:
        _values(user.parent)
    assert caught.value.message.startswith(f"{user}:{line}:")
    assert message in caught.value.message


def test_a_context_without_settings_is_one(user: Path) -> None:
    user.write_text("context: empty\ncontexts:\n  empty:\n")
    found = load_configuration({}, user.parent, None)
    assert (found.context, dict(found.settings)) == ("empty", {})


def test_choosing_a_context_changes_one_line_of_the_file(user: Path) -> None:
    assert with_context(user, _USER, "lab") == _USER.replace("context: prod", "context: lab")
    assert with_context(user, "# mine\nforks: 1\n", "lab") == "context: lab\n# mine\nforks: 1\n"


def test_shown_settings_name_their_origin_and_no_password(user: Path) -> None:
    shown = {one.setting: one for one in show_config(load_configuration({}, user.parent, None), {"VGPUCTL_FORKS": "7"})}
    assert list(shown) == [one.key for one in CONTEXT.fields]
    assert (shown["forks"].value, shown["forks"].origin) == ("7", "environment VGPUCTL_FORKS")
    assert shown["database"].value == "postgresql://ops:***@db/fleet"
    assert (shown["key_file"].value, shown["key_file"].origin) == (None, "default")
    assert VARIABLES["database"] == "VGPUCTL_DATABASE_URL"


def test_a_key_with_dashes_counts_as_well(user: Path) -> None:
    user.write_text("command-timeout: 7\n")
    assert _values(user.parent)["command_timeout"] == 7


@pytest.mark.parametrize(
    "text",
    ["s3cret:$6$x:19000:0:99999:7:::\n", "s3cret:$6$x:19000::::x\n", "s3cret word\n", "s3cret = 5\n", "@s3cret\n"],
)
def test_nothing_is_quoted_of_another_file(text: str, user: Path) -> None:
    """A link may lead to a file of secrets, such as /etc/shadow."""
    user.write_text(text)
    with pytest.raises(InventoryError) as caught:
        _values(user.parent)
    assert "s3cret" not in caught.value.message and "$6$" not in f"{caught.value.message} {caught.value.hint}"
