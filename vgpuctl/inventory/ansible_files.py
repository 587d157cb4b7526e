# SPDX-License-Identifier: Apache-2.0
"""The files that ansible opens by itself, by their names: they are judged before it is started.

A source may be a script with variable files in its folder, and ansible.cfg names plugins and scripts for passwords.
The settings that name files differ between versions, and plugins add their own. So every existing file that a setting
names is judged, except the few that a listing does not read. Source: ansible-core 2.19,
lib/ansible/config/manager.py (find_ini_config_file, resolve_path) and base.yml.
"""

import configparser
import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from vgpuctl.errors import UsageError
from vgpuctl.inventory.variable_files import BESIDE
from vgpuctl.trusted_files import FOUND, NAMED, Trust, opened
from vgpuctl.trusted_trees import judge_tree
from vgpuctl.user_folders import expanded

_MOST_BYTES = 2**20
_PREFIX = "ansible_"
_CONFIG = "ANSIBLE_CONFIG"
_NOT_READ = frozenset(
    {"config", "control_path", "control_path_dir", "executable", "hostfile", "inventory", "library", "local_temp"}
    | {"local_tmp", "log_path", "persistent_control_path_dir", "remote_temp", "remote_tmp", "retry_files_save_path"}
    | {"roles_path", "ssh_control_path", "ssh_control_path_dir"}
)
"""Settings whose files a listing of the inventory neither runs nor believes."""
_EVERYWHERE = tuple(
    f"{folder}/{kind}" for folder in ("~/.ansible", "/usr/share/ansible") for kind in ("plugins", "collections")
)
_BETWEEN = re.compile(r"[,:@]")
"""Between paths of a list, and between the name of a vault and its file."""


def judge_files(sources: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    """Judge what ansible reads for resolved sources when it is started in a folder. Raises FileNotTrusted."""
    for source in filter(os.path.exists, sources):  # a comma list is too long for a path
        users = judge_tree(source, NAMED)
        beside = Path(source if os.path.isdir(source) else os.path.dirname(source))  # noqa: PTH112, PTH120 - as above
        for name in BESIDE:
            _judge(str(beside / name), Trust(takes_owner=False, users=users))
    for name in BESIDE:
        _judge(str(folder / name), FOUND)
    for place in _EVERYWHERE:
        _judge(str(_path(place, folder)), FOUND)
    for path in _named(folder, environment):
        _judge(path, NAMED)


def _judge(path: str, trust: Trust) -> None:
    with contextlib.suppress(OSError, ValueError):  # what is not there, or is no path
        judge_tree(path, trust)


def _named(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """The paths that the environment and ansible.cfg name; many are of no file at all."""
    for name, value in environment.items():
        if name.lower().startswith(_PREFIX):
            yield from _paths(name.lower().removeprefix(_PREFIX), value, folder, folder)
    configuration, trust = _configuration(folder, environment)
    if configuration is None:
        return
    with opened(configuration, trust) as file:
        text = file.read(_MOST_BYTES).decode("utf-8", "surrogateescape")
    parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=(";",))
    with contextlib.suppress(configparser.Error):  # ansible refuses the file too
        parser.read_string(text)
    for section in parser.values():
        for name, value in section.items():
            yield from _paths(name, value, configuration.parent, folder)


def _configuration(folder: Path, environment: Mapping[str, str]) -> tuple[Path | None, Trust]:
    """The ansible.cfg that ansible chooses."""
    places = [(folder / "ansible.cfg", FOUND), (_path("~/.ansible.cfg", folder), FOUND)]
    places.append((Path("/etc/ansible/ansible.cfg"), FOUND))
    if _CONFIG in environment:
        named = _path(environment[_CONFIG], folder)
        places.insert(0, (named / "ansible.cfg" if named.is_dir() else named, NAMED))
    return next(((path, trust) for path, trust in places if os.access(path, os.R_OK)), (None, FOUND))


def _paths(name: str, value: str, base: Path, folder: Path) -> Iterator[str]:
    if name not in _NOT_READ:
        for text in {value, *_BETWEEN.split(value)}:
            if text.strip():
                yield str(_path(text.strip().strip("'\"").replace("{{CWD}}", str(folder)), base))


def _path(text: str, base: Path) -> Path:
    """A path as ansible reads it: one of a user without a home stays as it is."""
    with contextlib.suppress(UsageError):
        text = str(expanded(text))
    return base / os.path.expandvars(text)
