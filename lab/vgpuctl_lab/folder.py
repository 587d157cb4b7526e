# SPDX-License-Identifier: Apache-2.0
"""Where everything of the lab lies: one folder, with a cache that outlives `lab down` and a folder per host."""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import LabError
from vgpuctl.user_folders import UserFolder, expanded

NEEDED_FREE_MIB = 1500
_MARK = "lab-folder"


@dataclass(frozen=True)
class LabFolder:
    """The lab's folder. cache: what was built, keyed by its inputs; hosts: one folder per emulated host."""

    path: Path

    @property
    def cache(self) -> Path:
        """Build results."""
        return self.path / "cache"

    @property
    def hosts(self) -> Path:
        """One folder per host that is up, or was and left something."""
        return self.path / "hosts"

    @property
    def simulated(self) -> Path:
        """The folder of the simulated hosts, a lab's folder of its own."""
        return self.path / "simulated"

    @property
    def licensing(self) -> Path:
        """One folder per licence server."""
        return self.path / "licensing"

    @property
    def inventory(self) -> Path:
        """The inventory file of every host of this lab."""
        return self.path / "inventory.yml"

    @property
    def known_hosts(self) -> Path:
        """The host keys of every host of this lab."""
        return self.path / "known_hosts"

    @property
    def private_key(self) -> Path:
        """The key that logs in to the hosts."""
        return self.path / "login_key"

    def host(self, name: str) -> Path:
        """The folder of one host."""
        return self.hosts / name

    def host_names(self) -> list[str]:
        """Names of the hosts that have a folder, sorted."""
        return sorted(entry.name for entry in self.hosts.iterdir()) if self.hosts.is_dir() else []

    def claim(self) -> None:
        """Make the folder, marked as a lab's. Raises LabError when it has files of somebody else."""
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not (self.path / _MARK).exists():
                if any(self.path.iterdir()):
                    raise LabError(
                        f"{self.path} is not empty and not a lab's folder", hint="choose a new one with --folder"
                    )
                (self.path / _MARK).write_text("A lab of vgpuctl; `vgpuctl lab down --purge` removes this folder.\n")
        except OSError as error:
            raise self._unwritable(error) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lab alone.

        Raises LabError when another run holds it, when the folder cannot be written, or when it has files that
        are not a lab's: `purge` removes the whole folder.
        """
        self.claim()
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise LabError(
                    f"another run is changing the lab in {self.path}", hint="wait for it, or use another --folder"
                ) from error
            yield
        finally:
            os.close(descriptor)

    def remove(self, *, purge: bool) -> None:
        """Remove what is left once no host is: all but the cache, or everything with `purge`.

        Simulated hosts and licence servers that are there stay, and the folder with them.
        """
        if purge:
            if not self.simulated.exists() and not self.licensing.exists():
                shutil.rmtree(self.path)
                return
            shutil.rmtree(self.cache, ignore_errors=True)
        for name in ("inventory.yml", "known_hosts", "login_key", "login_key.pub"):
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):
            self.hosts.rmdir()

    def _unwritable(self, error: OSError) -> LabError:
        return LabError(
            f"the lab's folder {self.path} cannot be written: {error.strerror}",
            hint="choose another with --folder or VGPUCTL_LAB_FOLDER",
        )

    def check_space(self) -> None:
        """Raise LabError when the file system of the folder is nearly full."""
        free_mib = shutil.disk_usage(self.path).free // 2**20
        if free_mib < NEEDED_FREE_MIB:
            raise LabError(
                f"{free_mib} MiB are free in {self.path}; the lab needs {NEEDED_FREE_MIB} MiB",
                hint="make room, or choose another folder with --folder or VGPUCTL_LAB_FOLDER",
            )


def default_folder() -> LabFolder:
    """The folder that VGPUCTL_LAB_FOLDER names, else one in the user's data folder.

    Raises UsageError for a user without a home.
    """
    named = os.environ.get("VGPUCTL_LAB_FOLDER")
    return LabFolder(expanded(named).absolute() if named else UserFolder.DATA.require("the lab") / "lab")


@contextmanager
def built(target: Path) -> Iterator[Path | None]:
    """Build a cache folder once: yields an empty folder to fill, or None when `target` is there.

    The folder gets its name only when it is complete, so an interrupted build leaves nothing that looks done.
    A folder left empty is dropped.
    """
    if target.exists():
        yield None
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield building
        if any(building.iterdir()):
            try:
                building.rename(target)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
                # Another process that shares the cache has built the same meanwhile.
    finally:
        shutil.rmtree(building, ignore_errors=True)


def write_private(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Write a file under a temporary name with `mode`, then give it its name."""
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.new")
    with suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    temporary.replace(path)
