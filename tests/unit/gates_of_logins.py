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
    guarded(
        "a command reaches a host's login shell only as the line that all shells read alike, with its markers",
        "shell_line",
        "hosts/shell_line.py",
        "hosts/become.py:wrap",
    ),
    guarded(
        "a command starts only wrapped, so that its end and sudo's refusal are known",
        "RemoteCommand",
        "hosts/become.py",
        calls_only=True,
    ),
    guarded(
        "the interpreter of a host is chosen in one place, and the boot unit names the one that runs the agent",
        "choose_python",
        "hosts/python_check.py",
        "hosts/agent_client.py:_find_python",
    ),
]
