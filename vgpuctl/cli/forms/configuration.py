# SPDX-License-Identifier: Apache-2.0
"""Settings of the configuration files as defaults of options, and for what has no option (docs/configuration.md).

No file is read before an option or a setting needs a default.
"""

import os
import sys
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from vgpuctl.cli.frame.command_line import running
from vgpuctl.cli.frame.rehearsal import changes_something
from vgpuctl.cli.shown.output import print_line
from vgpuctl.errors import FileNotTrusted, UsageError

if TYPE_CHECKING:
    from vgpuctl.model.configuration import Configuration


_PLACES = ("database", "inventories")
"""Parameters that say what a command changes."""
_BY_USER = frozenset({ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT})
_WAYS_ON = "name the store by --database and the hosts by -i, or a context by --context, or set VGPUCTL_CONFIG="


def configuration() -> "Configuration":
    """The content of the configuration files, read once.

    Raises InventoryError for a wrong file, NotFound for an unknown context.
    """
    chosen = running()
    if chosen.configuration is None:
        from vgpuctl.usecases.running.configuration import load_configuration
        from vgpuctl.user_folders import working_folder

        try:
            folder = working_folder()
        except UsageError:  # a folder that was deleted has no file; what needs it says so
            folder = Path("/")
        chosen.configuration = load_configuration(os.environ, folder, chosen.context_name)
        if not _shows_files_itself():
            unused = chosen.configuration.unused
            if unused is not None:  # also with -q: the command uses another store than the user may think
                print_line(f"warning: {unused.reason}; {unused.remedy}", err=True)
    return chosen.configuration


def configured(key: str) -> Any:
    """A setting without an option, from its variable or from a file; None where nobody gives it."""
    from vgpuctl.model.configuration import VARIABLES

    given = os.environ.get(VARIABLES[key])
    if given is not None:
        return given or None
    found = configuration().settings.get(key)
    return None if found is None else found.value


def refuse_change_elsewhere() -> None:
    """Refuse a command that would change another store, or other hosts, because the folder's file does not count.

    It goes on where the user has named these by options, variables or a context. Raises FileNotTrusted.
    """
    context = click.get_current_context(silent=True)
    unused = configuration().unused
    if unused is None or context is None or not changes_something(context):
        return
    if running().context_name or os.environ.get("VGPUCTL_CONTEXT"):
        return
    of_command = {one.name for one in context.command.params}
    if all(context.get_parameter_source(one) in _BY_USER for one in _PLACES if one in of_command):
        return
    raise FileNotTrusted(
        f"{unused.reason}; {context.info_name} changes nothing, since without it the store and the hosts may be others",
        hint=f"{unused.remedy}; to go on without it, {_WAYS_ON}",
    )


def note_change() -> None:
    """Note whether the running command changes something, for what an interrupt may have left; a dry run does not."""
    context = click.get_current_context(silent=True)
    rehearses = running().rehearsal is not None or (context is not None and context.params.get("dry_run"))
    running().may_have_changed = context is not None and not rehearses and changes_something(context)


def _shows_files_itself() -> bool:
    """True while a line is completed, in which a remark would stand, and for the command that shows such a file."""
    context = click.get_current_context(silent=True)
    return "_VGPUCTL_COMPLETE" in os.environ or (context is not None and context.info_name == "allow-config")


class ConfiguredDefaults(MutableMapping[str, Any]):
    """The `default_map` of a command: the settings whose variable one of its options reads.

    A help page shows the defaults of the code, also while a file is wrong.
    """

    def __init__(self, command: click.Command) -> None:
        self._variables = {
            one.name: one.envvar
            for one in command.params
            if isinstance(one, click.Option) and isinstance(one.envvar, str) and one.name is not None
        }

        self._is_help = any(one in ("-h", "--help", "--help-all") for one in sys.argv)

    def __getitem__(self, name: str) -> Any:
        from vgpuctl.model.configuration import VARIABLES

        variable = self._variables[name]
        for key, found in configuration().settings.items():
            if VARIABLES[key] == variable:
                return list(found.value) if isinstance(found.value, tuple) else found.value
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        if self._is_help:
            return False
        try:
            self[str(name)]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._variables if name in self)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __setitem__(self, name: str, value: Any) -> None:
        raise TypeError("files give these defaults")

    def __delitem__(self, name: str) -> None:
        raise TypeError("files give these defaults")
