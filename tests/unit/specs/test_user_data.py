# SPDX-License-Identifier: Apache-2.0
"""Documents for the guest: what cloud-init and cloudbase-init act on is taken, what they would ignore is refused."""

from dataclasses import replace

import pytest

from vgpuctl.errors import UsageError
from vgpuctl.model.disk import DiskRequest
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit, VmRequest
from vgpuctl.specs.user_data import check_network_config, check_user_data, check_windows_user_data
from vgpuctl.specs.vm import check_request

MIME = "Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\n--b\nContent-Type: {kind}\n\n{text}\n--b--\n"


def mime(kind: str, text: str) -> str:
    return MIME.format(kind=kind, text=text)


@pytest.mark.parametrize(
    "document",
    [
        "#cloud-config\nusers: [{name: a}]\n",
        "#cloud-config\nwrite_files:\n- path: /a\n  content: |\n    if true; then\n    \techo\n    fi\n",
        "#cloud-config\nwrite_files:\n- path: /Makefile\n  content: |\n    all:\n    \ttrue\n",
        "#cloud-config\nruncmd:\n- printf 'a\tb'  # a\ttab\n",
        "\n\n  #cloud-config\nhostname: a\n",
        "#CLOUD-CONFIG\nhostname: a\n",
        "#Cloud-Config\nhostname: a\n",
        "#cloud-config\n# a comment\n{}\n",
        "#cloud-config\na: &x {b: 1}\nc: {<<: *x, d: 2}\n",
        "#!/bin/sh\nif true; then\n\techo\nfi\n",
        "\n#!/usr/bin/env python3\nprint()\n",
        "#include\nhttps://files.example/a\n",
        "#INCLUDE https://files.example/a\n",
        "#include-once\nhttps://files.example/a\n",
        "#part-handler\ndef list_types(): return []\n",
        "#cloud-boothook\n#!/bin/sh\ntrue\n",
        "## template: jinja\n#cloud-config\nruncmd: [echo {{ v1.local_hostname }}]\n",
        "## TEMPLATE: jinja\n#!/bin/sh\n{% if true %}true{% endif %}\n",
        "#cloud-config-archive\n- '#!/bin/sh\n\n  true'\n- {type: text/cloud-config, content: 'a: 1'}\n- 'a: 1'\n",
        '#cloud-config-jsonp\n[{"op": "add", "path": "/runcmd", "value": []}]\n',
        mime("text/x-shellscript", "#!/bin/sh\n\ttrue"),
        mime("text/cloud-config", "#cloud-config\na: 1"),
        mime("text/cloud-config", "a: 1"),
        mime("text/plain", "#!/bin/sh\ntrue"),
        mime("TEXT/CLOUD-CONFIG", "a: 1"),
        "From nobody Thu Jan  1 00:00:00 1970\n" + mime("text/x-shellscript", "#!/bin/sh"),
        "mime-version: 1.0\ncontent-type: text/cloud-config\n\na: 1\n",
        mime("text/x-include-url", "https://files.example/a"),
        "#cloud-config",
        "#cloud-config\n",
        "#cloud-config\r\n",
        "\n#cloud-config\n\n",
        "#cloud-config\n# what is to be done comes later\n",
        "#cloud-config\n---\n",
        "#cloud-config\n--- \n...\n",
        "#cloud-config\nnull\n",
        "## template: jinja\n#cloud-config\n",
        "#cloud-config-archive\n- '#cloud-config'\n",
        mime("text/cloud-config", ""),
        mime("text/plain", "#cloud-config\n"),
    ],
)
def test_what_cloud_init_acts_on_is_taken(document: str) -> None:
    check_user_data(document)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("", "which cloud-init ignores"),
        ("packages: [vim]\n", "which cloud-init ignores"),
        ("# cloud-config\na: 1\n", "which cloud-init ignores"),
        ("#cloud-config\n[]\n", "user-data is a list"),
        ("#cloud-config\n''\n", "user-data is a text"),
        ("#cloud-config\n- a\n", "user-data is a list"),
        ("#cloud-config\njust words\n", "user-data is a text"),
        ("#cloud-config\nusers:\n\t- name: a\n", "user-data line 3"),
        ("#cloud-config\na: 'b\n", "user-data line"),
        ("#cloud-config\na: [1\n", "user-data line"),
        ("#cloud-config\na: 1\nb: 2\na: 3\n", "line 4: a key is written twice"),
        ("#cloud-config\nusers:\n- name: a\n  name: b\n", "line 4: a key is written twice"),
        ("#cloud-config\na: *nobody\n", "user-data line 2"),
        ("#cloud-config\na: &x [*x]\n", "user-data line 2"),
        ("#cloud-config\n--- \na: 1\n---\nb: 1\n", "user-data line"),
        ("#cloud-config-archive\na: 1\n", "no list"),
        ("#cloud-config-archive\n- content: 'a: ['\n", "document 1 line"),
        ("#cloud-config-archive\n- 7\n", "document 1 has no text"),
        ("#cloud-config-jsonp\n{\n", "no JSON"),
        ("#cloud-config-jsonp\n{}\n", "no list of steps"),
        (mime("text/cloud-config", "- a"), "part 1 of its MIME message is a list"),
        (mime("text/cloud-config", "a: ["), "part 1 of its MIME message line"),
        (mime("text/plain", "hello"), "of a type that cloud-init does nothing with"),
        (mime("application/pdf", "x"), "of a type that cloud-init does nothing with"),
        ("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=c\n\n--b\n\na: 1\n", "cannot be read as one"),
        ("#cloud-config\n# MIME-Version: of a message\nhostname: a\n", "MIME message"),
    ],
)
def test_what_cloud_init_would_ignore_is_refused(document: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        check_user_data(document)


@pytest.mark.parametrize(
    "document",
    [
        "#cloud-config\nset_hostname: a\n",
        "#ps1\nls\n",
        "#ps1_sysnative\nls\n",
        "#ps1_x86\nls\n",
        "rem cmd\r\ndir\r\n",
        "#!/usr/bin/env python\nprint()\n",
        "#!/bin/bash\nls\n",
        "<powershell>\nls\n</powershell>\n",
        "<script>\ndir\n</script>\n<persist>true</persist>\n",
        mime("text/x-shellscript", "#ps1\nls"),
        mime("text/cloud-config", "set_hostname: a"),
    ],
)
def test_what_cloudbase_init_acts_on_is_taken(document: str) -> None:
    check_windows_user_data(document)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("", "which cloudbase-init ignores"),
        ("dir\n", "which cloudbase-init ignores"),
        ("\n#ps1\nls\n", "which cloudbase-init ignores"),
        ("#PS1\nls\n", "which cloudbase-init ignores"),
        ("\n#cloud-config\nset_hostname: a\n", "which cloudbase-init ignores"),
        ("#cloud-config\npackages: [vim]\n", "'packages', which cloudbase-init does not know"),
        ("#cloud-config\nusers:\n\t- name: a\n", "user-data line 3"),
        ("#cloud-config\n- a\n", "is a list"),
        (mime("text/cloud-config", "packages: [vim]"), "'packages', which cloudbase-init does not know"),
        (mime("text/x-include-url", "https://files.example/a"), "of a type that cloudbase-init does nothing with"),
    ],
)
def test_what_cloudbase_init_would_ignore_is_refused(document: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        check_windows_user_data(document)


def test_no_refusal_quotes_the_document() -> None:
    for document in ("#cloud-config\npassword: *hunter2\n", "#cloud-config\nhunter2: [\n", "hunter2\n"):
        with pytest.raises(UsageError) as caught:
            check_user_data(document)
        assert "hunter2" not in f"{caught.value} {caught.value.hint} {caught.value.context}"


def test_a_network_config_is_a_mapping() -> None:
    check_network_config("version: 2\nethernets: {}\n")
    for document, reason in (("version: 2\n\tethernets: {}\n", "network-config line 2"), ("- a\n", "is a list")):
        with pytest.raises(UsageError, match=reason):
            check_network_config(document)


REQUEST = VmRequest("web-1", "acme", network=None, memory_mib=2048)


def with_documents(**documents: str) -> VmRequest:
    made = {name: SecretText.of(text) for name, text in documents.items()}
    return replace(REQUEST, disk=DiskRequest(base_image="debian-12"), cloud_init=CloudInit(**made))  # type: ignore[arg-type]


def test_a_request_is_refused_before_anything_is_placed() -> None:
    check_request(with_documents(user_data="#cloud-config\nhostname: a\n", network_config="version: 2\n"))
    with pytest.raises(UsageError, match="user-data is a list"):
        check_request(with_documents(user_data="#cloud-config\n- a\n"))
    with pytest.raises(UsageError, match="network-config is a list"):
        check_request(with_documents(network_config="- a\n"))
    windows = replace(with_documents(user_data="#cloud-config\npackages: [vim]\n"), os="windows-server-2022")
    with pytest.raises(UsageError, match="which cloudbase-init does not know"):
        check_request(windows)
