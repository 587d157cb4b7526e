# SPDX-License-Identifier: Apache-2.0
"""Folders of users: the homes that `~` and `~USER` stand for, and vgpuctl's own folders in the home of its user.

A user without an entry in the password database, as in many containers, has no home unless HOME names one.
"""

from enum import Enum
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_data_path

from vgpuctl.errors import UsageError

_SHOWN = 60


class UserFolder(Enum):
    """A kind of folder; XDG_CACHE_HOME, XDG_CONFIG_HOME and XDG_DATA_HOME name others."""

    CACHE = "cache"
    CONFIG = "config"
    DATA = "data"

    def find(self) -> Path | None:
        """Where it is or would be; None for a user without a home."""
        finders = {"cache": user_cache_path, "config": user_config_path, "data": user_data_path}
        try:
            path = finders[self.value]("vgpuctl", appauthor=False)
        except RuntimeError:
            return None
        return path if path.is_absolute() else None  # an older platformdirs leaves `~` as it is

    def require(self, what: str) -> Path:
        """The same for what has to be in it. Raises UsageError for a user without a home."""
        path = self.find()
        if path is None:
            raise UsageError(
                f"{what} would be in the home folder of this user, who has none",
                hint=f"set HOME or XDG_{self.name}_HOME to an absolute path",
            )
        return path


def expanded(text: str | Path) -> Path:
    """A path with `~` or `~USER` at its start filled in. Raises UsageError for a user without a home."""
    try:
        return Path(text).expanduser()
    except (RuntimeError, ValueError) as exc:
        raise UsageError(
            f"the path {str(text)[:_SHOWN]!a} begins with the home folder of a user who has none",
            hint="write the path from / on",
        ) from exc


def working_folder() -> Path:
    """The folder that the command was started in. Raises UsageError where it was deleted since."""
    try:
        return Path.cwd()
    except OSError as exc:
        raise UsageError("the working folder was deleted", hint="go to another folder with cd") from exc
