# SPDX-License-Identifier: Apache-2.0
"""The configuration of a run: which files count, and which context.

The settings of the project's file count more than those of the chosen context, these more than those of the user's
file, and those more than the machine's. Variables of the environment and options count more than all of them.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from vgpuctl.errors import NotFound, UsageError
from vgpuctl.model.configuration import Configuration, ConfigurationFile
from vgpuctl.user_folders import UserFolder, expanded

ONLY_FILE = "VGPUCTL_CONFIG"
"""Names the one file to read; empty for none."""
CHOSEN = "VGPUCTL_CONTEXT"
PROJECT_FILE = "vgpuctl.yaml"
_USER_FILE = "config.yaml"
_MACHINE_FILE = Path("/etc/vgpuctl/config.yaml")


def user_file() -> Path:
    """The user's configuration file: config.yaml in the user's configuration folder (XDG_CONFIG_HOME counts).

    Raises UsageError for a user without a home.
    """
    return UserFolder.CONFIG.require("the configuration file") / _USER_FILE


def load_configuration(environment: Mapping[str, str], folder: Path, context: str | None) -> Configuration:
    """Read all files that count in this folder. context: the name that was given as an option.

    Raises InventoryError for a file that is wrong, NotFound for a context that no file has.
    """
    ignored: list[str] = []
    only = environment.get(ONLY_FILE)
    if only is not None:
        if only and not expanded(only).is_file():
            raise UsageError(f"{ONLY_FILE} names {only}, which is no file", hint=f"set {ONLY_FILE}= for no file")
        files = _read([expanded(only)] if only else [])
    else:
        own = UserFolder.CONFIG.find()
        places = [*_project_files(folder, ignored), *([own / _USER_FILE] if own else []), _MACHINE_FILE]
        files = _read([one for one in places if one.is_file()])
    return _together(files, _chosen(files, environment, context), tuple(ignored))


def _read(paths: Sequence[Path]) -> list[ConfigurationFile]:
    """Read the files; without one, nothing that reads YAML is imported."""
    if not paths:
        return []
    from vgpuctl.specs.configuration import read_configuration

    return [read_configuration(one) for one in paths]


def _project_files(folder: Path, ignored: list[str]) -> Sequence[Path]:
    """The file of this folder or of the nearest one above. One that somebody else could have written is ignored."""
    for parent in (folder, *folder.parents):
        path = parent / PROJECT_FILE
        try:
            file, above = path.stat(), parent.stat()
        except OSError:
            continue
        reason = _distrust(file) or _distrust(above)
        if reason is None:
            return [path]
        ignored.append(f"{path}: {reason}")
        return []
    return []


def _distrust(found: os.stat_result) -> str | None:
    if found.st_uid not in (0, os.geteuid()):
        return "it, or its folder, belongs to another user"
    if found.st_mode & stat.S_IWOTH:
        return "every user may write to it, or to its folder"
    return None


def _chosen(
    files: Sequence[ConfigurationFile], environment: Mapping[str, str], option: str | None
) -> tuple[str, str] | None:
    """The chosen context and what chose it."""
    if option is not None:
        return option, "--context"
    if environment.get(CHOSEN):
        return environment[CHOSEN], CHOSEN
    return next((one.context for one in files if one.context is not None), None)


def _together(
    files: Sequence[ConfigurationFile], chosen: tuple[str, str] | None, ignored: tuple[str, ...]
) -> Configuration:
    contexts = {name: one for file in reversed(files) for name, one in file.contexts.items()}
    layers = [file.settings for file in files]
    if chosen is not None:
        if chosen[0] not in contexts:
            known = ", ".join(sorted(contexts)) or "none"
            raise NotFound(f"{chosen[1]} names the context {chosen[0]!r}, which no file has", hint=f"contexts: {known}")
        is_project = bool(files) and Path(files[0].path).name == PROJECT_FILE
        layers.insert(1 if is_project else 0, contexts[chosen[0]].settings)
    settings = {key: one for layer in reversed(layers) for key, one in layer.items()}
    name, by = chosen or (None, None)
    return Configuration(settings, contexts, name, by, tuple(one.path for one in files), ignored)
