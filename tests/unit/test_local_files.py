# SPDX-License-Identifier: Apache-2.0
"""Files are written whole or not at all, and a refusal says which file, what of, why and what to do."""

import errno
import inspect
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vgpuctl import local_files
from vgpuctl.errors import FileNotWritten


@contextmanager
def no_file_above(size: int) -> Iterator[None]:
    """The kernel refuses longer files with EFBIG (Python ignores SIGXFSZ)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.ENOSPC, "the disk is full (the system answered: No space left on device)"),
        (errno.EDQUOT, "the disk quota of this user is used up (the system answered: Disk quota exceeded)"),
        (errno.EROFS, "the file system is read-only (the system answered: Read-only file system)"),
    ],
)
def test_a_refused_write_names_file_content_reason_and_remedy(number: int, reason: str) -> None:
    error = OSError(number, os.strerror(number))
    assert local_files.is_out_of_room(error)
    described = local_files.not_written(error, "the layout", Path("/nowhere here/x.yml"))
    assert described.message == f"the layout cannot be written to /nowhere here/x.yml: {reason}"
    assert described.hint is not None and described.hint.endswith("`df -h '/nowhere here'` shows the disk")
    assert local_files.not_written(error, "the output", None).message == f"the output cannot be written: {reason}"


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "layout.yml"
    local_files.write_file(path, "before", "the layout", mode=0o640)
    with no_file_above(4096), pytest.raises(FileNotWritten, match=r"the layout cannot be written .*larger than"):
        local_files.write_file(path, "x" * 10_000, "the layout")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    path, link = tmp_path / "layout.yml", tmp_path / "link.yml"
    local_files.write_file(path, "before", "the layout", mode=0o640)
    link.symlink_to(path)
    local_files.write_file(link, "after", "the layout")
    assert link.is_symlink() and path.read_text() == "after" and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_new_file_never_replaces_one(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert local_files.write_new(path, b"one", "the key")
    assert not local_files.write_new(path, b"two", "the key")
    assert path.read_bytes() == b"one" and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_of_another_user_is_not_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    local_files.write_file(path, "ours", "a file", mode=0o644)
    assert local_files.read_own(path) == b"ours"
    if os.geteuid() == 0:
        os.chown(path, 65534, -1)
    else:  # who may give no file away is not the one whose file this is
        path = Path("/etc/passwd")
    assert path.read_bytes() and local_files.read_own(path) is None


def test_no_folder_of_ones_own_is_made_in_that_of_another_user(tmp_path: Path) -> None:
    assert local_files.make_own_folder(tmp_path / "a/b", "a folder")
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o700
    if os.geteuid() == 0:
        os.chown(tmp_path, 65534, -1)
        assert not local_files.make_own_folder(tmp_path / "c/d", "a folder") and not (tmp_path / "c").exists()
    else:
        assert not local_files.make_own_folder(Path("/vgpuctl/cache"), "a folder")


def test_a_folder_is_made_where_there_is_room(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    made = local_files.make_first_folder([tmp_path / "file", tmp_path], "a folder", prefix="x-")
    assert made.parent == tmp_path and stat.S_IMODE(made.stat().st_mode) == 0o700
    with pytest.raises(FileNotWritten, match=r"a folder cannot be written to .*/file: Not a directory"):
        local_files.make_first_folder([tmp_path / "file", tmp_path / "missing"], "a folder", prefix="x-")


def test_a_copy_is_private_and_gone_after_its_block(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"content")
    with local_files.scratch_folder("a copy", [path]) as folder:
        assert (folder / "store.db").read_bytes() == b"content"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_link_of_another_user_is_not_followed(tmp_path: Path) -> None:
    path, link = tmp_path / "precious", tmp_path / "picture.png"
    path.write_text("precious")
    link.symlink_to(path)
    os.lchown(link, 65534, 65534)
    with pytest.raises(FileNotWritten, match=r"cannot be written to .*: the link .*, on the way to it, belongs to nob"):
        local_files.write_file(link, "picture", "the picture")
    assert path.read_text() == "precious"


STRANGER = 65534


def _publish(path: Path) -> None:
    made = path.parent.parent.parent / "made"
    made.write_text("new")
    local_files.publish_new(made, path, "a file")


def _beside(path: Path) -> None:
    with local_files.folder_beside(path, "a file"):
        pass


WRITERS: dict[str, Callable[[Path], object]] = {
    "write_file": lambda path: local_files.write_file(path, "new", "a file"),
    "replace_file": lambda path: local_files.replace_file(path, b"new", "a file"),
    "write_new": lambda path: local_files.write_new(path, b"new", "a file"),
    "publish_new": _publish,
    "folder_beside": _beside,
    "open_lock": lambda path: os.close(local_files.open_lock(path, "a file")),
    "open_to_append": lambda path: os.close(local_files.open_to_append(path, "a file")),
}
"""Every function that writes a file which somebody named."""
WITHOUT_PLACE = {
    "make_folder": "the store's folder too, which groups may share; what is written into it is judged",
    "make_private": "an empty file, for the history, which groups may share",
    "make_own_folder": "answers False for a folder that lies in another user's",
    "make_first_folder": "a new folder of mode 0700, by a name that nobody knows before",
    "scratch_folder": "the same",
}
"""The others that write, and why they need not look at the way."""


def test_every_writer_is_in_a_table() -> None:
    found = {
        name
        for name, one in inspect.getmembers(local_files, inspect.isfunction)
        if one.__module__ == local_files.__name__
        and not name.startswith("_")
        and "what" in inspect.signature(one).parameters
    }
    assert found - {"not_written", "writing", "room_refused"} == WRITERS.keys() | WITHOUT_PLACE.keys()


def linked_folder(place: Path) -> Path:
    """`nd/dd/target`, where dd is another user's link, in a folder where everybody may add one."""
    (place / "nd").mkdir()
    (place / "nd").chmod(0o1777)
    (place / "nd/dd").symlink_to("..")
    os.lchown(place / "nd/dd", STRANGER, -1)
    return place / "nd/dd/target"


