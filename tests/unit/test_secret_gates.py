# SPDX-License-Identifier: Apache-2.0
"""Where secrets are revealed, and that no message is made of a command, a URL, an environment or a variable's value.

A new place fails here: give the value its type (`Secret`, `ProgramLine`, `SecretText`), or show `shown_url` of it.
"""

import ast
from collections.abc import Iterator

from tests.unit.uses_of_names import PACKAGE, files, nodes, uses

_STORED = "sealed by the store's key, or in its own table"
_GUEST = "a file for the guest"
_STARTS = "the program is started"
REVEALING = {
    "clusters/kubernetes/kubeconfig.py:read_kubeconfig": "the login at the cluster",
    "guests/seed/image.py:_cloud_init_files": _GUEST,
    "guests/seed/linux_setup.py:linux_setup": _GUEST,
    "guests/seed/network.py:network_document": _GUEST,
    "guests/seed/windows_setup.py:windows_setup": _GUEST,
    "guests/seed/windows_setup.py:windows_user_data": _GUEST,
    "hosts/authentication.py:_try_password": "the login",
    "hosts/common_args.py:parse_common_args": "words for ssh -G; errors name no word",
    "hosts/known_hosts_command.py:run_known_hosts_command": _STARTS,
    "hosts/proxy_command.py:__init__": _STARTS,
    "hosts/remote_process.py:answer_sudo": "the answer to sudo's question",
    "hosts/ssh_config.py:_known_hosts_command": "its tokens are filled in, and it is a ProgramLine again",
    "hosts/ssh_tokens.py:expand_command": "its tokens are filled in, and it is a ProgramLine again",
    "inventory/connection.py:_find": "a variable of the login; what is secret of it gets its type again",
    "inventory/listing.py:_plain": "with --with-secrets; else it is masked",
    "model/secret.py:__repr__": "compared with the program's name",
    "model/secret.py:program": "the program's name alone",
    "model/secret.py:clean": "what a program said is searched for its words",
    "model/secret.py:words": "what a program said is searched for them",
    "model/texts.py:texts_of": "checked for characters that no terminal should get",
    "node_config/join/setup.py:write_for_guest": _GUEST,
    "store/licences.py:set_licence_token": _STORED,
    "store/vpcs.py:set_object_secret": _STORED,
    "usecases/network/balancer_functions.py:_private_key": "a load balancer's instance has it in a file of root's",
    "usecases/network/vpc_addresses.py:_check_certificate": "whether it is the certificate's is looked at",
    "store/node_pools.py:put_node_pool": _STORED,
    "store/sealed.py:documents_of": _STORED,
    "store/vpcs.py:_seal_password": _STORED,
    "usecases/network/bgp_speakers.py:_password": "it goes into the file of the speaker on its host, mode 0600",
    "usecases/network/vpn_keys.py:_seal": _STORED,
    "usecases/network/vpn_keys.py:read_secrets": "they go into the file of the tunnel on its host, mode 0600",
    "usecases/maintenance/fence_host.py:_run": _STARTS,
    "usecases/operate/bundle_parts.py:inventory_of": "the texts of a bundle are searched for it",
    "usecases/share/health_gate.py:_test_memory": _STARTS,
    "usecases/seats/licences.py:token_claims": "its claims alone are kept",
    "specs/guest_rules.py:_check_documents": "read as its guest reads it; no refusal quotes it",
    "specs/node_pool.py:_with_secrets": "the end of a token alone is kept",
}
"""Functions that reveal a secret → for what."""

WHOLE_ENVIRONMENT = {
    "cli/operate/show_config.py": "settings by their names, masked by show_config",
    "cli/operate/support_bundle.py": "settings by their names, masked by show_config",
    "cli/forms/configuration.py": "settings by their names",
    "agent/host.py": "for programs of the host, by the agent",
    "inventory/ansible_source.py": "for ansible itself",
    "model/secret.py": "what a program said is searched for secrets of it",
    "store/postgresql_programs.py": "for PostgreSQL's programs",
    "usecases/operate/support_bundle.py": "the texts of a bundle are searched for secrets of it",
}
"""Files that take the whole environment → for what."""

