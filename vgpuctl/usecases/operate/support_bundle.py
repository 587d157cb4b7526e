# SPDX-License-Identifier: Apache-2.0
"""support-bundle: one file for a bug report, of what is known to be harmless; texts go in when the user has agreed.

Records are built field by field (bundle_parts.py, harmless.py). Logs, reasons, details of events and the words of hosts
are texts: secrets that are known or look like some are removed from them, which can miss one, so the user is asked.
"""

import getpass
import gzip
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from vgpuctl import __version__
from vgpuctl.errors import StoreUnusable, Unexpected, UsageError, VgpuctlError
from vgpuctl.local_files import write_file, write_new
from vgpuctl.model.anonymous import Anonymiser, NameKind, host_words
from vgpuctl.model.capture import ReplacedCount
from vgpuctl.model.masking import is_secret_name, shown_url
from vgpuctl.store.store import Session
from vgpuctl.trusted_files import NAMED, opened
from vgpuctl.usecases.host.check_hosts import examine_host
from vgpuctl.usecases.observed.observations import read_facts
from vgpuctl.usecases.operate.bundle_parts import (
    facts_of,
    finding_of,
    inventory_of,
    settings_of,
    store_parts,
    vgpuctl_versions,
)
from vgpuctl.usecases.operate.harmless import Harmless
from vgpuctl.usecases.operate.show_config import ShownSetting
from vgpuctl.usecases.running.services import Services

_MOST_LOG_BYTES = 4 * 2**20
_FOLDER = "support-bundle"
_TEXTS = "texts"
_HOST_OF_URL = re.compile(r"://(?:[^/@\s\"]*@)?([A-Za-z][\w.-]*)")


@dataclass(frozen=True)
class SupportBundle:
    """A bundle that was written. problems: what could not be read, in sentences. replaced: how much of each kind.

    has_texts: whether logs, reasons and other free texts are in it.
    """

    file: str
    size_bytes: int
    parts: tuple[str, ...]
    problems: tuple[str, ...]
    replaced: tuple[ReplacedCount, ...]
    has_texts: bool = False


class _Parts:
    """The parts by name. A part that cannot be read becomes a problem and leaves the others.

    problems: sentences, for the user. references: the same as part or host with the error's reference, for the bundle.
    """

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self.problems: list[str] = []
        self.references: list[str] = []

    def add_problem(self, name: str, error: VgpuctlError) -> None:
        """Note what went wrong with one part."""
        self.problems.append(f"{name}: {error.reason_of(name)}")
        self.references.append(f"{name}: {error.reference}")

    def take(self, name: str, read: Callable[[], Any]) -> None:
        """Read one part."""
        try:
            self.found[name] = read()
        except VgpuctlError as error:
            self.add_problem(name, error)
        except Exception as error:  # noqa: BLE001 - a bundle is made when something is wrong already
            self.add_problem(name, Unexpected.of(error))


def support_bundle(
    services: Services,
    file: Path,
    *,
    settings: Callable[[], Sequence[ShownSetting]],
    commands: Collection[str] = (),
    accept_texts: Callable[[str], bool] = lambda _texts: False,
    hosts: Sequence[str] = (),
    refresh: bool = False,
    with_checks: bool = False,
    logs: Sequence[Path] = (),
    events: int = 1000,
    is_anonymous: bool = False,
    force: bool = False,
) -> SupportBundle:
    """Collect and write a bundle; whatever cannot be read is said inside.

    settings: of the command line, each with its origin. commands: the names of all. accept_texts: is shown the free
    texts and says whether they go in. hosts: only these; all of them without any. refresh: ask the
    hosts for facts instead of taking the cached ones. with_checks: check the hosts too. logs: files of --log-file, of
    which the end is taken. events: how many of the last ones. is_anonymous: replace names too. force: replace
    the file that is there. Raises UsageError for a file that is there, FileNotWritten.
    """
    if file.is_file() and not force:
        raise _is_there(file)
    parts = _Parts()
    secrets: set[str] = _secrets_of(os.environ)
    names: dict[NameKind, set[str]] = {kind: set() for kind in NameKind}
    parts.take("versions.json", vgpuctl_versions)
    harmless = Harmless(commands)
    parts.take("settings.json", lambda: settings_of(settings(), harmless))
    parts.take("inventory.json", lambda: inventory_of(services, secrets, names, harmless))
    parts.take("store.json", lambda: _collect_store(services, parts, names, secrets, events, harmless))
    wanted = list(hosts) or [one["host"] for one in parts.found.get("inventory.json", ())]
    cached: Mapping[str, Any] = parts.found.pop("facts", {})
    if refresh or with_checks:
        _ask_hosts(services, parts, wanted, harmless, refresh=refresh, with_checks=with_checks)
    for host, facts in cached.items():
        if f"hosts/{host}/facts.json" not in parts.found and (host in wanted or not hosts):
            parts.found[f"hosts/{host}/facts.json"] = facts
    texts = _Parts()
    for number, path in enumerate(logs, start=1):
        texts.take(f"{_TEXTS}/logs/{number}.log", lambda path=path: _end_of(path))  # type: ignore[misc]
    texts.found[f"{_TEXTS}/texts.json"] = {**harmless.texts, "problems": [*parts.problems, *texts.problems]}
    parts.problems += texts.problems
    parts.references += texts.references
    _add_host_names([*parts.found.items(), *texts.found.items()], names)
    anonymiser = Anonymiser(
        names if is_anonymous else {}, secrets=secrets, mark=os.urandom(4).hex(), only_secrets=not is_anonymous
    )
    shown = _replaced(texts.found, anonymiser)
    has_texts = accept_texts("\n".join(f"--- {name}\n{shown[name].decode()}" for name in sorted(shown)))
    content = {**_replaced(parts.found, anonymiser), **(shown if has_texts else {})}
    references = list(anonymiser.replace(parts.references))
    content["README.txt"] = _readme(references, anonymiser, is_anonymous=is_anonymous, has_texts=has_texts).encode()
    data = _archive(content)
    if force or file.exists():  # a device or a pipe
        write_file(file, data, "the support bundle", mode=0o600)
    elif not write_new(file, data, "the support bundle"):
        raise _is_there(file)
    replaced = tuple(ReplacedCount(kind, count) for kind, count in anonymiser.counts().items())
    return SupportBundle(str(file), len(data), tuple(sorted(content)), tuple(parts.problems), replaced, has_texts)


