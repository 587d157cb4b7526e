# SPDX-License-Identifier: Apache-2.0
"""Groups, hosts and variables of one YAML (or JSON) inventory file."""

from typing import Any

from vgpuctl.inventory import host_names
from vgpuctl.inventory.tree import InventoryTree
from vgpuctl.specs.document import YamlDocument
from vgpuctl.specs.origin import malformed

READ_BY_ANSIBLE = "--inventory-reader ansible reads it by the installed ansible-core (docs/ansible.md)"

_SECTIONS = ("hosts", "vars", "children")


def add_yaml(document: YamlDocument, tree: InventoryTree) -> None:
    """Add a file whose top level is a mapping of group names. Raises InventoryError with file and line."""
    if "plugin" in document.data:
        raise malformed(
            document.origin("plugin"),
            f"this configures the inventory plugin {document.data['plugin']!r}, which vgpuctl does not run",
            hint=READ_BY_ANSIBLE,
        )
    tree.warnings.extend(document.warnings)
    for name, content in document.data.items():
        _add_group(document, (name,), content, tree)


def _add_group(document: YamlDocument, keys: tuple[Any, ...], content: object, tree: InventoryTree) -> None:
    name = keys[-1]
    if not isinstance(name, str) or not name:
        raise malformed(document.origin(*keys), f"{name!r} is not a group name", hint="quote it to make it text")
    if content is not None and not isinstance(content, dict):
        raise malformed(
            document.origin(*keys),
            f"group {name!r} is {_kind(content)}, not a mapping with hosts, vars or children",
        )
    tree.add_group(name)
    for section, value in (content or {}).items():
        where = (*keys, section)
        if section not in _SECTIONS:
            tree.warnings.append(
                f"{document.origin(*where)}: {section!r} in group {name!r} is skipped; "
                "only hosts, vars and children count"
            )
            continue
        entries = {value: None} if isinstance(value, str) and value else value
        if entries is not None and not isinstance(entries, dict):
            hint = "write `hosts: {gpu1: }`; of an inventory script name the script, not what it printed, and "
            raise malformed(
                document.origin(*where),
                f"{section} of group {name!r} is {_kind(value)}, not a mapping",
                hint=hint + READ_BY_ANSIBLE if isinstance(value, list) else None,
            )
        for key, item in (entries or {}).items():
            if section == "hosts":
                _add_hosts(document, (*where, key), item, name, tree)
            elif section == "vars":
                tree.assign(name, key, item, document.origin(*where, key))
            else:
                _add_group(document, (*where, key), item, tree)
                tree.add_child(name, key, document.origin(*where, key))


def _add_hosts(document: YamlDocument, keys: tuple[Any, ...], variables: Any, group: str, tree: InventoryTree) -> None:
    pattern, origin = keys[-1], document.origin(*keys)
    if not isinstance(pattern, str):
        raise malformed(origin, f"host {pattern!r} is {_kind(pattern)}", hint="quote it to make it text")
    if variables and not isinstance(variables, dict):
        raise malformed(origin, f"the variables of host {pattern!r} are {_kind(variables)}, not a mapping")
    address, port = host_names.split_port(pattern, origin)
    for name in host_names.expand(address, origin):
        tree.add_host(name, group, port, origin)
        for key, value in (variables or {}).items():
            tree.assign(name, key, value, document.origin(*keys, key))


def _kind(value: object) -> str:
    names = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        list: "a list",
        type(None): "empty",
    }
    return names.get(type(value), f"a {type(value).__name__}")
