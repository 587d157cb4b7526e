# SPDX-License-Identifier: Apache-2.0
"""Build the sdists and wheels of vgpuctl and vgpuctl-lab from the tracked files. Equal files give equal bytes.

Usage: release_python.py FOLDER. It needs setuptools, and no network. Each wheel is built from its sdist.
The time of every file is SOURCE_DATE_EPOCH, or the time of the last commit (reproducible-builds.org).
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = (".", "lab")
# Folders for developers, which no package has.
_LEFT_OUT = ("tests/", "docs/", ".ci/", "ansible_collections/", "inventory/", "packaging/", "scripts/")
_BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def source_date() -> int:
    """The time that all files get, in seconds since 1970."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    return int(given or _git("log", "-1", "--format=%ct"))


def export(folder: Path) -> None:
    """Copy the tracked files as they are in the work tree, with the modes that git knows."""
    for name in _git("ls-files", "-z").split("\0"):
        if not name or name.startswith(_LEFT_OUT) or not (ROOT / name).exists():
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name, follow_symlinks=False)
        if not (folder / name).is_symlink():
            (folder / name).chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)


def build(tree: Path, output: Path, date: int) -> None:
    """Write the sdist and the wheel of one distribution to `output`."""
    with tempfile.TemporaryDirectory() as made:
        _run_backend("build_sdist", tree, Path(made), date)
        (raw,) = Path(made).iterdir()
        sdist = output / raw.name
        _write_sdist(raw, sdist, date)
        shutil.unpack_archive(sdist, made)
        unpacked = Path(made) / sdist.name.removesuffix(".tar.gz")
        _run_backend("build_wheel", unpacked, output, date)


def _write_sdist(raw: Path, to: Path, date: int) -> None:
    """Write the archive again: sorted, with one time, one owner, and modes without the umask. setuptools does not."""
    held = io.BytesIO()
    with tarfile.open(raw) as old, tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as new:
        for one in sorted(old.getmembers(), key=lambda member: member.name):
            one.mtime, one.uid, one.gid, one.uname, one.gname, one.pax_headers = date, 0, 0, "", "", {}
            one.mode = 0o755 if one.isdir() or one.mode & 0o100 else 0o644
            new.addfile(one, old.extractfile(one) if one.isfile() else None)
    with to.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=date) as packed:
        packed.write(held.getvalue())


def _run_backend(hook: str, tree: Path, output: Path, date: int) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(date)}
    command = [sys.executable, "-W", "ignore", "-c", f"import os; os.umask(0o022); {_BUILD}", hook, str(output)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"release_python: {hook} of {tree.name} failed:\n{done.stderr}")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.rstrip("\n")


if __name__ == "__main__":
    into = Path(sys.argv[1]).absolute()
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as exported:
        export(Path(exported))
        for distribution in DISTRIBUTIONS:
            build(Path(exported) / distribution, into, source_date())
    for one in sorted(into.iterdir()):
        print(one)
