# SPDX-License-Identifier: Apache-2.0
"""The gates of logins and of what other machines send: rows of the table in test_gates.py."""

from tests.unit.uses_of_names import guarded

LOGINS = [
    guarded(
        "all that another machine sends in a session is counted against one budget",
        "ByteBudget",
        "byte_budget.py",
        "hosts/bounds.py:__init__",
        "hosts/jump_hosts.py:through",
        "hosts/login.py:session_budget",
        "ovn/northbound.py:__init__",
        "ovn/bounded_streams.py:fetch_schema",
        calls_only=True,
    ),
    guarded(
        "ssh alone reads ssh_config, and is asked with the inventory's values",
        "ask",
        "hosts/ssh_program.py",
        "hosts/ssh_config.py:resolve",
        on="settings.ssh",
    ),
    guarded(
        "nobody proves who he is before the server's key is verified",
        "authenticate",
        "hosts/authentication.py",
        "hosts/login.py:_log_in_one",
    ),
    guarded(
        "a login goes through the jump hosts that the run shares",
        "log_in",
        "hosts/login.py",
        "hosts/connection.py:_transport",
        on="login",
    ),
]
