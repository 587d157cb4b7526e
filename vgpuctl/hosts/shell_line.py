# SPDX-License-Identifier: Apache-2.0
"""One line that every login shell reads alike: POSIX shells, fish, csh. It starts /bin/sh with our script.

sshd gives a command to the shell that passwd(5) names for the user, and quoting differs: fish reads backslashes in
single quotes, csh reads `!` and newlines there.
"""

import string

# Between single quotes these mean themselves in each of the shells.
_PLAIN = frozenset((string.ascii_letters + string.digits + " _@%+=:,./-").encode())
_WRITTEN = {byte: f"\\0{byte:03o}" for byte in range(256) if byte not in _PLAIN}


def shell_line(script: str) -> str:
    """Return the line that runs a POSIX shell script in place of the login shell, in the same process.

    A byte that shells read differently is written as `\\0ooo`, which printf's %b turns back (POSIX, printf).
    """
    # Each byte as the character of its number: the agent's start-up program is long, and every host gets it.
    encoded = script.encode(errors="surrogateescape").decode("latin-1").translate(_WRITTEN)
    return f"""exec /bin/sh -c 'eval "$(printf %b "$0")"' '{encoded}'"""
