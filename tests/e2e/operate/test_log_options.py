# SPDX-License-Identifier: Apache-2.0
"""The lines of `-vv` and `--log-file` for a command on a simulated host."""

from pathlib import Path

from tests.e2e.operator import Operator

SECRET = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxK0e1YkYbq7tQp7S5KqzG0m6X7Wn3QW8c2h6xTn0aB web"


def test_every_connection_call_and_transaction_has_a_line_with_its_duration(
    fleet_operator: Operator, tmp_path: Path
) -> None:
    fleet_operator.does("create-tenant", "acme")
    file, key = tmp_path / "log", tmp_path / "key.pub"
    key.write_text(SECRET)
    create = ("create-vm", "web", "--tenant", "acme", "--gpu", "A40-8Q", "--memory", "96MiB", "--vcpus", "1")
    done = fleet_operator.does(
        "--log-file", str(file), *create, "--network", "none", "--ssh-key", str(key), "-v", "--limit", "sim-001"
    )
    told = [line for line in done.err.splitlines() if line.startswith("time=")]
    assert any("level=info event=ssh-login host=sim-001 address=127.0.0.1" in line for line in told)
    assert any("level=info event=agent-call host=sim-001 call=apply" in line for line in told)
    assert not any("level=debug" in line for line in told)
    text = file.read_text()
    for event in ("ssh-login", "ssh-start", "agent-call", "libvirt-open", "libvirt-call", "store-transaction"):
        lines = [line for line in text.splitlines() if f" event={event} " in line]
        assert lines, event
        assert all("duration_ms=" in line for line in lines)
    assert 'event=said text="acme/web: running on sim-001"' in text
    assert text.splitlines()[-1].endswith("event=ended exit_code=0")
    assert "AAAAC3" not in text + done.err
    fleet_operator.does("delete-vm", "web", "--tenant", "acme", "--yes", "--timeout", "0")
