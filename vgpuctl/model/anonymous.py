# SPDX-License-Identifier: Apache-2.0
"""Names, numbers and secrets of a site replaced in what leaves it: captures of hosts and support bundles.

The same value gets the same replacement wherever it stands, in its own format, and replacements sort as the values
did. Secrets are removed; nothing tells them apart afterwards.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

REMOVED = "removed"
_LEAST_WORD = 2
_LEAST_SECRET = 4
_SECRET_KEY = re.compile(r"(?i)(?:password|passwd|passphrase|secret|token|api_?key|private_?key|psk)s?$")
# Words of the system itself and of the paths that the agent reads. As names they tell nothing, and replaced they
# would change what a text means.
_VOCABULARY = frozenset(
    re.findall(
        r"\w+",
        "localhost linux host debian ubuntu rocky almalinux rhel centos fedora suse opensuse gpu gpus nvidia intel amd"
        " vfio mdev pci kvm qemu libvirt libvirtd root system default none node kernel driver device server ovn ovs"
        " systemd service true false null network disk vm vms user mig vgpu vf vfs sriov iommu nvml proc sys run etc"
        " usr dev lib var bus devices drivers share log modules",
    )
)
# The namespace of the UEFI specification's own variables, and the two ends.
_PUBLIC_UUIDS = frozenset(
    (
        "8be4df61-93ca-11d2-aa0d-00e098032b8c",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    )
)


class NameKind(StrEnum):
    """A kind of replaced value."""

    HOST = "host"
    VM = "vm"
    TENANT = "tenant"
    USER = "user"
    OBJECT = "object"
    DOMAIN = "domain"
    EMAIL = "email"
    UUID = "uuid"
    MACHINE_ID = "machine-id"
    MAC = "mac"
    IPV4 = "ipv4"
    IPV6 = "ipv6"
    SERIAL = "serial"
    SECRET = "secret"


_PATTERNS = {
    "pem": r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)",
    "sshkey": r"\b(?:ssh-(?:rsa|dss|ed25519)|ecdsa-[\w-]+|sk-[\w@.-]+) AAAA[0-9A-Za-z+/=]+(?: [\w@.+-]+)?",
    "jwt": r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?",
    "userinfo": r"(?<=://)[^/\s@'\"]+(?=@)",
    "bearer": r"(?<=Bearer )[\w.~+/=-]{8,}|(?<=Basic )[\w+/=]{8,}",
    "option": r"(?<=sshpass -p )\S+|(?<=--password )\S+|(?<=--token )\S+|(?<=--secret )\S+",
    "k8stoken": r"\b[a-z0-9]{6}\.(?=[a-z]*\d)[a-z0-9]{16}\b|\bK10[0-9a-f]{16,}[\w:.-]*",
    "secret": r"(?i:(?:password|passwd|passphrase|secret|token|api_?-?key|private_?-?key|psk)"
    r"[\"']?\s*[=:]\s*(?P<quoted>[\"']?))(?P<secretvalue>(?!\[|\{|null\b|None\b|true\b|false\b)[^\s\"',;}\]]+)",
    "serial": r"(?i:\bserial(?:[ _-]?(?:number|no))?[\"']?\s*[=:]\s*[\"']?)(?P<serialvalue>[A-Za-z0-9][\w-]{3,})",
    "email": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    "uuid": r"(?<![0-9A-Fa-f])[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}(?![0-9A-Fa-f])",
    "machineid": r"(?<![0-9A-Fa-f])[0-9a-f]{32}(?![0-9A-Fa-f])",
    "mac": r"(?<![\w:])(?:[0-9A-Fa-f]{2}[:-]){5}(?:[0-9A-Fa-f]{2}[:-]){0,14}[0-9A-Fa-f]{2}(?![\w:])"
    r"|(?<=enx)[0-9a-f]{12}\b",
    "ipv6": r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:.])",
    "ipv4": r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w-]|\.\d)",
    "home": r"(?<=/home/)[^/\s:\"']+",
}
_WORDS = (NameKind.HOST, NameKind.DOMAIN, NameKind.VM, NameKind.TENANT, NameKind.USER, NameKind.OBJECT)
_OF_GROUP = {
    "secretvalue": NameKind.SECRET,
    "serialvalue": NameKind.SERIAL,
    "email": NameKind.EMAIL,
    "uuid": NameKind.UUID,
    "machineid": NameKind.MACHINE_ID,
    "mac": NameKind.MAC,
    "ipv6": NameKind.IPV6,
    "ipv4": NameKind.IPV4,
    "home": NameKind.USER,
    **dict.fromkeys(("literal", "pem", "sshkey", "jwt", "userinfo", "bearer", "option", "k8stoken"), NameKind.SECRET),
}


@dataclass(frozen=True)
class _Found:
    """A value in a text, at its place."""

    kind: NameKind
    value: str
    start: int
    end: int


class Anonymiser:
    """Replaces what tells a site. Look at every text first, then replace: replacements follow the values' order.

    names: words of each kind that have no form of their own, such as the names of hosts. secrets: texts that are
    removed wherever they stand. mark: eight hexadecimal digits in replaced UUIDs, so that two captures have none in
    common. only_secrets: remove secrets, and leave every name.
    """

    def __init__(
        self,
        names: Mapping[NameKind, Iterable[str]],
        *,
        secrets: Iterable[str] = (),
        mark: str = "00000000",
        only_secrets: bool = False,
    ) -> None:
        self._mark = mark
        self._only_secrets = only_secrets
        self._secrets = frozenset(one for one in secrets if len(one) >= _LEAST_SECRET)
        self._names = {kind: frozenset(_usable(names.get(kind, ()))) for kind in _WORDS}
        self._words = {
            with_names: _expression(self._names, self._secrets, with_names=with_names) for with_names in (True, False)
        }
        self._kind_of_word = {word.lower(): kind for kind in reversed(_WORDS) for word in self._names[kind]}
        self._seen: dict[NameKind, set[str]] = {kind: set() for kind in NameKind}
        self._replacements: dict[tuple[NameKind, str], str] = {}
        self._known: dict[tuple[str, bool], tuple[_Found, ...]] = {}

    def look_at(self, value: Any, *, with_names: bool = True) -> None:
        """Note what is to be replaced in a text or in all texts of a JSON value.

        with_names: also names of VMs, tenants, users and other objects, which can be any word; False where the texts
        are the kernel's, in which such a word means something else.
        """
        for text in _texts(value):
            for found in self._find(text, with_names=with_names):
                self._seen[found.kind].add(_plain(found))
        self._replacements = {}

    def replace(self, value: Any, *, with_names: bool = True) -> Any:
        """Return a text or JSON value with everything replaced, keys too."""
        if isinstance(value, str):
            return self._replace_text(value, with_names=with_names)
        if isinstance(value, dict):
            return {
                self._replace_text(str(key), with_names=with_names): self._replace_at(str(key), one, with_names)
                for key, one in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.replace(one, with_names=with_names) for one in value]
        return value

    def _replace_at(self, key: str, value: Any, with_names: bool) -> Any:
        if isinstance(value, str) and value and _SECRET_KEY.search(key):
            self._seen[NameKind.SECRET].add(value)
            return REMOVED
        return self.replace(value, with_names=with_names)

    def counts(self) -> dict[str, int]:
        """Return how many different values of each kind were found."""
        return {str(kind): len(values) for kind, values in self._seen.items() if values}

    def replaced(self) -> list[tuple[str, str, str]]:
        """Return (kind, value, replacement) of everything that was found, secrets without their value."""
        return [
            (str(kind), "" if kind is NameKind.SECRET else value, self._replacement(kind, value))
            for kind in NameKind
            for value in sorted(self._seen[kind])
        ]

    def _replace_text(self, text: str, *, with_names: bool) -> str:
        pieces, at = [], 0
        for found in self._find(text, with_names=with_names):
            pieces += [text[at : found.start], self._replacement(found.kind, _plain(found))]
            at = found.end
        return "".join([*pieces, text[at:]])

    def _find(self, text: str, *, with_names: bool) -> tuple[_Found, ...]:
        # Thousands of files of sysfs have the same few texts, and each is looked at before it is replaced.
        known = self._known.get((text, with_names))
        if known is None:
            known = self._known[text, with_names] = tuple(self._search(text, with_names=with_names))
        return known

    def _search(self, text: str, *, with_names: bool) -> list[_Found]:
        found = []
        for match in self._words[with_names].finditer(text):
            group = match.lastgroup or ""
            group = "secretvalue" if match["secretvalue"] is not None else group
            group = "serialvalue" if match["serialvalue"] is not None else group
            value, kind = match[group], _OF_GROUP.get(group)
            if kind is None:
                kind = self._kind_of_word[value.lower()]
            if self._is_wanted(kind, value):
                found.append(_Found(kind, value, *match.span(group)))
        return found

    def _is_wanted(self, kind: NameKind, value: str) -> bool:
        return _is_site_own(kind, value) and (kind is NameKind.SECRET or not self._only_secrets)

    def _replacement(self, kind: NameKind, value: str) -> str:
        if not self._replacements:
            self._number_all()
        known = self._replacements.get((kind, value))
        if known is None:
            # A value that nobody looked at before.
            self._seen[kind].add(value)
            self._number_all()
            known = self._replacements[kind, value]
        return known

    def _number_all(self) -> None:
        for kind, values in self._seen.items():
            for number, value in enumerate(sorted(values, key=_sort_key(kind)), start=1):
                self._replacements[kind, value] = self._written(kind, number, value)

    def _written(self, kind: NameKind, number: int, value: str) -> str:
        made: dict[NameKind, Callable[[], str]] = {
            NameKind.SECRET: lambda: REMOVED,
            NameKind.UUID: lambda: f"{self._mark}-0000-4000-8000-{number:012d}",
            NameKind.MACHINE_ID: lambda: f"{self._mark}{number:024d}",
            NameKind.MAC: lambda: _mac(number, value),
            NameKind.IPV4: lambda: str(ipaddress.IPv4Address("198.18.0.0") + number),
            NameKind.IPV6: lambda: f"2001:db8::{number:x}",
            NameKind.SERIAL: lambda: f"{number:0{len(value)}d}",
            NameKind.EMAIL: lambda: f"user-{number}@example.org",
            NameKind.DOMAIN: lambda: f"site-{number}.example",
        }
        return made[kind]() if kind in made else f"{kind}-{number:03d}"


def host_words(*names: str) -> dict[NameKind, set[str]]:
    """Return the words of a host's names: each with and without its domain, and the domain."""
    hosts: set[str] = set()
    domains: set[str] = set()
    for name in names:
        if not name or _is_address(name):
            continue
        short, _dot, domain = name.partition(".")
        hosts.add(short)
        if domain:
            domains.add(domain)
    return {NameKind.HOST: hosts, NameKind.DOMAIN: domains}


