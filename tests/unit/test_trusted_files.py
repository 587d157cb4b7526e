# SPDX-License-Identifier: Apache-2.0
"""Who could have written a file decides whether it is used: owner, mode, access control list, and the way to it."""

import grp
import os
import pwd
import re
import shlex
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vgpuctl.errors import FileNotTrusted
from vgpuctl.trusted_files import FOUND, FOUND_SECRET, NAMED, NAMED_SECRET, Trust, judge, opened
from vgpuctl.trusted_trees import judge_tree

STRANGER = pwd.getpwnam("nobody")
OTHER = pwd.getpwnam("games")
"""A user with a group of its own, in which nobody else is."""
gives_files_away = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


def read(path: Path | str, trust: Trust = FOUND) -> bytes:
    """Read a file through the gate."""
    with opened(path, trust) as file:
        return os.read(file.descriptor, 100)


def give_acl(path: Path, tag: int, number: int, rights: int, mask: int = 7) -> None:
    """Give a user (tag 2) or a group (tag 8) rights by an access control list."""
    entries = [(0x01, 7, 0xFFFFFFFF), (0x04, 5, 0xFFFFFFFF), (tag, rights, number)]
    entries += [(0x10, mask, 0xFFFFFFFF), (0x20, 5, 0xFFFFFFFF)]
    packed = b"".join(struct.pack("<HHI", *entry) for entry in sorted(entries))
    os.setxattr(path, "system.posix_acl_access", struct.pack("<I", 2) + packed)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of ours, two folders down."""
    path = tmp_path / "above/folder/file"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"content")
    for one, mode in ((path, 0o644), (path.parent, 0o755), (path.parent.parent, 0o755)):
        one.chmod(mode)
    return path


def shared_by_group(path: Path) -> None:
    """A folder as teams share it: new files belong to the group."""
    os.chown(path, -1, STRANGER.pw_gid)
    path.chmod(0o2775)


def group_writes(path: Path) -> None:
    os.chown(path, -1, STRANGER.pw_gid)
    path.chmod(0o664)


def linked_by_stranger(path: Path) -> None:
    """Another user's link, in a folder where anyone may add one."""
    there = path.with_name("there")
    path.rename(there)
    path.parent.chmod(0o1777)
    path.symlink_to(there)
    os.lchown(path, STRANGER.pw_uid, STRANGER.pw_gid)


def linked_into_shared_folder(path: Path) -> None:
    """Our link leads through a folder that a group may change."""
    shared = path.parent.parent.parent / "shared"
    shared.mkdir()
    there = path.rename(shared / "there")
    shared_by_group(shared)
    path.symlink_to(os.path.relpath(there, path.parent))


WIDE: list[tuple[str, Callable[[Path], None], str, str]] = [
    ("mode", lambda file: file.chmod(0o646), "it may be written to by every user (mode 0646)", "chmod o-w {file}"),
    ("group", group_writes, "it may be written to by the group nogroup (mode 0664)", "chmod g-w {file}"),
    ("owner", lambda file: os.chown(file, STRANGER.pw_uid, -1), "it belongs to nobody", "chown root {file}"),
    (
        "list",
        lambda file: give_acl(file, 2, STRANGER.pw_uid, 6),
        "it may be written to by the user nobody, by its access control list",
        "setfacl -x u:nobody {file}",
    ),
    (
        "list-of-a-group",
        lambda file: give_acl(file, 8, STRANGER.pw_gid, 6),
        "it may be written to by the group nogroup, by its access control list",
        "setfacl -x g:nogroup {file}",
    ),
    (
        "folder",
        lambda file: file.parent.chmod(0o777),
        "the folder {folder}, on the way to it, may be written to by every user (mode 0777)",
        "chmod o-w {folder}",
    ),
    (
        "shared-folder",
        lambda file: shared_by_group(file.parent),
        "the folder {folder}, on the way to it, may be written to by the group nogroup (mode 2775)",
        "chmod g-w {folder}",
    ),
    (
        "folder-above",
        lambda file: shared_by_group(file.parent.parent),
        "the folder {above}, on the way to it, may be written to by the group nogroup (mode 2775)",
        "chmod g-w {above}",
    ),
    (
        "folder-s-owner",
        lambda file: os.chown(file.parent, STRANGER.pw_uid, -1),
        "the folder {folder}, on the way to it, belongs to nobody",
        "",
    ),
    (
        "folder-s-list",
        lambda file: give_acl(file.parent, 2, STRANGER.pw_uid, 7),
        "the folder {folder}, on the way to it, may be written to by the user nobody, by its access control list",
        "setfacl -x u:nobody {folder}",
    ),
    ("link", linked_by_stranger, "the link {file}, on the way to it, belongs to nobody", "chown -h root {file}"),
    (
        "link-into-shared-folder",
        linked_into_shared_folder,
        "the folder {shared}, on the way to it, may be written to by the group nogroup (mode 2775)",
        "chmod g-w {shared}",
    ),
]


