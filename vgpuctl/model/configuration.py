# SPDX-License-Identifier: Apache-2.0
"""The settings of vgpuctl that a configuration file may hold, and what a run of it has of them, from where."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ContextSettings:
    """The settings of a context; None where it says nothing. Paths are absolute."""

    inventory: tuple[str, ...] | None = None
    inventory_reader: str | None = None
    database: str | None = None
    tenant: str | None = None
    output: str | None = None
    forks: int | None = None
    known_hosts: str | None = None
    connect_timeout: float | None = None
    command_timeout: float | None = None
    key_file: str | None = None
    history: str | None = None
    prometheus: str | None = None
    performance: str | None = None
    ovn_northbound: str | None = None
    ovn_southbound: str | None = None
    ovn_key: str | None = None
    ovn_certificate: str | None = None
    ovn_authority: str | None = None
    authority_folder: str | None = None
    slurm_folder: str | None = None
    reachable_networks: tuple[str, ...] | None = None
    cluster_networks: tuple[str, ...] | None = None
    internal_domain: str | None = None


_EXCEPTIONS = {"database": "VGPUCTL_DATABASE_URL"}
VARIABLES = {
    one.name: _EXCEPTIONS.get(one.name, f"VGPUCTL_{one.name.upper()}") for one in dataclasses.fields(ContextSettings)
}
"""The variable of the environment for each setting; it counts more than a file."""


@dataclass(frozen=True)
class Configured:
    """One setting that somebody gave. origin: `FILE:LINE`, with the context, or the variable of the environment."""

    key: str
    value: str | int | float | tuple[str, ...]
    origin: str


@dataclass(frozen=True)
class Context:
    """A named group of settings. path: its file."""

    name: str
    path: str
    settings: Mapping[str, Configured]


@dataclass(frozen=True)
class ConfigurationFile:
    """One file. context: the context that it chooses, with file and line."""

    path: str
    settings: Mapping[str, Configured]
    contexts: Mapping[str, Context]
    context: tuple[str, str] | None


@dataclass(frozen=True)
class ProjectFile:
    """The configuration file of a folder. entry: its place there. path: what that leads to, without links."""

    entry: str
    path: str
    content: bytes


@dataclass(frozen=True)
class UnusedFile:
    """The configuration file of a folder that does not count. reason: which file, and why. remedy: what to do."""

    reason: str
    remedy: str


@dataclass(frozen=True)
class Configuration:
    """The merged configuration files. settings: by key, of the chosen context and of every file.

    context: the chosen one, and chosen_by: what chose it. unused: the folder's file, where it does not count.
    """

    settings: Mapping[str, Configured]
    contexts: Mapping[str, Context]
    context: str | None = None
    chosen_by: str | None = None
    files: tuple[str, ...] = ()
    unused: UnusedFile | None = None
