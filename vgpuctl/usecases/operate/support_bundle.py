# SPDX-License-Identifier: Apache-2.0
"""support-bundle: one file for a bug report: versions, settings, the store's view, facts and logs, without secrets."""

import getpass
import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from vgpuctl import __version__
from vgpuctl.agent.wire.decode import to_json
from vgpuctl.errors import StoreUnusable, Unexpected, VgpuctlError
from vgpuctl.local_files import write_file
from vgpuctl.model.anonymous import Anonymiser, NameKind, host_words
from vgpuctl.model.capture import ReplacedCount
from vgpuctl.store.store import Session
from vgpuctl.trusted_files import NAMED, opened
from vgpuctl.usecases.host.check_hosts import examine_host
from vgpuctl.usecases.operate.bundle_parts import inventory_of, store_parts, vgpuctl_versions
from vgpuctl.usecases.support.observations import read_facts
from vgpuctl.usecases.support.services import Services

_MOST_LOG_BYTES = 4 * 2**20
_FOLDER = "support-bundle"
_HOST_OF_URL = re.compile(r"://(?:[^/@\s\"]*@)?([A-Za-z][\w.-]*)")


@dataclass(frozen=True)
class SupportBundle:
    """A bundle that was written. problems: what could not be read, in sentences. replaced: how much of each kind."""

    file: str
    size_bytes: int
    parts: tuple[str, ...]
    problems: tuple[str, ...]
    replaced: tuple[ReplacedCount, ...]


class _Parts:
    """The parts by name. A part that cannot be read becomes a problem and leaves the others."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.problems: list[str] = []

    def take(self, name: str, read: Callable[[], Any]) -> None:
        """Read one part."""
        try:
            self.found[name] = read()
        except VgpuctlError as error:
            self.problems.append(f"{name}: {error.reason_of('')}")
        except Exception as error:  # noqa: BLE001 - a bundle is made when something is wrong already
            self.problems.append(f"{name}: {Unexpected.of(error).message}")


def support_bundle(
    services: Services,
    file: Path,
    *,
    settings: Callable[[], Sequence[object]],
    hosts: Sequence[str] = (),
    refresh: bool = False,
    with_checks: bool = False,
    logs: Sequence[Path] = (),
    events: int = 1000,
    is_anonymous: bool = False,
) -> SupportBundle:
    """Collect and write a bundle; whatever cannot be read is said inside.

    settings: of the command line, each with its origin. hosts: only these; all of them without any. refresh: ask the
    hosts for facts instead of taking the cached ones. with_checks: check the hosts too. logs: files of --log-file, of
    which the end is taken. events: how many of the last ones. is_anonymous: replace names too. Raises FileNotWritten.
    """
    parts = _Parts()
    secrets: set[str] = _secrets_of(os.environ)
    names: dict[NameKind, set[str]] = {kind: set() for kind in NameKind}
    parts.take("versions.json", vgpuctl_versions)
    parts.take("settings.json", lambda: msgspec.to_builtins(settings(), str_keys=True, enc_hook=str))
    parts.take("inventory.json", lambda: inventory_of(services, secrets, names))
    parts.take("store.json", lambda: _collect_store(services, parts, names, secrets, events))
    wanted = list(hosts) or [one["host"] for one in parts.found.get("inventory.json", ())]
    cached: Mapping[str, Any] = parts.found.pop("facts", {})
    if refresh or with_checks:
        _ask_hosts(services, parts, wanted, refresh=refresh, with_checks=with_checks)
    for host, facts in cached.items():
        if f"hosts/{host}/facts.json" not in parts.found and (host in wanted or not hosts):
            parts.found[f"hosts/{host}/facts.json"] = facts
    for path in logs:
        parts.take(f"logs/{path.name}", lambda path=path: _end_of(path))  # type: ignore[misc]
    _add_host_names(parts.found, names)
    anonymiser = Anonymiser(
        names if is_anonymous else {}, secrets=secrets, mark=os.urandom(4).hex(), only_secrets=not is_anonymous
    )
    content = _replaced(parts, anonymiser, is_anonymous=is_anonymous)
    data = _archive(content)
    write_file(file, data, "the support bundle", mode=0o600)
    replaced = tuple(ReplacedCount(kind, count) for kind, count in anonymiser.counts().items())
    return SupportBundle(str(file), len(data), tuple(sorted(content)), tuple(parts.problems), replaced)


def _collect_store(
    services: Services, parts: _Parts, names: dict[NameKind, set[str]], secrets: set[str], events: int
) -> dict[str, Any]:
    """Read the store's parts in one transaction; each part that fails leaves the others."""
    place = services.store_place
    password = urlsplit(place.url).password
    if password:
        secrets.add(password)
    name = place.url.partition(":///")[2].partition("?")[0]
    if place.url.startswith("sqlite") and name and not Path(name).exists():
        raise StoreUnusable(f"there is no store at {name}", hint="name the store with --database")
    with services.store.reading() as session:
        for part, read in store_parts(session, names, events).items():
            parts.take(part, read)
        return {"url": place.url, "key_file": str(place.key_file), **_store_state(services, session)}


