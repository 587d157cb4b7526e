# SPDX-License-Identifier: Apache-2.0
"""Values of a site are replaced in their own format, the same each time; public values stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.model.anonymous import Anonymiser, NameKind, host_words

NAMES = {
    **host_words("rack7.acme.example", "gpu-east-1"),
    NameKind.VM: {"billing-db", "web"},
    NameKind.TENANT: {"initech"},
    NameKind.USER: {"alice"},
}


def _replaced(text: str) -> str:
    anonymiser = Anonymiser(NAMES, mark="abcdef01")
    anonymiser.look_at(text)
    return str(anonymiser.replace(text))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("rack7 and RACK7.acme.example", "host-001 and host-001.site-1.example"),
        ("rack70 is another", "rack70 is another"),
        ("GPU-12345678-1234-1234-1234-123456789abc", "GPU-abcdef01-0000-4000-8000-000000000001"),
        ("mac 52:54:00:aa:bb:cc", "mac 02:00:00:00:00:01"),
        ("interface enx525400aabbcc", "interface enx020000000001"),
        ("10.1.2.3/24 via 10.1.2.1", "198.18.0.2/24 via 198.18.0.1"),
        ("fd00:1::5 and 2a01:4f8::1", "2001:db8::2 and 2001:db8::1"),
        ("/home/bob/x", "/home/user-002/x"),
        ("alice@initech", "user-001@tenant-001"),
        ("carol@mail.acme.example", "user-1@example.org"),
        ("1e462d8c54e72408fd09488e8be514f4", "abcdef01000000000000000000000001"),
        ("Serial Number: 1321020012345", "Serial Number: 0000000000001"),
        ("vm billing-db", "vm vm-001"),
    ],
)
def test_each_kind_keeps_its_format(text: str, wanted: str) -> None:
    anonymiser = Anonymiser(NAMES, mark="abcdef01")
    anonymiser.look_at([text, "alice"])
    assert anonymiser.replace(text) == wanted


@pytest.mark.parametrize(
    "secret",
    [
        "postgresql://vgpu:hunter2hunter2@db/vgpuctl",
        "password=hunter2hunter2",
        '"api_key": "hunter2hunter2"',
        "VGPUCTL_TOKEN=hunter2hunter2",
        "Authorization: Bearer hunter2hunter2",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2hunter2\n-----END OPENSSH PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2hunter2",
        "ssh-ed25519 AAAAhunter2hunter2 me@there",
        "eyJhbGciOiJIUzI1NiJ9.hunter2hunter2.sig",
        "K10aaaaaaaaaaaaaaaaaaaa::server:hunter2hunter2",
        "token: 'hunter2hunter2'",
        "ProxyCommand sshpass -p hunter2hunter2 ssh jump",
        "curl --password hunter2hunter2 x",
    ],
)
def test_secrets_are_removed(secret: str) -> None:
    assert "hunter2" not in _replaced(f"a {secret} b")


@pytest.mark.parametrize(
    "text",
    [
        "0000:41:00.0",
        "0000:41:00.4/mdev_supported_types/nvidia-558",
        "driver 580.105.06, NVML 13.580.105.06",
        "VBIOS 94.02.5C.00.12",
        "6.1.0-28-amd64",
        "127.0.0.1 0.0.0.0 ::1 255.255.255.0 224.0.0.1",
        "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c",
        "00000000-0000-0000-0000-000000000000",
        "0x000000000014220c",
        "12:34:56",
        "avc: denied { read }",
        "a token is missing",
        "password: null",
    ],
)
def test_what_is_the_same_everywhere_stays(text: str) -> None:
    assert _replaced(text) == text


def test_the_kernels_texts_keep_words_that_are_names_of_vms_elsewhere() -> None:
    anonymiser = Anonymiser({NameKind.VM: {"a40"}, NameKind.HOST: {"rack7"}})
    assert anonymiser.replace("/sys/a40/rack7", with_names=False) == "/sys/a40/host-001"
    assert anonymiser.replace("a40") == "vm-001"


def test_a_host_that_is_named_as_a_part_of_a_path_leaves_the_paths() -> None:
    anonymiser = Anonymiser(host_words("mig.corp.example"))
    assert anonymiser.replace("/sys/bus/mig at mig.corp.example") == "/sys/bus/mig at mig.site-1.example"


def test_keys_and_values_of_json_are_replaced_alike() -> None:
    anonymiser = Anonymiser(NAMES)
    value = {"/run/billing-db.xml": ["billing-db", {"web": 5}], "n": None}
    assert anonymiser.replace(value) == {"/run/vm-001.xml": ["vm-001", {"vm-002": 5}], "n": None}


def test_what_was_replaced_is_listed_without_secrets() -> None:
    anonymiser = Anonymiser(NAMES)
    anonymiser.look_at("rack7 password=hunter2hunter2")
    assert anonymiser.counts() == {"host": 1, "secret": 1}
    assert anonymiser.replaced() == [("host", "rack7", "host-001"), ("secret", "", "removed")]


@given(st.lists(st.uuids().map(str), min_size=2, max_size=8, unique=True), st.booleans())
def test_equal_values_are_replaced_alike_and_in_their_order(uuids: list[str], is_upper: bool) -> None:
    anonymiser = Anonymiser({})
    anonymiser.look_at(uuids)
    made = [anonymiser.replace(one.upper() if is_upper else one) for one in uuids]
    assert len(set(made)) == len(uuids)
    assert sorted(made) == [anonymiser.replace(one) for one in sorted(uuids)]


@given(st.text(max_size=300))
def test_any_text_is_replaced_and_a_second_time_changes_no_secret(text: str) -> None:
    once = _replaced(text)
    assert _replaced(once).count("removed") >= once.count("removed")
