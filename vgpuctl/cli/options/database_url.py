# SPDX-License-Identifier: Apache-2.0
"""The value of --database: a URL, or a file that holds one, and a warning of a password that every process can see."""

from pathlib import Path

import click
from click.core import ParameterSource

from vgpuctl.cli.shown.output import say
from vgpuctl.errors import UsageError
from vgpuctl.model.masking import without_passwords


def database_url(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return the store's URL. Warns of a password on the command line, which `ps` shows to every user.

    Raises UsageError for a file that cannot be read, or that holds a password and is open to other users.
    """
    if value is None:
        return None
    if value.startswith("@"):
        return read_url_file(Path(value[1:]))
    if (
        without_passwords(value) != value
        and parameter.name is not None
        and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE
    ):
        say(
            "warning: the password in --database is visible to every user of this machine in `ps`; use ~/.pgpass, "
            "a service file, VGPUCTL_DATABASE_URL or --database @FILE"
        )
    return value


def read_url_file(path: Path) -> str:
    """The URL in a file. Raises UsageError for one that cannot be read, FileNotTrusted, also for a password in it.

    A URL in the place of the file is not repeated: there is a password in it.
    """
    from vgpuctl.specs.bounded_reader import Malformed, decode, read_bounded
    from vgpuctl.trusted_files import NAMED, NAMED_SECRET, judge
    from vgpuctl.user_folders import expanded

    if any(part.endswith(":") for part in path.parts):
        raise UsageError("a file is wanted behind the @ of the store, and a URL stands there", hint="leave out the @")
    try:
        file = expanded(path)
        url = decode(read_bounded(file, NAMED)).strip()
        if without_passwords(url) != url:
            judge(file, NAMED_SECRET)
    except (OSError, Malformed) as error:
        raise UsageError(f"the store's URL cannot be read from {path}: {error}") from error
    return url