def linked_deep(place: Path) -> Path:
    """The same, with our own link before it."""
    linked_folder(place)
    (place / "ours").symlink_to("nd/dd")
    return place / "ours/target"


def wide_folder(place: Path) -> Path:
    (place / "nd/inner").mkdir(parents=True)
    (place / "nd").chmod(0o777)
    return place / "nd/inner/target"


def group_folder(place: Path) -> Path:
    (place / "nd").mkdir()
    os.chown(place / "nd", -1, STRANGER)
    (place / "nd").chmod(0o2775)
    return place / "nd/target"


def folder_of_a_stranger(place: Path) -> Path:
    """A folder of somebody else above one of ours."""
    (place / "nd/inner").mkdir(parents=True)
    os.chown(place / "nd", STRANGER, -1)
    return place / "nd/inner/target"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
@pytest.mark.parametrize("trap", [linked_folder, linked_deep, wide_folder, group_folder, folder_of_a_stranger])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_way_that_others_can_change_is_not_taken(writer: str, trap: Callable[[Path], Path], tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    path = trap(place)
    with pytest.raises(FileNotWritten, match="on the way to it,") as refused:
        WRITERS[writer](path)
    assert refused.value.hint
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_that_another_user_laid_into_a_shared_folder_gets_nothing(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    path, pipe, link = tmp_path / "log", tmp_path / "pipe", tmp_path / "link"
    path.touch()
    os.mkfifo(pipe)
    link.symlink_to("elsewhere")
    for one in (path, pipe, link):
        os.chown(one, STRANGER, -1, follow_symlinks=False)
        for name in ("open_to_append", "write_file"):
            with pytest.raises(FileNotWritten, match="belongs to nobody"):
                WRITERS[name](one)
    assert path.read_bytes() == b"" and not (tmp_path / "elsewhere").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_a_folder_of_the_user_for_whom_root_writes_is_taken(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, STRANGER, -1)
    local_files.write_file(home / "a", "x", "a file")
    (home / "b").symlink_to("a")
    os.lchown(home / "b", STRANGER, -1)
    local_files.write_file(home / "b", "y", "a file")
    assert (home / "a").read_text() == "y"


def test_a_log_without_a_reader_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    with pytest.raises(FileNotWritten, match="No such device or address"):
        local_files.open_to_append(tmp_path / "log", "the log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    log = local_files.open_to_append(tmp_path / "log", "the log")
    assert os.get_blocking(log)
    os.close(log)
    os.close(reader)


def test_what_the_shell_opened_is_written_to(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    for path in (f"/dev/fd/{writing}", f"/proc/self/fd/{writing}"):
        local_files.write_file(Path(path), "x", "a file")
        os.close(local_files.open_to_append(Path(path), "a file"))
    local_files.write_file(Path("/dev/null"), "x", "a file")
    assert os.read(reading, 10) == b"xx"
    os.close(reading)
    os.close(writing)


def test_a_file_in_the_place_of_another_follows_no_link_and_replaces_no_device(tmp_path: Path) -> None:
    path, link, pipe = tmp_path / "picture.png", tmp_path / "link.png", tmp_path / "pipe.png"
    path.write_bytes(b"before")
    path.chmod(0o644)
    link.symlink_to(path)
    os.mkfifo(pipe)
    other, leads = "give another file", f"name the file that it leads to, {path}, or another one"
    for one, said, hint in (
        (link, "it is a symbolic link", leads),
        (pipe, "it is no regular file", other),
        (tmp_path, "it is no regular file", other),
    ):
        with pytest.raises(FileNotWritten, match=said) as caught:
            local_files.replace_file(one, b"after", "the picture")
        assert caught.value.hint == hint
    assert path.read_bytes() == b"before" and link.is_symlink() and pipe.is_fifo()
    local_files.replace_file(path, b"after", "the picture")
    assert path.read_bytes() == b"after" and stat.S_IMODE(path.stat().st_mode) == 0o600
