# SPDX-License-Identifier: Apache-2.0
"""Files that libpq opens by itself for a connection: those that others may write to are refused, before it connects."""

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from vgpuctl.errors import FileNotTrusted, StoreUnusable
from vgpuctl.store.address import PostgresqlAddress, parse_url
from vgpuctl.store.names import CompletedKind, names, read_names
from vgpuctl.store.postgresql_programs import run, run_scripts
from vgpuctl.store.store import open_store

_VARIABLES = (
    "SERVICE",
    "SERVICEFILE",
    "SYSCONFDIR",
    "PASSFILE",
    *(f"SSL{one}" for one in ("ROOTCERT", "CERT", "KEY", "CRL")),
)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket that the connections would reach; the home of the user is the test's folder."""
    for name in _VARIABLES:
        monkeypatch.delenv(f"PG{name}", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


_SERVICE = "[other]\nhost=nowhere\n\n[s]\nhost=127.0.0.1\nport=PORT\ndbname=d\n"
FILES: dict[str, tuple[str, str, Mapping[str, str]]] = {
    "service-of-environment": ("svc", "service=s", {"PGSERVICEFILE": "HOME/svc"}),
    "service-of-home": (".pg_service.conf", "service=s", {}),
    "service-of-environment-only": (".pg_service.conf", "", {"PGSERVICE": "s"}),
    "service-of-system": ("etc/pg_service.conf", "service=s", {"PGSYSCONFDIR": "HOME/etc"}),
    "authority": ("ca.pem", "sslmode=verify-full&sslrootcert=HOME/ca.pem", {}),
    "authority-of-environment": ("ca.pem", "", {"PGSSLROOTCERT": "HOME/ca.pem"}),
    "authority-of-home": (".postgresql/root.crt", "", {}),
    "authority-of-service": ("ca.pem", "service=trusted", {"PGSERVICEFILE": "HOME/trusted"}),
    "certificate": ("c.pem", "sslcert=HOME/c.pem", {}),
    "certificate-of-home": (".postgresql/postgresql.crt", "sslcert=", {}),
    "key": ("k.pem", "sslkey=HOME/k.pem", {}),
    "key-of-home": (".postgresql/postgresql.key", "", {}),
    "revoked": ("crl.pem", "sslcrl=HOME/crl.pem", {}),
    "revoked-of-home": (".postgresql/root.crl", "", {}),
    "revoked-in-folder": ("crls", "", {"PGSSLCRLDIR": "HOME/crls"}),
    "passwords": ("pass", "", {"PGPASSFILE": "HOME/pass"}),
    "passwords-of-url": ("pass", "passfile=HOME/pass", {}),
    "passwords-of-home": (".pgpass", "", {}),
}


@pytest.mark.parametrize(("file", "query", "environment"), FILES.values(), ids=FILES)
def test_a_file_of_libpq_that_others_may_write_to_is_refused_before_it_connects(
    file: str,
    query: str,
    environment: Mapping[str, str],
    server: socket.socket,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = server.getsockname()[1]
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    if file == "crls":
        path.mkdir()
    else:
        path.write_text(_SERVICE.replace("PORT", str(port)))
    (tmp_path / "trusted").write_text(f" [trusted]\n# what\n dbname = d\nsslrootcert={tmp_path}/ca.pem \n[next]\n")
    for name, value in environment.items():
        monkeypatch.setenv(name, value.replace("HOME", str(tmp_path)))
    path.chmod(0o777 if path.is_dir() else 0o666)
    query = query.replace("HOME", str(tmp_path))
    url = f"postgresql://me@127.0.0.1:{port}/d?{query}"
    address = parse_url(url)
    assert isinstance(address, PostgresqlAddress)
    for use in (
        lambda: open_store(url),
        lambda: read_names(url, CompletedKind.VM),
        lambda: run_scripts(address, []),
    ):
        with pytest.raises(FileNotTrusted, match="every user") as refused:
            use()
        assert refused.value.message.startswith(f"{path} is not used: it may be ")
    assert names(url, CompletedKind.VM) == []
    with pytest.raises(BlockingIOError):
        server.accept()


def test_files_that_are_ours_or_missing_are_used(server: socket.socket, tmp_path: Path) -> None:
    (tmp_path / ".pg_service.conf").write_text(f"[s]\nport={server.getsockname()[1]}\ndbname=d\n")
    (tmp_path / ".pgpass").write_text("*:*:*:*:secret\n")
    (tmp_path / ".pgpass").chmod(0o600)
    with pytest.raises(StoreUnusable, match="timeout"):
        open_store("postgresql://127.0.0.1/?service=s&connect_timeout=2&sslcert=/nowhere/x&sslrootcert=system")
    server.accept()[0].close()
    assert run("psql", ["--version"], None)
