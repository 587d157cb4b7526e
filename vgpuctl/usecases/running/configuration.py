# SPDX-License-Identifier: Apache-2.0
"""The configuration of a run: which files count, and which context.

The settings of the project's file count more than those of the chosen context, these more than those of the user's
file, and those more than the machine's. Variables of the environment and options count more than all of them.

The project's file is the one that lies in the working folder or above it. It counts after the user has allowed it.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from vgpuctl.errors import FileNotTrusted, InventoryError, NotFound, UsageError
from vgpuctl.model.configuration import Configuration, ConfigurationFile, ProjectFile, UnusedFile
from vgpuctl.trusted_files import FOUND, NAMED, opened
from vgpuctl.user_folders import UserFolder, expanded

ONLY_FILE = "VGPUCTL_CONFIG"
"""Names the one file to read; empty for none."""
CHOSEN = "VGPUCTL_CONTEXT"
PROJECT_FILE = "vgpuctl.yaml"
_USER_FILE = "config.yaml"
_MACHINE_FILE = Path("/etc/vgpuctl/config.yaml")
MOST_BYTES = 2**20
"""Of a project's file."""


def user_file() -> Path:
    """The user's configuration file: config.yaml in the user's configuration folder (XDG_CONFIG_HOME counts).

    Raises UsageError for a user without a home.
    """
    return UserFolder.CONFIG.require("the configuration file") / _USER_FILE


def load_configuration(environment: Mapping[str, str], folder: Path, context: str | None) -> Configuration:
    """Read all files that count in this folder. context: the name that was given as an option.

    Raises InventoryError for a file that is wrong, NotFound for a context that no file has.
    """
    unused: UnusedFile | None = None
    files: list[ConfigurationFile] = []
    only = environment.get(ONLY_FILE)
    if only is not None:
        if only and not expanded(only).is_file():
            raise UsageError(f"{ONLY_FILE} names {only}, which is no file", hint=f"set {ONLY_FILE}= for no file")
        named = [(expanded(only), NAMED)] if only else []
    else:
        project = allowed_project_file(folder)
        if isinstance(project, UnusedFile):
            unused = project
        elif project is not None:
            from vgpuctl.specs.configuration import parse_configuration

            files.append(parse_configuration(Path(project.path), project.content))
        own = UserFolder.CONFIG.find()
        named = [(one, FOUND) for one in (*([own / _USER_FILE] if own else []), _MACHINE_FILE) if one.is_file()]
    has_project = bool(files)
    if named:  # without one, nothing that reads YAML is imported
        from vgpuctl.specs.configuration import read_configuration

        files += [read_configuration(path, trust) for path, trust in named]
    return _together(files, _chosen(files, environment, context), unused, has_project=has_project)


def allowed_project_file(folder: Path) -> ProjectFile | UnusedFile | None:
    """The file of this folder or of the nearest one above, unless it is not allowed; None where there is none.

    A file that somebody else could have written is not used either. Nothing in it counts then.
    """
    path = nearest_project_file(folder)
    if path is None:
        return None
    try:
        project = read_project_file(path)
    except FileNotTrusted as error:
        return UnusedFile(error.message, error.hint or "")
    except InventoryError as error:
        return UnusedFile(error.message, error.hint or "look at it, or remove it")
    from vgpuctl.usecases.running.allowed_files import refusal

    reason = refusal(project)
    if reason is None:
        return project
    return UnusedFile(f"{project.entry} is not used: {reason}", "`vgpuctl allow-config` shows it and asks")


def nearest_project_file(folder: Path) -> Path | None:
    """The configuration file of this folder or of the nearest one above that has one."""
    places = (above / PROJECT_FILE for above in (folder, *folder.parents))
    return next((one for one in places if os.path.lexists(one)), None)


def entry_of(path: Path) -> str:
    """The place of a file in its folder: without links on the way, and as it stands there, which may be a link."""
    return str(path.parent.resolve() / path.name)


def read_project_file(path: Path) -> ProjectFile:
    """Judge and read a file of a folder. Raises FileNotTrusted, and InventoryError for one that cannot be read."""
    try:
        with opened(path, FOUND) as file:
            content = file.read(MOST_BYTES + 1)
            found = ProjectFile(entry_of(path), file.path, content)
    except OSError as error:
        raise InventoryError(f"{path} cannot be read: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise InventoryError(f"{path} has more than {MOST_BYTES // 2**10} KiB", hint="is it the right file?")
    return found


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
    files: Sequence[ConfigurationFile], chosen: tuple[str, str] | None, unused: UnusedFile | None, *, has_project: bool
) -> Configuration:
    contexts = {name: one for file in reversed(files) for name, one in file.contexts.items()}
    layers = [file.settings for file in files]
    if chosen is not None:
        if chosen[0] not in contexts:
            known = ", ".join(sorted(contexts)) or "none"
            raise NotFound(f"{chosen[1]} names the context {chosen[0]!r}, which no file has", hint=f"contexts: {known}")
        layers.insert(1 if has_project else 0, contexts[chosen[0]].settings)
    settings = {key: one for layer in reversed(layers) for key, one in layer.items()}
    name, by = chosen or (None, None)
    return Configuration(settings, contexts, name, by, tuple(one.path for one in files), unused)
