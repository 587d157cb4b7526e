# SPDX-License-Identifier: Apache-2.0
"""Secrets in inventories and URLs: none is on the terminal, in the log, in the store, on a web page or in a bundle."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.operator import Done, Operator
from tests.e2e.telemetry.test_web import running_web

SEED = "Seed7Pw"
ARGUMENTS = {
    "password of sshpass": f"-o ProxyCommand='sshpass -p{SEED} ssh -W %h:%p jump'",
    "password after a blank": f"-o 'ProxyCommand sshpass -p {SEED} ssh jump'",
    "repeated by the program": f"-o ProxyCommand='sh -c \"echo denied {SEED} >&2; exit 3\"'",
    "repeated in base64": f"-o ProxyCommand='sh -c \"printf %%s {SEED} | base64 >&2; exit 3\"'",
    "variable of the shell": f"-o ProxyCommand='PASSWORD={SEED} sh -c \"echo $PASSWORD >&2; exit 4\"'",
    "password of a proxy": f"-o ProxyCommand='nosuchprogram --proxy http://user:{SEED}@proxy/ %h %p'",
    "token that ssh does not know": f"-o ProxyCommand='sshpass -p{SEED} %Q'",
    "program of fdpass": f"-o ProxyUseFdpass=yes -o ProxyCommand='sshpass -p{SEED} ssh'",
    "unknown option": f"-L {SEED}",
    "bare word": f"-p 22 {SEED}",
    "option without a value": f"-o {SEED}",
    "unknown key": f"-o RemoteCommand={SEED}",
    "quote without its partner": f"-o 'ProxyCommand sshpass -p{SEED}",
    "password of a jump host": f"-J root:{SEED}@jump",
    "blank in a jump host": f"-J 'root:{SEED}@jump other'",
    "number that is none": f"-o Port={SEED} -o ProxyCommand='sshpass -p{SEED} ssh'",
}
VARIABLES = {
    "ansible_user": f"root:{SEED}",
    "ansible_host": f"root:{SEED}@gpu1",
    "ansible_password": ["a", SEED],
    "ansible_become_pass": f"{{{{ {SEED} }}}}",
    "ansible_ssh_pass": f"one\n{SEED}",
    "vgpu_fencing": {"command": f"fence -p {SEED}"},
    "vgpu_health": {"memory_test": f"/bin/test '{SEED}"},
}
COMMANDS = (
    ("list-hosts",),
    ("list-hosts", "--json"),
    ("list-gpus",),
    ("check-hosts",),
    ("inspect-host", "gpu1"),
    ("show-inventory",),
    ("show-inventory", "--json"),
    ("show-config",),
    ("list-events",),
)


def _shown(done: Done) -> str:
    return done.out + done.err


def _inventory(path: Path) -> Path:
    import json

    hosts: dict[str, object] = {
        f"gpu{number}": {"ansible_host": "127.0.0.1", "ansible_ssh_common_args": text}
        for number, text in enumerate(ARGUMENTS.values(), start=1)
    }
    hosts |= {f"own{number}": {name: value} for number, (name, value) in enumerate(VARIABLES.items())}
    path.write_text(json.dumps({"all": {"hosts": hosts}}))
    return path


def test_a_secret_of_the_inventory_is_shown_nowhere(tmp_path: Path) -> None:
    log, store = tmp_path / "run.log", tmp_path / "store.db"
    operator = Operator(tmp_path, _inventory(tmp_path / "hosts.json"), f"sqlite:///{store}")
    operator = replace(operator, variables={"VGPUCTL_CONNECT_TIMEOUT": "1"})
    operator.does("create-tenant", "acme")
    said = ""
    for command in COMMANDS:
        said += _shown(operator.run(*command, "--log-file", str(log)))
    assert "`sshpass …` of ansible_ssh_common_args" in said
    assert "hosts.json" in said
    with running_web(operator) as web:
        said += "".join(web.get(page)[1] for page in ("/", "/hosts", "/events", "/map"))
    bundle = tmp_path / "bundle.tar.gz"
    for options in ((), ("--anonymous",), ("--with-texts", "--log", str(log))):
        said += _shown(
            operator.run("support-bundle", "--force", "--to", str(bundle), "--refresh", "--checks", *options)
        )
        said += gzip.decompress(bundle.read_bytes()).decode(errors="replace")
    said += log.read_text() + "".join(one.read_bytes().decode(errors="replace") for one in tmp_path.glob("store.db*"))
    assert [line for line in said.splitlines() if SEED in line or "U2VlZDdQd" in line] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hosts.ini", f"gpu1 ansible_password {SEED}\n"),
        ("hosts.ini", f"[gpus]\nansible_password={SEED}\n"),
        ("hosts.ini", f"[gpus]\ngpu1\n[gpus:vars]\nansible_password {SEED}\n"),
        ("hosts.ini", f"gpu1 ansible_password='{SEED}\n"),
        ("hosts.yml", f"all: {{hosts: {{gpu1: {{ansible_password: *{SEED}}}}}}}\n"),
        ("hosts.yml", f"all: {{hosts: {{gpu1: {{ansible_password: !{SEED} x}}}}}}\n"),
        ("hosts.yml", f"all:\n  hosts:\n    gpu1:\n      ansible_password: @{SEED}\n"),
        ("hosts.yml", f'all:\n  hosts:\n    gpu1:\n      ansible_password: "{SEED}\n'),
        ("hosts.yml", f"all:\n  hosts:\n    gpu1:\n      ansible_password: {SEED}: x: y\n"),
    ],
)
def test_an_inventory_that_cannot_be_read_is_refused_without_its_passwords(
    tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / name).write_text(text)
    operator = Operator(tmp_path, tmp_path / name, f"sqlite:///{tmp_path}/store.db")
    done = operator.run("list-hosts", "--log-file", str(tmp_path / "log"))
    assert done.code == 3
    assert name in done.err
    assert SEED not in _shown(done) + (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://vgpu:one@{SEED}@127.0.0.1:1/vgpuctl",
        f"postgresql://vgpu:12/{SEED}@127.0.0.1:1/vgpuctl",
        f"postgresql://vgpu:one/{SEED}@127.0.0.1:1/vgpuctl",
        f"postgresql://vgpu:one?{SEED}@127.0.0.1:1/vgpuctl",
        f"postgresql://vgpu:one {SEED}@127.0.0.1:1/vgpuctl",
        f"postgresql://vgpu:one%zz{SEED}@127.0.0.1:1/vgpuctl",
        f"postgresql://vgpu@127.0.0.1:1/vgpuctl?password={SEED}",
        f"postgresql://vgpu@127.0.0.1:1/vgpuctl?sslpassword={SEED}&sslmode=disable",
        f"postgresql://vgpu@127.0.0.1:1/vgpuctl?passwort={SEED}",
        f"mysql://vgpu:{SEED}@127.0.0.1/vgpuctl",
        f"sqlite://vgpu:{SEED}@127.0.0.1/vgpuctl",
        f"host=127.0.0.1 password={SEED}",
        f"vgpu:{SEED}@127.0.0.1://vgpuctl",
    ],
)
def test_a_password_of_the_stores_url_is_shown_nowhere(tmp_path: Path, url: str) -> None:
    (tmp_path / "hosts.yml").write_text("all: {hosts: {gpu1: }}\n")
    operator = Operator(tmp_path, tmp_path / "hosts.yml", url)
    log, bundle = tmp_path / "log", tmp_path / "bundle.tar.gz"
    done = operator.run("list-vms", "--log-file", str(log))
    assert done.code != 0
    said = _shown(done) + _shown(operator.run("show-config", "--json"))
    for options in ((), ("--anonymous",), ("--with-texts", "--log", str(log))):
        said += _shown(operator.run("support-bundle", "--force", "--to", str(bundle), *options))
        said += gzip.decompress(bundle.read_bytes()).decode(errors="replace")
    assert SEED not in said + log.read_text()