@gives_files_away
@pytest.mark.parametrize("trust", [FOUND, NAMED], ids=["found", "named"])
@pytest.mark.parametrize(("widen", "reason", "remedy"), [row[1:] for row in WIDE], ids=[row[0] for row in WIDE])
def test_a_file_that_a_stranger_could_have_written_is_not_used(
    file: Path, trust: Trust, widen: Callable[[Path], None], reason: str, remedy: str
) -> None:
    above = file.parent.parent
    names = {"file": file, "folder": file.parent, "above": above, "shared": above.parent / "shared"}
    assert read(file, trust) == b"content"
    widen(file)
    if trust is NAMED and remedy == "chown root {file}" and not file.is_symlink():
        assert read(file, trust) == b"content"  # naming it is consent to its owner
        return
    with pytest.raises(FileNotTrusted) as refused:
        read(file, trust)
    with pytest.raises(FileNotTrusted, match=re.escape(refused.value.message)):
        judge(file, trust)
    assert refused.value.message == f"{file.resolve()} is not used: {reason.format(**names)}"
    hint = refused.value.hint or ""
    if remedy:
        assert f"`{remedy.format(**names)}`" in hint
    else:
        assert "`" not in hint and "copy" in hint
    if remedy.startswith("ch"):
        subprocess.run(shlex.split(remedy.format(**names)), check=True)
        assert read(file, trust) == b"content"


@gives_files_away
def test_nobody_is_told_to_take_over_the_folder_of_another_user(file: Path) -> None:
    home, project = file.parent.parent, file.parent
    for one in (home, project, file):
        os.chown(one, OTHER.pw_uid, OTHER.pw_gid)
    with pytest.raises(FileNotTrusted, match=f"the folder {home}, on the way to it, belongs to games") as refused:
        read(file)
    assert "chown" not in (refused.value.hint or "") and "VGPUCTL_CONFIG" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("widen", "remedy"),
    [
        (lambda file: file.chmod(0o646), "`chmod o-w {file}` by root"),
        (lambda file: os.chown(file, STRANGER.pw_uid, -1), "copy"),
        (linked_by_stranger, "name the file that it leads to"),
    ],
)
@gives_files_away
def test_a_hint_names_who_may_take_the_right_away(
    file: Path, widen: Callable[[Path], None], remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    widen(file)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER.pw_uid)
    with pytest.raises(FileNotTrusted) as refused:
        judge(file, FOUND)
    hint = refused.value.hint or ""
    assert remedy.format(file=file) in hint and "chown" not in hint


@gives_files_away
def test_a_file_of_a_user_that_was_named_is_used_from_its_own_folders(file: Path) -> None:
    for one in (file, file.parent, file.parent.parent):
        os.chown(one, OTHER.pw_uid, OTHER.pw_gid)
    file.chmod(0o664)  # as its own group is, in which nobody else is
    assert read(file, NAMED) == b"content"
    with pytest.raises(FileNotTrusted, match="belongs to games"):
        read(file)
    os.chown(file.parent, STRANGER.pw_uid, -1)
    with pytest.raises(FileNotTrusted, match="belongs to nobody"):
        read(file, NAMED)


