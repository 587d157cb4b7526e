# SPDX-License-Identifier: Apache-2.0
"""Read a configuration file: settings, and named contexts with settings of their own (docs/configuration.md)."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from vgpuctl.model.configuration import VARIABLES, ConfigurationFile, Configured, Context, ContextSettings
from vgpuctl.specs.document import YamlDocument, decode, parse_document, read_document
from vgpuctl.specs.field import Field, Number, Table, Text, Type, Whole, text_like
from vgpuctl.specs.reading import read_entry, read_file_entry
from vgpuctl.specs.value import Value
from vgpuctl.trusted_files import Trust
from vgpuctl.user_folders import expanded

FORMS = ("text", "table", "wide", "json", "yaml", "name", "csv")
_PATH, _PATHS, _DATABASE = Text(), Text(), Text()
_NAME = text_like(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", "a name")
CONTEXT = Table(
    "a context",
    ContextSettings,
    (
        Field(
            "inventory",
            _PATHS,
            "Inventory files, folders or hosts; in the variable with spaces between them",
            is_list=True,
            may_stand_alone=True,
        ),
        Field(
            "inventory_reader",
            text_like("vgpuctl|ansible", "a reader", hint="vgpuctl or ansible"),
            "Who reads the inventory; `ansible` also runs scripts and plugins",
        ),
        Field("database", _DATABASE, "URL of the store, or @FILE with such a URL"),
        Field("tenant", _NAME, "Tenant of commands that name none"),
        Field("output", text_like("|".join(FORMS), "a form of output", hint=", ".join(FORMS)), "Form of the output"),
        Field("forks", Whole(1, 500), "Hosts contacted at the same time; all, at most 25, without it"),
        Field("known_hosts", _PATH, "File of known host keys"),
        Field("connect_timeout", Number(0.1, 600), "Seconds to wait for a host's SSH port"),
        Field("command_timeout", Number(1, 3600), "Seconds to wait for a host's answer"),
        Field("key_file", _PATH, "Key of the secrets in the store"),
        Field("history", _PATH, "History of readings that the exporter keeps"),
        Field("prometheus", Text(), "URL of a Prometheus server to read past readings from"),
        Field("performance", _PATH, "Fitted model of throughput"),
        Field("ovn_northbound", Text(), "Address of OVN's northbound database"),
        Field("ovn_southbound", Text(), "Address of OVN's southbound database, which is only read"),
        Field("ovn_key", _PATH, "Private key for OVN's databases"),
        Field("ovn_certificate", _PATH, "Certificate for OVN's databases"),
        Field("ovn_authority", _PATH, "Certificate authority of OVN's databases"),
        Field("authority_folder", _PATH, "Folder of the certificate authority"),
        Field("slurm_folder", _PATH, "Folder of Slurm's secrets"),
        Field("reachable_networks", Text(), "Networks that tenants' VMs may reach", is_list=True, may_stand_alone=True),
        Field("cluster_networks", Text(), "Networks of clusters' servers", is_list=True, may_stand_alone=True),
        Field(
            "internal_domain",
            Text(),
            "Domain of the names of tenants' VMs; without it they have none",
        ),
    ),
)
_CHOSEN, _CONTEXTS = "context", "contexts"
_LINE = re.compile(rf"^{_CHOSEN}[ \t]*:.*$", re.MULTILINE)


def read_configuration(path: Path, trust: Trust) -> ConfigurationFile:
    """Read a file; relative paths in it start at its folder. trust: whose it may be.

    Raises FileNotTrusted, and InventoryError with line and reason.
    """
    return _read(read_document(str(path), trust), path)


def parse_configuration(path: Path, content: bytes) -> ConfigurationFile:
    """The same of a file that was read before."""
    return _read(parse_document(str(path), decode(str(path), content)), path)


def with_context(path: Path, text: str, name: str) -> str:
    """The text of a file that chooses this context, the rest as it was. Raises InventoryError for a broken file."""
    _read(parse_document(str(path), text), path)
    line = f"{_CHOSEN}: {name}"
    return _LINE.sub(line, text, count=1) if _LINE.search(text) else f"{line}\n{text}"


def _read(document: YamlDocument, path: Path) -> ConfigurationFile:
    content = {} if document.data is None else document.data
    root = Value(content, document.origin(), "", name="configuration", subject="a configuration file")
    read_file_entry(CONTEXT, root, beside=(_CHOSEN, _CONTEXTS))
    entries = root.mapping()
    contexts = {}
    for name, entry in entries[_CONTEXTS].mapping().items() if _CONTEXTS in entries else ():
        with entry.located():
            _NAME.parse(name, what="the name of a context")
        inner = replace(entry, content={} if entry.content is None else entry.content, subject="a context")
        read_entry(CONTEXT, inner)
        contexts[name] = Context(name, str(path), _settings(inner, path, f" (context {name})"))
    chosen = entries.get(_CHOSEN)
    return ConfigurationFile(
        str(path),
        _settings(root, path, ""),
        contexts,
        None if chosen is None else (chosen.text(), str(chosen.origin)),
    )


def _settings(entry: Value, path: Path, whose: str) -> dict[str, Configured]:
    found = {}
    for key, value in entry.named(VARIABLES).items():
        if key in VARIABLES and value.content is not None:
            content: Any = tuple(value.content) if isinstance(value.content, list) else value.content
            field = CONTEXT.field(key)
            content = (content,) if field.is_list and isinstance(content, str) else content
            absolute = _absolute(field.type, content, path.absolute().parent)
            found[key] = Configured(key, absolute, f"{value.origin}{whose}")
    return found


def _absolute(kind: Type, content: Any, folder: Path) -> Any:
    if kind is _PATHS:
        return tuple(one if "," in one else _path(one, folder) for one in content)
    if kind is _DATABASE:
        return _database(content, folder)
    return _path(content, folder) if kind is _PATH else content


def _database(url: str, folder: Path) -> str:
    if url.startswith("@"):
        return f"@{_path(url[1:], folder)}"
    file = url.removeprefix("sqlite:///")
    return url if file == url else f"sqlite:///{_path(file, folder)}"


def _path(text: str, folder: Path) -> str:
    return str(folder / expanded(text))
