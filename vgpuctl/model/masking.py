# SPDX-License-Identifier: Apache-2.0
"""Masks of secrets in URLs and in texts of other programs.

A value that is known to be secret is a `Secret` or a `SecretText`. These functions are for texts of others: a URL that
a user gave, and the output of a program.
"""

import re
from collections.abc import Iterable

MASK = "***"
_NOT_READ = "…"
_SHORT = 4
_SECRET_WORDS = (
    r"pass(?:wd|word|phrase)?s?|pw|pwd|psk|pin|secrets?|tokens?|credentials?|cookie|community|vault|signature|sig|otp"
    r"|(?:api|private|access|secret|encryption|client|server|license|licence|master|shared|account|storage|host)[_-]?key"
)
_SECRET_NAME = re.compile(
    rf"(?:^|[_.\-\s])(?:{_SECRET_WORDS})(?:[_.\-\s\d]|$)"
    r"|passw|passphrase|pass$|secret|token|credential|api_?key|private_?key|_key$|auth$",
    re.IGNORECASE,
)
# Names that end so hold a place or a yes or no, not the secret itself.
_NOT_ITSELF = re.compile(
    r"(?:_(?:file|path|dir|folder|mechanism|prompt|age|length|checking)|^(?:no|has|ask)_.*)$", re.I
)
_FOLDERS = ("PWD", "OLDPWD")  # of the shell
_COMMAND_NAME = re.compile(r"(?:^|_)(?:args|command|cmd|memory_test)$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}")
_PLACE = re.compile(r"[A-Za-z0-9._%,:\[\]-]*")
_PATH = re.compile(r"[A-Za-z0-9._%/~+-]*")
_HARMLESS_PARAMETERS = frozenset(
    ("sslmode", "service", "host", "hostaddr", "port", "user", "dbname", "target_session_attrs", "mode")
)
_FREE = re.compile(
    r"(://[^/@\s:]*:)\S*(@)|(https?://)[^/@\s:]+(@)"
    r"|(\b(?:ssl)?password=|[?&][\w.-]*(?:passw|secret|token|sig|api_?key|credential|_key)[\w.-]*=)[^&\s\"]*()",
    re.IGNORECASE,
)
_ASSIGNED = re.compile(
    r"(?P<name>[\"']?[A-Za-z][\w.-]*[\"']?)(?P<sign>\s*[=:]\s*)(?!//)(?P<value>\"[^\"]*\"?|'[^']*'?|[^\s,;}\]]+)"
)


def is_secret_name(name: object) -> bool:
    """True if a variable, key or parameter of this name holds a secret: `ansible_ssh_pass`, `dbPassword`, `API_KEY`."""
    if not isinstance(name, str):
        return False
    plain = _HUMP.sub("_", name)
    if name in _FOLDERS:
        return False
    return _SECRET_NAME.search(plain) is not None and not _NOT_ITSELF.search(plain) and "public" not in plain.lower()


def holds_command(name: object) -> bool:
    """True if a variable or key of this name holds arguments of a program, in which a password can stand."""
    return isinstance(name, str) and _COMMAND_NAME.search(name) is not None


def without_passwords(text: str) -> str:
    """Hide the passwords of URLs in a text: of `scheme://user:password@host`, and of parameters named like secrets.

    A password can contain `@` and `/`, so all up to the last `@` of the word counts as one.
    """

    def hidden(found: re.Match[str]) -> str:
        return f"{found[1] or found[3] or found[5]}{MASK}{found[2] or found[4] or ''}"

    return _FREE.sub(hidden, text)


def shown_login(text: str) -> str:
    """A name of a host or user as it may be shown, when somebody wrote `USER:PASSWORD@HOST` there."""
    _, at, host = text.rpartition("@")
    if at:
        return f"{_NOT_READ}@{host}"
    name, colon, _ = text.partition(":")
    is_address = text.count(":") > 1 and re.fullmatch(r"[0-9A-Fa-f:.]+(?:%[\w.-]+)?", text.strip("[]"))
    return f"{name}:{_NOT_READ}" if colon and not is_address else text


def shown_url(text: str) -> str:
    """A URL as it may be shown: scheme, user, host, path, and parameters that are known to be harmless.

    Of one that cannot be taken apart without doubt only the scheme is shown. A file's URL is a file's name.
    """
    scheme, separator, rest = text.partition(":")
    if not separator or not _SCHEME.fullmatch(scheme):
        return _NOT_READ
    if scheme == "sqlite" and "@" not in rest:
        return text
    authority, _, after = rest.removeprefix("//").partition("/")
    userinfo, at, place = authority.rpartition("@")
    user, colon, _password = userinfo.partition(":")
    path, _, query = after.partition("?")
    place, _, own_query = place.partition("?")
    is_certain = rest.startswith("//") and "@" not in userinfo + after and _PLACE.fullmatch(place)
    if not is_certain or not _PATH.fullmatch(path) or not _PATH.fullmatch(user):
        return f"{scheme}:{_NOT_READ}"
    if at and not colon and scheme.startswith("http"):
        user = MASK
    shown = f"{scheme}://{user}{f':{MASK}' if colon else ''}{at}{place}{'/' if after else ''}{path}"
    parameters = [_shown_parameter(one) for one in (query or own_query).split("&") if one]
    return shown + (f"?{'&'.join(parameters)}" if parameters else "")


def _shown_parameter(text: str) -> str:
    name, equals, value = text.partition("=")
    if name in _HARMLESS_PARAMETERS and equals:
        return f"{name}={value}"
    return f"{name}={MASK}" if equals and re.fullmatch(r"[a-z_]{1,30}", name) else MASK


def without_words(text: str, words: Iterable[str]) -> str:
    """Hide these words, in any case, wherever they stand in a text; one of less than four characters only alone."""
    patterns = []
    for word in sorted({one for one in words if one}, key=lambda one: (-len(one), one)):
        literal = re.escape(word)
        patterns.append(literal if len(word) >= _SHORT else rf"(?<![A-Za-z0-9]){literal}(?![A-Za-z0-9])")
    return re.sub("|".join(patterns), MASK, text, flags=re.IGNORECASE) if patterns else text


def without_assigned(text: str) -> str:
    """Hide what a text assigns to names of secrets (`password: x`, `token=x`), and passwords in URLs.

    For the words of a program that quotes a file which nobody else could read.
    """

    def hidden(found: re.Match[str]) -> str:
        name = found["name"].strip("\"'")
        return f"{found['name']}{found['sign']}{MASK}" if is_secret_name(name) else found[0]

    return _ASSIGNED.sub(hidden, without_passwords(text))
