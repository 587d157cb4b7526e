# SPDX-License-Identifier: Apache-2.0
"""`vgpuctl create-certificate` at a shell; no host is contacted."""

import ssl
from pathlib import Path

import pytest

from tests.e2e.operator import Operator


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """An operator without hosts."""
    return Operator(tmp_path, tmp_path / "none.yml", f"sqlite:///{tmp_path}/store.db")


def test_the_second_command_makes_nothing_new(operator: Operator, tmp_path: Path) -> None:
    folder = tmp_path / "authority"
    first = operator.json("create-certificate", "central", "vgpuctl", "--folder", str(folder))
    assert [(one["name"], one["changed"]) for one in first] == [("central", True), ("vgpuctl", True)]
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    again = operator.json("create-certificate", "central", "vgpuctl", "--folder", str(folder))
    assert [one["changed"] for one in again] == [False, False]
    assert {path: path.read_bytes() for path in files} == files
    assert {Path(one["key"]).stat().st_mode & 0o777 for one in first} == {0o600}


def test_openssl_reads_the_certificates(operator: Operator, tmp_path: Path) -> None:
    (made,) = operator.json("create-certificate", "central", "--folder", str(tmp_path / "authority"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made["certificate"], made["key"])
    context.load_verify_locations(made["authority"])
    assert len(context.get_ca_certs()) == 1


def test_a_name_that_cannot_be_used_is_refused(operator: Operator, tmp_path: Path) -> None:
    refusal = operator.is_refused("create-certificate", "../central", "--folder", str(tmp_path / "authority"))
    assert refusal["reference"] == "usage" and "../central" in refusal["message"]
