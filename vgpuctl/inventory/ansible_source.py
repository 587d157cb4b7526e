# SPDX-License-Identifier: Apache-2.0
"""The inventory as the installed ansible-core reads it: scripts, plugins, and everything else that ansible knows.

`ansible-inventory --list` prints each host with its variables, laid over each other by ansible's own rules. Ansible's
configuration and variables of the environment count, also those of its vaults. Source: ansible-core 2.19,
lib/ansible/cli/inventory.py.
"""

import functools
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from vgpuctl.bounded_program import Ended, ProgramTooLate, ProgramTooLong, run_bounded
from vgpuctl.errors import InventoryError
from vgpuctl.inventory.tree import InventoryTree
from vgpuctl.logs import timed
from vgpuctl.model.masking import without_assigned
from vgpuctl.model.printable import printable
from vgpuctl.specs.bounded_reader import MOST_BYTES
from vgpuctl.specs.document import YamlDocument, parse_document
from vgpuctl.specs.origin import Origin

ANSWER_S = 180.0
"""For a plugin that asks a cloud."""
_DECRYPT_S = 30.0
_SHOWN = 600
_UNPARSED_FAILS = "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED"
_META = "_meta"
_VAULT_HINT = "set ANSIBLE_VAULT_PASSWORD_FILE, or vault_password_file in ansible.cfg"


class InventoryReader(StrEnum):
    """Who reads the inventory."""

    VGPUCTL = "vgpuctl"
    ANSIBLE = "ansible"


def read_by_ansible(sources: Sequence[str], folder: Path) -> tuple[InventoryTree, Callable[[str], str]]:
    """Read resolved sources. Returns the tree, whose hosts have all their variables, and what decrypts a vault's text.

    folder: where ansible looks for group_vars and ansible.cfg beside the sources. Raises InventoryError with ansible's
    own words, and FileNotTrusted before ansible is started.
    """
    from vgpuctl.inventory.ansible_files import judge_files

    judge_files(sources, folder, os.environ)
    program = _find("ansible-inventory")
    argv = [program, *(word for source in sources for word in ("-i", source)), "--list"]
    named = f"ansible-inventory -i {' -i '.join(sources)}"[:200]
    with timed("ansible", program="ansible-inventory") as fields:
        ended = _run(argv, folder, named, ANSWER_S)
        fields["exit"] = ended.status
    if ended.status:
        raise InventoryError(
            f"{named}: it ended with {ended.status}: {_words(ended)}",
            hint=f"`{named} --list` shows the same error; it is the installed {program}",
        )
    tree = _tree_of(parse_document(named, ended.output, may_be_encrypted=True))
    tree.warnings += [f"ansible-inventory: {line}" for line in _warnings(ended.complaint)]
    return tree, functools.cache(functools.partial(_decrypt, folder))


def _tree_of(document: YamlDocument) -> InventoryTree:
    """The tree of a listing: groups with `children` and `hosts`, and all variables under `_meta.hostvars`."""
    listing, place = document.data, Origin(document.path)
    if not isinstance(listing, dict) or not isinstance(listing.get(_META), dict):
        raise InventoryError(f"{place}: the output is no listing of an inventory", hint="is it ansible-core's program?")
    tree = InventoryTree()
    groups = {str(name): entry for name, entry in listing.items() if name != _META and isinstance(entry, dict)}
    for name, entry in groups.items():
        tree.add_group(name)
        for child in entry.get("children", ()):
            tree.add_group(child)
    for name, entry in groups.items():
        for child in entry.get("children", ()):
            tree.add_child(name, child, place)
        for host in entry.get("hosts", ()):
            tree.add_host(host, name, None, place)
    variables: Mapping[str, Mapping[str, Any]] = listing[_META].get("hostvars", {})
    for host, of_host in variables.items():
        if host not in tree.hosts:
            tree.add_host(host, "ungrouped", None, place)
        for name, value in of_host.items():
            tree.hosts[host].variables.assign(name, value, place)
    tree.settle()
    return tree


def _decrypt(folder: Path, text: str) -> str:
    """Decrypt one value by ansible's own secrets. Raises InventoryError without the value."""
    argv = [_find("ansible-vault"), "decrypt", "--output", "-", "-"]
    ended = _run(argv, folder, "ansible-vault decrypt", _DECRYPT_S, given=text.encode())
    if ended.status:
        raise InventoryError(f"ansible-vault cannot decrypt a variable: {_words(ended)}", hint=_VAULT_HINT)
    return ended.output


def _run(argv: Sequence[str], folder: Path, named: str, longest_s: float, *, given: bytes = b"") -> Ended:
    environment = {**os.environ, _UNPARSED_FAILS: os.environ.get(_UNPARSED_FAILS, "True"), "ANSIBLE_NOCOLOR": "1"}
    try:
        return run_bounded(
            argv,
            environment=environment,
            longest_s=longest_s,
            most_bytes=MOST_BYTES,
            folder=str(folder),
            given=given,
        )
    except OSError as error:
        raise InventoryError(f"{named}: {argv[0]} cannot be started: {error.strerror}") from error
    except ProgramTooLate as error:
        raise InventoryError(f"{named}: it did not end within {longest_s:g} s", hint="run it by hand") from error
    except ProgramTooLong as error:
        raise InventoryError(f"{named}: it printed more than {MOST_BYTES // 2**20} MiB") from error


def _find(program: str) -> str:
    """The program on PATH, else beside this Python. Raises InventoryError."""
    beside = Path(sys.executable).with_name(program)
    found = shutil.which(program) or (str(beside) if os.access(beside, os.X_OK) else None)
    if found is None:
        raise InventoryError(
            f"{program} is neither on PATH nor beside {sys.executable}",
            hint="install ansible-core, or read the inventory without it: --inventory-reader vgpuctl",
        )
    return found


def _words(ended: Ended) -> str:
    """The end of what ansible said: its errors stand last."""
    text = ended.complaint.strip() or ended.output.strip() or "it said nothing"
    errors = text[text.rfind("[ERROR]") :] if "[ERROR]" in text else text
    return _shown(errors)


def _warnings(complaint: str) -> list[str]:
    return [_shown(line) for line in complaint.splitlines() if "[WARNING]" in line]


def _shown(text: str) -> str:
    """One line for a message. Ansible quotes lines of the files that it read, also with passwords in them."""
    return printable(" ".join(without_assigned(text).split()))[:_SHOWN]