_SENSITIVE = frozenset(
    (
        *("argv", "url", "dsn", "conninfo", "environ", "environment", "password", "passwd", "passphrase", "secret"),
        *("token", "common_args", "command_line", "proxy_command", "known_hosts_command", "user_data", "cmd"),
        *("assignment", "cmdline", "become_password", "kubeconfig", "munge_key", "memory_test"),
    )
)
_MASKED = frozenset(("shown", "program", "shown_url", "shown_program", "len", "digest", "type", "scheme", "hostname"))
HARMLESS = {
    "agent/changes/function_programs.py: argv[0]": "ip, ovs-vsctl or sysctl; secrets are in files",
    "agent/changes/ovn.py: ' '.join(argv[:4])": "ovs-vsctl with names of tables",
    "agent/host.py: ' '.join(argv)": "programs that the agent itself calls, without a user's words",
    "agent/host.py: argv[0]": "a program's name",
    "cli/display/view.py: url": "of this machine's loopback, without a user",
    "clusters/slurm/programs.py: Path(argv[0]).name": "a program's name",
    "clusters/slurm/programs.py: argv[0]": "a program's name",
    "hosts/become.py: argv[0][:_SHOWN_PROGRAM]": "a program's name",
    "hosts/remote_process.py: command.password.reveal()": "sudo's input",
    "hosts/ssh_tokens.py: token": "a letter after %",
    "inventory/ansible_source.py: argv[0]": "a program's name",
    "specs/configuration.py: _path(url[1:], folder)": "the name of a file that holds a URL",
    "telemetry/prometheus_server.py: base64.b64encode(f'{user}:{password}'.encode()).decode()": "the login",
    "telemetry/prometheus_server.py: password": "the login",
    "web/access.py: _sign(token, end)": "a signature",
}
"""`file: expression` in texts that are made → why it holds no secret."""


def _in_texts() -> Iterator[tuple[str, str]]:
    """Every expression in an f-string that names something which can hold a secret, with its file."""
    for path in files():
        file = path.relative_to(PACKAGE).as_posix()
        for node in nodes(path):
            names = _names(node.value) if isinstance(node, ast.FormattedValue) else set()
            if isinstance(node, ast.FormattedValue) and names & _SENSITIVE and not names & _MASKED:
                yield file, ast.unparse(node.value)


def _names(expression: ast.AST) -> set[str]:
    found = {one.id for one in ast.walk(expression) if isinstance(one, ast.Name)}
    return found | {one.attr for one in ast.walk(expression) if isinstance(one, ast.Attribute)}


def test_secrets_are_revealed_in_known_places_only() -> None:
    found = {use.place for use in uses() if use.name == "reveal" and use.is_call}
    assert found - REVEALING.keys() == set(), "a secret is revealed where it is used, and nowhere else"
    assert REVEALING.keys() - found == set(), "these reveal nothing any more"


def test_the_whole_environment_is_taken_in_known_places_only() -> None:
    found = set()
    for path in files():
        file = path.relative_to(PACKAGE).as_posix()
        parents = {child: node for node in nodes(path) for child in ast.iter_child_nodes(node)}
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and node.attr == "environ" and ast.unparse(node.value) == "os":
                above = parents[node]
                is_one = isinstance(above, ast.Subscript) or (
                    isinstance(above, ast.Attribute) and above.attr in {"get", "setdefault"}
                )
                if not is_one and not isinstance(above, ast.Compare):
                    found.add(file)
    assert found == WHOLE_ENVIRONMENT.keys(), "of the environment only names are shown: take one variable by its name"


def test_no_text_is_made_of_a_command_a_url_or_a_secret() -> None:
    found = {f"{file}: {expression}" for file, expression in _in_texts()}
    assert found - HARMLESS.keys() == set(), "show the program's name, `shown_url` of a URL, or the place of the value"
    assert HARMLESS.keys() - found == set(), "these are not there any more"