def _store_state(services: Services, session: Session) -> dict[str, Any]:
    return {
        "id": session.store_id(),
        "time": session.now(),
        "restore_mark": msgspec.to_builtins(session.restore_mark(), enc_hook=str),
        "forks": services.forks,
    }


def _ask_hosts(services: Services, parts: _Parts, hosts: Sequence[str], *, refresh: bool, with_checks: bool) -> None:
    def ask(host: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if refresh:
            found["facts.json"] = to_json(read_facts(services, host))
        if with_checks:
            seen, findings = examine_host(services, host, services.inventory.layout(host))
            found["checks.json"] = msgspec.to_builtins(findings, enc_hook=str)
            found.setdefault("facts.json", to_json(seen.facts))
        return found

    for result in services.on_hosts(list(hosts), ask):
        if result.error is not None:
            parts.problems.append(result.error.line_of(result.name))
        for name, value in (result.value or {}).items():
            parts.found[f"hosts/{result.name}/{name}"] = value


def _secrets_of(environment: Mapping[str, str]) -> set[str]:
    """Values of variables that are named as secrets, and passwords in URLs of others."""
    found = set()
    for name, value in environment.items():
        if any(word in name.upper() for word in ("PASSWORD", "SECRET", "TOKEN", "PRIVATE_KEY", "API_KEY")):
            found.add(value)
        elif "://" in value:
            try:
                found.add(urlsplit(value).password or "")
            except ValueError:
                continue
    return found


def _end_of(path: Path) -> str:
    with opened(path, NAMED) as judged, open(judged.descriptor, "rb", closefd=False) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MOST_LOG_BYTES))
        return file.read(_MOST_LOG_BYTES).decode(errors="replace")


def _add_host_names(found: Mapping[str, Any], names: dict[NameKind, set[str]]) -> None:
    """Add the names that hosts give themselves, those in URLs of the settings, and that of this machine and user."""
    own = _HOST_OF_URL.findall(json.dumps([found.get("settings.json"), found.get("store.json")]))
    own += [facts.get("hostname", "") for part, facts in found.items() if part.endswith("/facts.json")]
    for kind, words in host_words(os.uname().nodename, *own).items():
        names[kind] |= words
    try:
        names[NameKind.USER].add(getpass.getuser())
    except (KeyError, OSError):
        return


def _replaced(parts: _Parts, anonymiser: Anonymiser, *, is_anonymous: bool) -> dict[str, bytes]:
    # The kernel's words in facts are not names of VMs.
    by_part = {part: not part.endswith("/facts.json") for part in parts.found}
    for part, value in parts.found.items():
        anonymiser.look_at([part, value], with_names=by_part[part])
    anonymiser.look_at(parts.problems)
    content: dict[str, bytes] = {}
    for part, value in parts.found.items():
        clean = anonymiser.replace(value, with_names=by_part[part])
        text = clean if isinstance(clean, str) else json.dumps(clean, indent=1, ensure_ascii=False)
        content[anonymiser.replace(part)] = text.encode(errors="replace")
    parts.problems = list(anonymiser.replace(parts.problems))
    content["README.txt"] = _readme(parts, anonymiser, is_anonymous=is_anonymous).encode()
    return content


def _readme(parts: _Parts, anonymiser: Anonymiser, *, is_anonymous: bool) -> str:
    kinds = ", ".join(f"{count} × {kind}" for kind, count in anonymiser.counts().items()) or "nothing"
    lines = [
        f"Support bundle of vgpuctl {__version__}, {datetime.now(UTC).strftime('%Y-%m-%d %H:%M:%SZ')}",
        f"Names are {'replaced' if is_anonymous else 'as they are'}. Replaced or removed: {kinds}.",
        "Read it before you send it.",
        "",
        "Could not be read:" if parts.problems else "Everything could be read.",
        *(f"- {one}" for one in parts.problems),
    ]
    return "\n".join(lines) + "\n"


def _archive(content: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name in sorted(content):
            entry = tarfile.TarInfo(f"{_FOLDER}/{name}")
            entry.size, entry.mode, entry.mtime = len(content[name]), 0o600, 0
            archive.addfile(entry, io.BytesIO(content[name]))
    return buffer.getvalue()
