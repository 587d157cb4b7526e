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
    guarded(
        "hosts are looked at without the agent for check-hosts --prepare alone",
        "probe",
        "hosts/preparation_probe.py",
        "usecases/host/prepare_hosts.py:_look_at",
    ),
    *(
        guarded(
            "the boot unit reaches a host only through the agent's call that has systemd verify it",
            name,
            file,
            "usecases/declared/installs.py:files_of",
        )
        for name, file in (("install_boot", "hosts/agent_client.py"), ("render_boot_unit", "guests/boot_unit.py"))
    ),
    guarded(
        "the join secrets of a node are written for its seed alone",
        "write_for_guest",
        "node_config/join/setup.py",
        "usecases/image/node_join.py:join_of",
    ),
    guarded(
        "the join files of a node go into its seed, and into no other value",
        "join_of",
        "usecases/image/node_join.py",
        "usecases/image/volumes.py:make_volumes",
        "usecases/image/volumes.py:seed_made_again",
    ),
    guarded(
        "a secret that a tenant's file names is read beside it or in folders of the operator",
        "SecretFiles",
        "specs/secret_file.py",
        "specs/tenant.py:read_tenant_files",
        "specs/node_pool.py:_read_named",
        "usecases/licence/licence_pools.py:read_token_file",
        calls_only=True,
    ),
    guarded(
        "Slurm's programs load what a slurm.conf names, so they run with one that was found to be the operator's alone",
        "SlurmPrograms",
        "clusters/slurm/programs.py",
        "clusters/slurm/link.py:__init__",
        calls_only=True,
    ),
    guarded(
        "a slurm.conf is one of the operator's folder, and no tenant names it",
        "SlurmConfig",
        "clusters/slurm/config_file.py",
        "wiring.py:_open_cluster",
        calls_only=True,
    ),
    guarded(
        "a slurm.conf is checked before each use",
        "checked",
        "clusters/slurm/config_file.py",
        "clusters/slurm/programs.py:run",
        on="config",
    ),
]
