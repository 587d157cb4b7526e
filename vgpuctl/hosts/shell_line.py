# SPDX-License-Identifier: Apache-2.0
"""One line that every login shell reads alike: POSIX shells, fish, csh. It starts /bin/sh with our script.

sshd gives a command to the shell that passwd(5) names for the user, and quoting differs: fish reads backslashes in
single quotes, csh reads `!` and newlines there.
"""

import string

# Between single quotes these mean themselves in each of the shells.
_PLAIN = frozenset((string.ascii_letters + string.digits + " _@%+=:,./-").encode())


def shell_line(script: str) -> str:
    """Return the line that runs a POSIX shell script in place of the login shell, in the same process.

    A byte that shells read differently is written as `\\0ooo`, which printf's %b turns back (POSIX, printf).
    """
    encoded = "".join(
        chr(byte) if byte in _PLAIN else f"\\0{byte:03o}" for byte in script.encode(errors="surrogateescape")
    )
    return f"""exec /bin/sh -c 'eval "$(printf %b "$0")"' '{encoded}'"""