def _usable(words: Iterable[str]) -> set[str]:
    return {word for word in words if len(word) >= _LEAST_WORD and word.lower() not in _VOCABULARY}


def _expression(
    names: Mapping[NameKind, frozenset[str]], secrets: frozenset[str], *, with_names: bool
) -> re.Pattern[str]:
    kinds = _WORDS if with_names else (NameKind.HOST, NameKind.DOMAIN)
    words = sorted({word for kind in kinds for word in names[kind]}, key=lambda word: (-len(word), word))
    literal = "|".join(re.escape(one) for one in sorted(secrets, key=lambda one: (-len(one), one)))
    patterns = {**({"literal": literal} if literal else {}), **_PATTERNS}
    if words:
        alternatives = "|".join(map(re.escape, words))
        patterns["word"] = rf"(?<![A-Za-z0-9])(?i:{alternatives})(?![A-Za-z0-9])"
    return re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in patterns.items()), re.DOTALL)


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield str(key)
            yield from _texts(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _texts(one)


def _is_site_own(kind: NameKind, value: str) -> bool:
    """Tell a value of the site from what only looks like one, or is the same everywhere."""
    if kind is NameKind.UUID:
        return value.lower() not in _PUBLIC_UUIDS
    if kind is NameKind.IPV4:
        return _is_own_address(value, ipaddress.IPv4Address)
    if kind is NameKind.IPV6:
        return _is_own_address(value, ipaddress.IPv6Address)
    if kind is NameKind.MAC:
        return set(value.lower()) - set(":-") not in ({"0"}, {"f"})
    return kind is not NameKind.SECRET or value != REMOVED


def _is_own_address(value: str, kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]) -> bool:
    try:
        address = kind(value)
    except ValueError:
        return False
    is_mask = isinstance(address, ipaddress.IPv4Address) and value.startswith(("255.", "0."))
    return not (address.is_loopback or address.is_unspecified or address.is_multicast or is_mask)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _plain(found: _Found) -> str:
    """Return a value in the form in which equal values are equal."""
    if found.kind in (NameKind.UUID, NameKind.MAC, NameKind.HOST, NameKind.DOMAIN):
        return found.value.lower()
    return str(ipaddress.ip_address(found.value)) if found.kind is NameKind.IPV6 else found.value


def _sort_key(kind: NameKind) -> Callable[[str], Any]:
    return ipaddress.ip_address if kind in (NameKind.IPV4, NameKind.IPV6) else str


def _mac(number: int, value: str) -> str:
    mark = next((one for one in value if one in ":-"), "")
    count = len(value.split(mark)) if mark else len(value) // 2
    return mark.join(f"{byte:02x}" for byte in (0x02, *number.to_bytes(count - 1, "big")))
