# SPDX-License-Identifier: Apache-2.0
"""Host and user names that may stand in a shell line: a ProxyCommand takes them as %h, %n and %r.

The rules are OpenSSH's, valid_hostname() and valid_ruser() of its ssh.c (CVE-2023-51385).
"""

_NOT_IN_HOST = frozenset("'`\"$\\;&<>|(){},")
_NOT_IN_USER = frozenset("'`\";&<>|(){}")


def host_name_fault(text: str) -> str | None:
    """Say why ssh refuses a host name or address, None when it takes it."""
    if not text:
        return "is empty"
    if text.startswith("-"):
        return "begins with '-', as an option does"
    for character in text:
        if character in _NOT_IN_HOST or character.isspace() or _is_control(character):
            return f"contains {character!a}, which a host name cannot have"
    return None


def user_name_fault(text: str) -> str | None:
    """Say why ssh refuses a remote user's name, None when it takes it."""
    if not text:
        return "is empty"
    if text.startswith("-"):
        return "begins with '-', as an option does"
    for at, character in enumerate(text):
        following = text[at + 1 : at + 2]
        if character in _NOT_IN_USER or _is_control(character):
            return f"contains {character!a}, which a user name cannot have"
        if character.isspace() and following == "-":
            return "contains a space before '-', where an option would begin"
        if character == "\\" and not following:
            return "ends with a backslash"
    return None


def _is_control(character: str) -> bool:
    return character < " " or "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff"