@gives_files_away
def test_the_caller_of_sudo_is_the_user(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(file, OTHER.pw_uid, OTHER.pw_gid)
    for caller in ("", str(STRANGER.pw_uid), f"-{OTHER.pw_uid}", "²"):
        monkeypatch.setenv("SUDO_UID", caller)
        with pytest.raises(FileNotTrusted, match="belongs to games"):
            read(file)
    monkeypatch.setenv("SUDO_UID", str(OTHER.pw_uid))
    assert read(file) == b"content"


@gives_files_away
def test_a_secret_is_read_by_nobody_else(file: Path) -> None:
    file.chmod(0o600)
    assert read(file, FOUND_SECRET) == b"content"
    file.chmod(0o640)
    os.chown(file, -1, STRANGER.pw_gid)
    assert read(file, FOUND_SECRET) == b"content"  # root gave it to the group
    os.chown(file, OTHER.pw_uid, -1)
    with pytest.raises(FileNotTrusted, match=r"it may be read by the group nogroup \(mode 0640\)") as refused:
        read(file, NAMED_SECRET)
    assert f"`chmod g-r {file}`" in (refused.value.hint or "")
    os.chown(file, 0, -1)
    file.chmod(0o604)
    with pytest.raises(FileNotTrusted, match=r"it may be read by every user \(mode 0604\)"):
        read(file, FOUND_SECRET)
    os.chown(file, -1, 0)
    give_acl(file, 2, STRANGER.pw_uid, 4)
    file.chmod(0o640)
    with pytest.raises(FileNotTrusted, match="it may be read by the user nobody, by its access control list"):
        read(file, FOUND_SECRET)
    assert read(file) == b"content"


@gives_files_away
def test_what_an_access_control_list_masks_is_no_right(file: Path) -> None:
    give_acl(file, 2, STRANGER.pw_uid, 7, mask=5)
    assert read(file) == b"content"
    give_acl(file, 2, 0, 7)
    assert read(file) == b"content"


@gives_files_away
def test_a_group_in_which_nobody_is_writes_nothing(file: Path) -> None:
    group = next(one.gr_gid for one in grp.getgrall() if one.gr_name == "staff" and not one.gr_mem)
    os.chown(file, -1, group)
    file.chmod(0o664)
    assert read(file) == b"content"
    os.chown(file, -1, 4_000_000)  # a number that no group has
    with pytest.raises(FileNotTrusted, match="it may be written to by the group 4000000"):
        read(file)


def test_a_folder_with_the_sticky_bit_holds_files_of_ours(file: Path) -> None:
    file.parent.chmod(0o1777)
    assert read(file) == b"content"


def test_a_path_is_followed_as_the_kernel_follows_it(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep/er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep/er")
    (tmp_path / "deep/back").symlink_to("../above//folder/./file")
    monkeypatch.chdir(tmp_path)
    for path in ("above/folder/file", "link/../back", f"{tmp_path}//deep/../above/folder/file", "./link/../back"):
        assert read(path) == Path(path).read_bytes() == b"content"
    for path in ("nothing", "above/folder/file/x", "x\0y", ""):
        with pytest.raises((OSError, ValueError)):
            read(path)
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        read("round")


def test_what_the_shell_opened_is_the_callers(file: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"piped")
    for path in (f"/dev/fd/{reading}", f"/proc/self/fd/{reading}"):
        with opened(path, NAMED) as given:
            assert os.fstat(given.descriptor).st_size == 0
    assert read(f"/dev/fd/{reading}") == b"piped"
    os.close(reading)
    os.close(writing)
    with pytest.raises(OSError, match="No such file"):
        read(f"/dev/fd/{reading}")
    assert read("/dev/null") == b""


@pytest.mark.parametrize("trust", [FOUND, FOUND_SECRET])
def test_a_pipe_that_is_only_found_is_not_waited_for(file: Path, trust: Trust) -> None:
    file.unlink()
    os.mkfifo(file, 0o600)
    with pytest.raises(FileNotTrusted, match="is not used: it is a pipe"):
        read(file, trust)
    (file.parent / "link").symlink_to(file)
    with pytest.raises(FileNotTrusted, match="is not used: it is a pipe"):
        read(file.parent / "link", trust)
    with opened(file, NAMED):
        pass


def test_nothing_stays_open(file: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - pathlib's own descriptor would count
    read(file)
    file.chmod(0o666)
    for path in (file, file / "x", file.parent / "nothing"):
        with pytest.raises((OSError, FileNotTrusted)):
            read(path)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@gives_files_away
@pytest.mark.parametrize("widen", [row[1] for row in WIDE], ids=[row[0] for row in WIDE])
def test_a_folder_is_as_trustworthy_as_what_lies_below_it(file: Path, widen: Callable[[Path], None]) -> None:
    above = file.parent.parent
    (above / ".git").touch()
    (above / ".git").chmod(0o666)
    (above / "round").symlink_to(above)
    assert judge_tree(above, NAMED) == judge_tree(file, NAMED) == {0}
    widen(file)
    with pytest.raises(FileNotTrusted, match=r" not used: .* (by|belongs to) "):
        judge_tree(above, NAMED)
