# SPDX-License-Identifier: Apache-2.0
"""use-context: write into the user's configuration file which context counts."""

from dataclasses import dataclass
from pathlib import Path

from vgpuctl.errors import NotFound
from vgpuctl.local_files import make_folder, write_file
from vgpuctl.model.configuration import Configuration
from vgpuctl.specs.bounded_reader import decode, read_bounded
from vgpuctl.specs.configuration import with_context
from vgpuctl.specs.origin import located
from vgpuctl.trusted_files import NAMED

_WHAT = "the configuration file"


@dataclass(frozen=True)
class ChosenContext:
    """The context, and the file that chooses it. changed: false where it did so before."""

    context: str
    file: str
    changed: bool


def use_context(found: Configuration, name: str, path: Path) -> ChosenContext:
    """Let the file choose a context; everything else in the file stays, also comments.

    Raises NotFound for a context that no file has, InventoryError for a file that is wrong.
    """
    if name not in found.contexts:
        known = ", ".join(sorted(found.contexts)) or "none yet; add it under `contexts:` in a configuration file"
        raise NotFound(f"no configuration file has the context {name!r}", hint=f"contexts: {known}")
    text = ""
    if path.exists():
        with located(str(path)):
            text = decode(read_bounded(path, NAMED))
    changed = with_context(path, text, name)
    if changed != text:
        make_folder(path.parent, _WHAT, mode=0o700)
        write_file(path, changed, _WHAT)
    return ChosenContext(name, str(path), changed != text)
