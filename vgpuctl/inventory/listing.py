# SPDX-License-Identifier: Apache-2.0
"""The inventory as `ansible-inventory --list` prints it (ansible-core 2.19)."""

import datetime
import json
import re
from collections.abc import Mapping
from typing import Any

from vgpuctl.errors import InventoryError
from vgpuctl.inventory.connection import HARMLESS_VARIABLES
from vgpuctl.inventory.tree import InventoryTree, is_guarded
from vgpuctl.model.masking import MASK, shown_login, without_passwords
from vgpuctl.model.secret import Secret
from vgpuctl.specs.file_kinds import HOST_VARIABLES
from vgpuctl.specs.origin import EncryptedText, UntrustedText

_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL)
_LOGIN = re.compile(r"[^\s@:/]+:\S*@[^\s@/]+")
_PLAIN = re.compile(r"[\w.:/@~%{}\[\]+ -]{0,255}")
PROFILE = "inventory_legacy"

MAGIC_VARIABLES = frozenset(
    (
        "ansible_async_path",
        "ansible_collection_name",
        "ansible_config_file",
        "ansible_dependent_role_names",
        "ansible_diff_mode",
        "ansible_facts",
        "ansible_forks",
        "ansible_inventory_sources",
        "ansible_limit",
        "ansible_play_batch",
        "ansible_play_hosts",
        "ansible_play_hosts_all",
        "ansible_play_role_names",
        "ansible_playbook_python",
        "ansible_role_name",
        "ansible_role_names",
        "ansible_run_tags",
        "ansible_skip_tags",
        "ansible_verbosity",
        "ansible_version",
        "inventory_dir",
        "inventory_file",
        "inventory_hostname",
        "inventory_hostname_short",
        "groups",
        "group_names",
        "hostvars",
        "playbook_dir",
        "play_hosts",
        "role_name",
        "role_names",
        "role_path",
        "role_uuid",
    )
)
"""Names that ansible sets itself: whatever the inventory says of them is not listed."""


def as_ansible_list(
    tree: InventoryTree, hosts: Mapping[str, Mapping[Any, Any]], *, with_secrets: bool
) -> dict[str, dict[str, Any]]:
    """Build the listing of the chosen hosts (name to variables), keys in order.

    with_secrets: exactly as ansible prints it; else only what is known to be no secret is shown: the variables of the
    connection and of vgpuctl, without what is secret in them by its kind or name, and what is null, true or false.

    A group without hosts and children is left out, and so are the hosts of `all` and a host without variables.
    """
    listing: dict[str, dict[str, Any]] = {}
    for name, group in sorted(tree.groups.items()):
        entry: dict[str, Any] = {}
        if group.children:
            entry["children"] = list(group.children)
        members = [host for host in group.hosts if host in hosts]
        if members and name != "all":
            entry["hosts"] = members
        if entry:
            listing[name] = entry
    variables = {
        name: _plain(values, name, (), with_secrets=with_secrets)
        for name, values in sorted(hosts.items())
        if not MAGIC_VARIABLES.issuperset(values)
    }
    listing["_meta"] = {"hostvars": variables, "profile": PROFILE}
    return dict(sorted(listing.items()))


def _plain(value: Any, host: str, way: tuple[str, ...], *, with_secrets: bool) -> Any:
    """Turn a variable into what JSON knows, as ansible does."""
    try:
        if isinstance(value, Secret):
            value = value.reveal()
        if not with_secrets and way and (is_guarded(way[-1], value) or not _is_harmless(way, value)):
            return MASK
        if isinstance(value, EncryptedText):
            return {"__ansible_vault": str(value)}
        if isinstance(value, str) and not with_secrets:
            is_login = _LOGIN.fullmatch(value) or (way and way[-1].endswith(("user", "host")))
            value = type(value)(shown_login(value) if is_login else without_passwords(_PEM.sub(MASK, value)))
        if isinstance(value, UntrustedText):
            return {"__ansible_unsafe": str(value)}
        if isinstance(value, Mapping):
            named = {_key(key, host, way): (key, item) for key, item in value.items()}
            return {
                name: _plain(item, host, (*way, name), with_secrets=with_secrets)
                for name, (_, item) in sorted(named.items())
                if way or name not in MAGIC_VARIABLES
            }
        if isinstance(value, (list, tuple, set)):
            return [
                _plain(item, host, (*way, str(index)), with_secrets=with_secrets) for index, item in enumerate(value)
            ]
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        return value
    except RecursionError as exc:
        raise InventoryError(f"variable {way[0]!r} of host {host!r} contains itself") from exc


def _is_harmless(way: tuple[str, ...], value: Any) -> bool:
    """True if the variable at the start of the way is one that shows its value, and this text has a plain form."""
    if value is None or isinstance(value, bool) or way[0] in HOST_VARIABLES:
        return True
    return way[0] in HARMLESS_VARIABLES and (isinstance(value, int) or _PLAIN.fullmatch(str(value)) is not None)


def _key(key: Any, host: str, way: tuple[str, ...]) -> str:
    if isinstance(key, str):
        return str(key)
    if key is None or isinstance(key, (int, float)):
        return json.dumps(key)
    where = f"variable {'.'.join(way)!r}" if way else "a variable"
    raise InventoryError(f"{where} of host {host!r} has the key {key!r}, which is a {type(key).__name__}, not text")
