# SPDX-License-Identifier: Apache-2.0
"""The value of --database: files, and the warning of a visible password, which is never repeated."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from vgpuctl.cli.options import options
from vgpuctl.errors import FileNotTrusted, UsageError


@click.command()
@options.database
def _command(database: str | None) -> None:
    click.echo(f"opened {(database or 'none').partition('@')[2] or database}")


@pytest.mark.parametrize(
    ("url", "warns"),
    [
        ("postgresql://vgpu:s3cret@db/vgpu", True),
        ("postgresql://vgpu:s3@cret@db/vgpu", True),
        ("postgresql+psycopg://db/vgpu?user=a&password=s3cret", True),
        ("postgresql://vgpu@db:5432/vgpu", False),
        ("postgresql://?service=vgpu", False),
        ("sqlite:////srv/a:b/store.db", False),
    ],
)
def test_a_password_on_the_command_line_is_warned_of(url: str, *, warns: bool) -> None:
    given = CliRunner().invoke(_command, ["--database", url])
    assert ("visible to every user" in given.stderr, "s3" in given.stderr) == (warns, False)
    from_environment = CliRunner().invoke(_command, [], env={"VGPUCTL_DATABASE_URL": url})
    assert from_environment.stderr == ""


def test_a_file_holds_the_url_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "database"
    file.write_text("postgresql://vgpu:s3cret@db/vgpu\n")
    file.chmod(0o600)
    assert CliRunner().invoke(_command, ["--database", f"@{file}"]).output == "opened db/vgpu\n"
    file.chmod(0o644)
    refused = CliRunner().invoke(_command, ["--database", f"@{file}"]).exception
    assert isinstance(refused, FileNotTrusted)
    assert ("chmod o-r" in (refused.hint or ""), "s3cret" in refused.message) == (True, False)
    missing = CliRunner().invoke(_command, ["--database", f"@{tmp_path}/none"]).exception
    assert isinstance(missing, UsageError)


@pytest.mark.parametrize("url", ["postgresql://u:seed@h/db", "postgres:/u:seed@h", "sqlite:///seed", "//x:/seed"])
def test_a_url_in_the_place_of_the_file_is_not_repeated(url: str) -> None:
    refused = CliRunner().invoke(_command, ["--database", f"@{url}"])
    assert isinstance(refused.exception, UsageError)
    assert "seed" not in f"{refused.exception} {refused.exception.hint} {refused.output}"
