# SPDX-License-Identifier: Apache-2.0
"""Who runs this process, for the events that its changes leave behind."""

import os
import pwd

from vgpuctl.model.event import Actor


def find_actor(command: str) -> Actor:
    """Name the user and machine of this process. Behind `sudo` that is the user who called it, then root.

    The name is for an audit among colleagues, not a proof: whoever may write the store can write any name. PostgreSQL
    adds the role of the connection, which the writer cannot choose (docs/store.md).
    """
    caller = os.environ.get("SUDO_USER", "")
    user = _login()
    if user == "root" and caller not in ("", "root"):
        user = f"{caller} (root)"
    return Actor(command, user, os.uname().nodename)


def _login() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
