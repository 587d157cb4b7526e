# SPDX-License-Identifier: Apache-2.0
"""Functions of libraries that only one place of ours may use; tests/unit/test_gates.py has our own functions."""

from dataclasses import dataclass

import pytest

from tests.unit.uses_of_names import uses


@dataclass(frozen=True)
class Library:
    """A function of a library. rule: why it is guarded. name, on: as for Guarded. places: files that may use it."""

    rule: str
    name: str
    on: str
    places: frozenset[str]


def _library(rule: str, name: str, on: str, *places: str) -> Library:
    return Library(rule, name, on, frozenset(places))


_WRITES = "text reaches the terminal through the function that escapes it"
_DECODES = "a kind of JSON is looked at by one thread before others decode it"
_READS = "YAML and JSON files have one bounded reader"
LIBRARIES = [
    *(_library(_WRITES, name, "click", "cli/support/output.py") for name in ("echo", "confirm", "prompt", "style")),
    *(_library(_WRITES, name, "click") for name in ("secho", "echo_via_pager", "clear", "pause")),
    _library(_WRITES, "print", ""),
    _library("numbers of options have one reader", "FloatRange", "click", "cli/support/numbers.py"),
    _library("numbers of options have one reader", "IntRange", "click", "cli/support/numbers.py"),
    *(_library("numbers of options have one reader", name, "click") for name in ("FLOAT", "INT")),
    _library(_WRITES, "write", "sys.stdout"),
    _library(_WRITES, "write", "sys.stderr"),
    *(_library(_READS, name, "yaml") for name in ("safe_load", "load_all", "safe_load_all", "compose", "full_load")),
    _library(_READS, "load", "yaml", "catalog/build.py"),  # our own data
    _library(_READS, "parse", "yaml", "specs/bounded_reader.py"),
    _library(_READS, "compose_all", "yaml", "specs/lines.py"),  # of text that was read
    _library(_DECODES, "Decoder", "msgspec.json", "typed_json.py"),
    _library(_DECODES, "decode", "msgspec.json"),
    _library("libvirt's XML has one bounded reader", "fromstring", "ElementTree", "guests/xml_reader.py"),
]


_FILES = "local_files.py"
WRITERS = {
    "write_text": set[str](),
    "write_bytes": {_FILES, "catalog/build.py"},  # run by hand, when the catalogue's data change
    "mkdir": {_FILES},
    "makedirs": set[str](),
    "mkdtemp": set[str](),
    "NamedTemporaryFile": set[str](),
    "TemporaryDirectory": set[str](),
    "hardlink_to": {_FILES},
    "symlink_to": set[str](),
    "touch": set[str](),
    "O_WRONLY": {_FILES, "cli/support/output.py"},  # /dev/null
    "O_CREAT": {_FILES, "store/sqlite.py"},  # the store itself
    "FileHandler": set[str](),
}
"""Primitives that write files of this machine → files of ours that may use them. The lab is a program of its own."""


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("Transport", {"hosts/bounds.py", "hosts/connection.py", "hosts/login.py", "hosts/ordered_transport.py"}),
        ("OrderedTransport", {"hosts/login.py"}),
        ("Stream", {"ovn/bounded_streams.py", "ovn/northbound.py"}),  # northbound names its certificates
    ],
)
def test_what_another_machine_sends_is_bounded_in_one_place(name: str, files: set[str]) -> None:
    found = {use.place.partition(":")[0] for use in uses() if use.name == name}
    assert found <= files, f"a stream from another machine passes through WatchedStream or bounded_streams: {name}"


UNBOUNDED_READERS = {
    "autoscaler/messages.py",  # of the package
    "catalog/lookup.py",  # of the package
    "guests/facts/guest_report.py",  # of the package
    "guests/templating.py",  # of the package
    "hosts/bundle.py",  # of the package
    "local_files.py",  # the store's
    "ovn/authority.py",  # of our own
    "store/liveness.py",  # of the kernel
    "telemetry/shipped_files.py",  # of the package
    "usecases/host/adopt_host.py",  # of our own
    "usecases/network/create_certificate.py",  # of our own
    "usecases/layout/export_layout.py",  # of our own
}


def test_files_of_others_have_one_bounded_reader() -> None:
    found = {use.place.partition(":")[0] for use in uses() if use.name in ("read_text", "read_bytes") and use.on}
    assert found == UNBOUNDED_READERS, "files that others write are read by specs.bounded_reader.read_bounded"


@pytest.mark.parametrize("name", WRITERS)
def test_files_are_written_through_one_place(name: str) -> None:
    found = {use.place.partition(":")[0] for use in uses() if use.name == name}
    assert found == WRITERS[name], f"files outside of the store are written by {_FILES} alone: {name}"


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda one: f"{one.on}.{one.name}: {one.rule}")
def test_only_one_place_uses_what_a_library_offers(library: Library) -> None:
    found = {use.place.partition(":")[0] for use in uses() if use.name == library.name and use.on == library.on}
    assert found == library.places, f"{library.rule}: {library.on}.{library.name}"


@pytest.mark.parametrize(
    "name", ["expanduser", "home", "user_cache_path", "user_config_path", "user_data_path", "user_data_dir"]
)
def test_homes_of_users_are_found_in_one_place(name: str) -> None:
    found = {use.place.partition(":")[0] for use in uses() if use.name == name and use.on != ""}
    assert found <= {"user_folders.py"}, "a user without a home is told so by vgpuctl.user_folders alone"
