# SPDX-License-Identifier: Apache-2.0
"""allow-config: let the configuration file of a folder count, with the content that it has."""

from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import NotFound, UsageError
from vgpuctl.model.configuration import ProjectFile
from vgpuctl.specs.configuration import parse_configuration
from vgpuctl.usecases.running import allowed_files
from vgpuctl.usecases.running.configuration import (
    PROJECT_FILE,
    entry_of,
    nearest_project_file,
    read_project_file,
)


@dataclass(frozen=True)
class AllowedConfig:
    """A file, without links on the way to it. is_allowed: what it is now. changed: false where it was so before."""

    file: str
    is_allowed: bool
    changed: bool


@dataclass(frozen=True)
class ConfigToAllow:
    """A file as it was read. reason: why it is not used; None for one that is allowed."""

    project: ProjectFile
    reason: str | None


def read_config(named: Path | None, folder: Path) -> ConfigToAllow:
    """Read the file, or the one that counts in this folder, and check that it is a configuration file.

    Raises NotFound where there is none, FileNotTrusted where others can write to it, InventoryError for a wrong file.
    """
    path = _chosen(named, folder)
    if path.name != PROJECT_FILE:
        raise UsageError(
            f"{path} is no file that vgpuctl finds by itself",
            hint=f"only a {PROJECT_FILE} has to be allowed; VGPUCTL_CONFIG names any other file",
        )
    project = read_project_file(path)
    parse_configuration(Path(project.path), project.content)
    return ConfigToAllow(project, allowed_files.refusal(project))


def allow_config(found: ConfigToAllow, *, dry_run: bool) -> AllowedConfig:
    """Let the file count from now on, until it changes. Raises FileNotWritten."""
    if found.reason is not None and not dry_run:
        allowed_files.allow(found.project)
    return AllowedConfig(found.project.entry, is_allowed=True, changed=found.reason is not None)


def forget_config(named: Path | None, folder: Path, *, dry_run: bool) -> AllowedConfig:
    """Let a file count no longer, also one that is gone. Raises NotFound where none is named or found."""
    path = entry_of(_chosen(named, folder))
    return AllowedConfig(path, is_allowed=False, changed=allowed_files.forget(path, dry_run=dry_run))


def _chosen(named: Path | None, folder: Path) -> Path:
    if named is not None:
        return named / PROJECT_FILE if named.is_dir() else named
    found = nearest_project_file(folder)
    if found is None:
        raise NotFound(f"neither {folder} nor a folder above it has a {PROJECT_FILE}", hint="name the file")
    return found
