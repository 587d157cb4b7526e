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
    *(
        _library(_WRITES, name, "click", "cli/shown/output.py")
        for name in ("echo", "confirm", "prompt", "style", "echo_via_pager")
    ),
    *(_library(_WRITES, name, "click") for name in ("secho", "clear", "pause")),
    _library(_WRITES, "print", ""),
    _library("numbers of options have one reader", "FloatRange", "click", "cli/options/numbers.py"),
    _library("numbers of options have one reader", "IntRange", "click", "cli/options/numbers.py"),
    *(_library("numbers of options have one reader", name, "click") for name in ("FLOAT", "INT")),
    _library(_WRITES, "write", "sys.stdout"),
    _library(_WRITES, "write", "sys.stderr"),
    *(_library(_READS, name, "yaml") for name in ("safe_load", "load_all", "safe_load_all", "compose", "full_load")),
    _library(_READS, "load", "yaml", "catalog/build.py"),  # our own data
    _library(_READS, "parse", "yaml", "specs/bounded_reader.py"),
    _library(_READS, "compose_all", "yaml", "specs/lines.py"),  # of text that was read
    _library(_DECODES, "Decoder", "msgspec.json", "typed_json.py"),
    _library(_DECODES, "decode", "msgspec.json"),
    _library(
        "code of other packages is judged before it is imported",
        "import_module",
        "importlib",
        "cli/plugins.py",
        *("cli/main.py", "cli/forms/json_schema.py", "clusters/kubernetes/bounded_transport.py"),  # of our own names
    ),
    _library("libpq's own files are judged before it connects", "connect", "psycopg", "store/libpq_files.py"),
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
    "O_WRONLY": {_FILES, "cli/shown/output.py"},  # /dev/null
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


_OF_THE_PACKAGE = "a file of the package, which is as trusted as its code"
_OPENED = "what trusted_files opened, by its descriptor"
_WRITTEN = "compared with what is about to be written, and believed in nothing"
PAST_THE_GATE = {
    "autoscaler/messages.py:_pool": _OF_THE_PACKAGE,
    "autoscaler/tls.py:_read": _OPENED,
    "catalog/build.py:_load": _OF_THE_PACKAGE,
    "catalog/lookup.py:_catalog": _OF_THE_PACKAGE,
    "cli/main.py:_open_standard_streams": "/dev/null",
    "cli/plugins.py:_content": "descriptions of packages; the one that names commands is judged before they count",
    "cli/shown/output.py:drop_output": "/dev/null",
    "guests/facts/guest_report.py:probe_script": _OF_THE_PACKAGE,
    "guests/templating.py:environment": _OF_THE_PACKAGE,
    "hosts/authentication.py:_load_key": _OPENED,
    "hosts/bundle.py:_build": _OF_THE_PACKAGE,
    "hosts/bundle.py:_pynvml_source": "a file of an installed package",
    "hosts/bundle.py:_sources": _OF_THE_PACKAGE,
    "hosts/libvirt_tunnel.py:_lock": "a folder that this process made",
    "hosts/graphics_tunnel.py:_user_of": "of the kernel",
    "local_files.py:_beside": "a new file",
    "local_files.py:_copied": "the store's own files, for SQLite",
    "local_files.py:_flush": "written to by this process",
    "local_files.py:make_private": "a new file",
    "local_files.py:open_lock": "a lock has no content",
    "local_files.py:open_to_append": "nothing is read",
    "local_files.py:read_own": "a stricter gate, for copies that programs keep: of this user alone",
    "ovn/southbound.py:_connect": _OPENED,
    "store/backup.py:_pack": "written by this process in a folder of its own",
    "store/backup.py:_sha256": "written by this process in a folder of its own",
    "store/backup.py:_unpacked": _OPENED,
    "store/liveness.py:_machine": "of the operating system",
    "store/liveness.py:_process_start": "of the kernel",
    "store/sqlite.py:_command_line": "of the kernel",
    "store/sqlite.py:_create": "a new file",
    "store/backup.py:_regular_file": _OPENED,
    "store/sqlite.py:_why_no_room": "a file without a name",
    "store/sqlite.py:holder": "of the kernel",
    "telemetry/shipped_files.py:_read": _OF_THE_PACKAGE,
    "usecases/host/adopt_host.py:save_layout": _WRITTEN,
    "usecases/layout/export_layout.py:save_export": _WRITTEN,
    "usecases/network/create_certificate.py:create_certificates": _WRITTEN,
    "usecases/operate/support_bundle.py:_archive": "a new archive in memory",
    "usecases/operate/support_bundle.py:_end_of": _OPENED,
    "web/protection.py:_make_context": _OPENED,
}
"""Functions that open a file of this machine themselves → why that is no hole. All others go through trusted_files."""
_OPENERS = {"open", "read_text", "read_bytes", "from_path", "from_file", "load_cert_chain", "load_verify_locations"}
_NO_FILES = {"self", "library", "budget", "place", "self._key_file", "self._opener", "ovs.stream.Stream"}
"""Before the dot of an `open` that opens no file."""