def _is_there(file: Path) -> UsageError:
    return UsageError(f"{file} is there already", hint="give another FILE, or --force to overwrite it")


def _collect_store(
    services: Services,
    parts: _Parts,
    names: dict[NameKind, set[str]],
    secrets: set[str],
    events: int,
    harmless: Harmless,
) -> dict[str, Any]:
    """Read the store's parts in one transaction; each part that fails leaves the others."""
    place = services.store_place
    secrets |= _passwords_in(place.url)
    name = place.url.partition(":///")[2].partition("?")[0]
    if place.url.startswith("sqlite") and name and not Path(name).exists():
        raise StoreUnusable(f"there is no store at {name}", hint="name the store with --database")
    with services.store.reading() as session:
        for part, read in store_parts(session, names, events, harmless).items():
            parts.take(part, read)
        harmless.text("store.url", shown_url(place.url))
        harmless.text("store.key_file", str(place.key_file))
        return {"kind": place.url.partition(":")[0], **_store_state(services, session, harmless)}


def _store_state(services: Services, session: Session, harmless: Harmless) -> dict[str, Any]:
    mark = session.restore_mark()
    return {
        "id": harmless.known(session.store_id()),
        "time": session.now(),
        "restored": None if mark is None else {"taken_at": mark.taken_at, "restored_at": mark.restored_at},
        "forks": services.forks,
    }


def _ask_hosts(
    services: Services, parts: _Parts, hosts: Sequence[str], harmless: Harmless, *, refresh: bool, with_checks: bool
) -> None:
    def ask(host: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if refresh:
            found["facts.json"] = facts_of(host, read_facts(services, host), harmless)
        if with_checks:
            seen, findings = examine_host(services, host, services.inventory.layout(host))
            found["checks.json"] = [finding_of(host, *one, harmless) for one in enumerate(findings)]
            found.setdefault("facts.json", facts_of(host, seen.facts, harmless))
        return found

    for result in services.on_hosts(list(hosts), ask):
        if result.error is not None:
            parts.add_problem(result.name, result.error)
        for name, value in (result.value or {}).items():
            parts.found[f"hosts/{result.name}/{name}"] = value


def _secrets_of(environment: Mapping[str, str]) -> set[str]:
    """Values of variables that are named as secrets, and passwords in URLs of others."""
    found = set()
    for name, value in environment.items():
        if is_secret_name(name):
            found.add(value)
        found |= _passwords_in(value)
    return found


def _passwords_in(url: str) -> set[str]:
    """Texts that may be the password of a URL: each one up to an `@`, since an unquoted password may contain it."""
    userinfo, at, _ = url.partition("://")[2].rpartition("@")
    password = userinfo.partition(":")[2] if at else ""
    return {one for one in (password, unquote(password), *password.split("@")) if one}


def _end_of(path: Path) -> str:
    with opened(path, NAMED) as judged, open(judged.descriptor, "rb", closefd=False) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _MOST_LOG_BYTES))
        return file.read(_MOST_LOG_BYTES).decode(errors="replace")


def _add_host_names(found: Sequence[tuple[str, Any]], names: dict[NameKind, set[str]]) -> None:
    """Add the names that hosts give themselves, those in URLs of the settings, and that of this machine and user."""
    own = [name for part, value in found if part.endswith(".json") for name in _HOST_OF_URL.findall(json.dumps(value))]
    own += [facts.get("hostname", "") for part, facts in found if part.endswith("/facts.json")]
    for kind, words in host_words(os.uname().nodename, *own).items():
        names[kind] |= words
    try:
        names[NameKind.USER].add(getpass.getuser())
    except (KeyError, OSError):
        return


def _replaced(found: Mapping[str, Any], anonymiser: Anonymiser) -> dict[str, bytes]:
    # The kernel's words in facts are not names of VMs.
    by_part = {part: not part.endswith("/facts.json") for part in found}
    for part, value in found.items():
        anonymiser.look_at([part, value], with_names=by_part[part])
    content: dict[str, bytes] = {}
    for part, value in found.items():
        clean = anonymiser.replace(value, with_names=by_part[part])
        text = clean if isinstance(clean, str) else json.dumps(clean, indent=1, ensure_ascii=False)
        content[anonymiser.replace(part)] = text.encode(errors="replace")
    return content


def _readme(references: Sequence[str], anonymiser: Anonymiser, *, is_anonymous: bool, has_texts: bool) -> str:
    kinds = ", ".join(f"{count} × {kind}" for kind, count in anonymiser.counts().items()) or "nothing"
    lines = [
        f"Support bundle of vgpuctl {__version__}, {datetime.now(UTC).strftime('%Y-%m-%d %H:%M:%SZ')}",
        f"Names are {'replaced' if is_anonymous else 'as they are'}. Replaced or removed: {kinds}.",
        f"Logs, reasons and other free texts are {'in' if has_texts else 'not in'} it.",
        "Read it before you send it.",
        "",
        "Could not be read:" if references else "Everything could be read.",
        *(f"- {one}" for one in references),
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
