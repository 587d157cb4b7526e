# SPDX-License-Identifier: Apache-2.0
"""Files of ssh_config that others may write to: ssh is not even asked with them, for Match exec runs when it is."""

from pathlib import Path

import pytest

from vgpuctl.errors import FileNotTrusted
from vgpuctl.hosts import ssh_files
from vgpuctl.hosts.settings import SshSettings
from vgpuctl.hosts.ssh_config import resolve
from vgpuctl.hosts.ssh_program import SshProgram
from vgpuctl.hosts.ssh_tokens import own_home
from vgpuctl.model.host_target import HostTarget

EXEC = 'Match exec "touch {folder}/RAN"\n'
# The content of ssh_config, and the file that others may write to.
INCLUDED: dict[str, tuple[str, str]] = {
    "itself": ("", "config"),
    "plain": ("Include {folder}/d/inc", "d/inc"),
    "in-a-folder": ("Include {folder}/d/inc", "d"),
    "in-quotes": ('  include = "{folder}/d/with blank"', "d/with blank"),
    "escaped": (r"INCLUDE {folder}/d/with\ blank", "d/with blank"),
    "second-of-several": ("Include {folder}/d/none '{folder}/d/inc' # what", "d/inc"),
    "by-pattern": ("Include {folder}/d/i*", "d/inc"),
    "by-class": ("Include {folder}/[d]/[^a]nc", "d/inc"),
    "by-home": ("Include {from_home}/d/inc", "d/inc"),
    "below": ("Include {folder}/safe", "d/inc"),
    "of-no-host": ("Host nowhere\n  Include {folder}/d/inc", "d/inc"),
    "folder-of-a-pattern": ("Include {folder}/d/none*", "d"),
    "by-variable": ("Include ${{FOLDER}}/d/inc", "d/inc"),
    "by-token": ("Include {folder}/d/i%%nc*", "d/i%nc"),
}
TARGETS = {
    "plain": HostTarget(name="gpu1", address="127.0.0.1"),
    "other-user": HostTarget(name="gpu1", address="127.0.0.1", user="a+b"),
    "capitals": HostTarget(name="gpu1", address="UPPER.example"),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize(("text", "wide"), INCLUDED.values(), ids=INCLUDED)
def test_a_file_that_others_may_write_to_is_not_included(
    text: str, wide: str, target: HostTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FOLDER", str(tmp_path))
    places = {"folder": tmp_path, "from_home": f"~{'/..' * own_home().count('/')}{tmp_path}"}
    (tmp_path / "d").mkdir()
    for name in ("config", "safe", "d/inc", "d/with blank", "d/i%nc"):
        (tmp_path / name).write_text(EXEC.format(folder=tmp_path))
    (tmp_path / "config").write_text(f"# Include nothing\n{text.format(**places)}\n{EXEC.format(folder=tmp_path)}")
    (tmp_path / "safe").write_text(f"Include {tmp_path}/d/inc\n")
    path = tmp_path / wide
    path.chmod(0o777 if path.is_dir() else 0o666)
    with pytest.raises(FileNotTrusted, match="may be written to by every user"):
        resolve(target, SshSettings(ssh_config_file=tmp_path / "config"))
    with pytest.raises(FileNotTrusted, match="may be written to by every user"):
        SshProgram().ask_once(["-F", str(tmp_path / "config")], "jump", name="jump")
    assert not (tmp_path / "RAN").exists()
    path.chmod(0o755 if path.is_dir() else 0o644)
    resolve(target, SshSettings(ssh_config_file=tmp_path / "config"))
    assert (tmp_path / "RAN").exists()


def test_the_files_that_ssh_finds_itself_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh_config").write_text("Include ssh_config inc gone\n")
    (tmp_path / "inc").touch()
    monkeypatch.setattr(ssh_files, "SYSTEM", (str(tmp_path),))
    ssh_files.judge_files(None)
    (tmp_path / "inc").chmod(0o666)
    ssh_files.judge_files("none")
    with pytest.raises(FileNotTrusted, match=r"/inc is not used"):
        ssh_files.judge_files(None)