def test_a_file_is_judged_before_it_is_believed() -> None:
    """Who could have written a file is decided by trusted_files; a new reader goes through it, or says why not."""
    opening = [use for use in uses() if use.is_call and use.name in _OPENERS and use.on not in _NO_FILES]
    found = {use.place for use in opening if use.on or use.name == "open"}  # others are functions of ours
    past = {place for place in found if not place.startswith("trusted_files.py:")}
    assert past - PAST_THE_GATE.keys() == set(), (
        "read it with trusted_files.opened or specs.bounded_reader.read_bounded"
    )
    assert PAST_THE_GATE.keys() - past == set(), "these open nothing any more; take them out of the table"


_STARTS = {"Popen", "run", "call", "check_call", "check_output", "system", "popen", "execv", "execvp", "execve"}
_STARTS |= {"posix_spawn", "posix_spawnp", "create_subprocess_exec", "create_subprocess_shell", "getoutput"}
_JUDGES = {"judge_program", "judge_command", "judge_shell_line"}


def test_a_program_is_judged_before_it_is_started() -> None:
    """Who could have written a program decides, as for a file; which function starts it also judges it."""
    starting = {one.place for one in uses() if one.name in _STARTS and one.on in ("subprocess", "os", "asyncio")}
    judging = {one.place for one in uses() if one.name in _JUDGES and one.is_call}
    assert len(starting) >= 8
    assert starting - judging == set(), "judge it with vgpuctl.trusted_programs, or start it with run_bounded"


LISTENERS = {
    "autoscaler/server.py:serving": {"add_insecure_port", "add_secure_port"},  # a private unix socket behind the relay
    "listening/sockets.py:listen_at": {"bind", "listen"},
    "listening/sockets.py:listen_on": {"create_server"},
}
_LISTENS = {
    "bind",
    "listen",
    "create_server",
    "create_unix_server",
    "start_server",
    "start_unix_server",
    "add_insecure_port",
    "add_secure_port",
    "bind_socket",
    "bind_unix_socket",
    "run_simple",
    "make_server",
    "serve_forever",
}
_SERVERS = {"HTTPServer", "ThreadingHTTPServer", "TCPServer", "UDPServer", "UnixStreamServer", "WSGIServer", "Listener"}
_LISTENS_NOT = {"options", "extender", "self._binder"}
"""Before the dot of a `listen` or `bind` that has no socket."""


def test_the_front_alone_makes_listening_sockets() -> None:
    """Whatever listens has the front's rules for Host, Origin, bodies, times and numbers of connections."""
    found = dict[str, set[str]]()
    for use in uses():
        if (use.name in _LISTENS and use.value is not None and use.on not in _LISTENS_NOT) or use.name in _SERVERS:
            found.setdefault(use.place, set()).add(use.name)
    assert found == LISTENERS, "listen through vgpuctl.listening, and add a row to tests/integration/web"
    assert "FrontServer" in {use.name for use in uses() if use.place == "web/server.py:make_server"}
    assert {use.place for use in uses() if use.name == "FrontServer" and use.is_call} == {"web/server.py:make_server"}
    making = {use.place for use in uses() if use.name in ("listen_on", "listen_at") and use.is_call}
    assert making == {
        "autoscaler/server.py:serving",
        "hosts/graphics_tunnel.py:__init__",
        "hosts/graphics_tunnel.py:_unix_socket",
        "hosts/libvirt_tunnel.py:__enter__",
        "web/server.py:bind",
    }, "tests/integration/web/test_all_servers.py has a row for each server"


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
