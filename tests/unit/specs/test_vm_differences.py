# SPDX-License-Identifier: Apache-2.0
"""Differences of VMs are in the words of the file, and never show contents."""

from dataclasses import replace

from vgpuctl.model.disk import DiskRequest
from vgpuctl.model.gpu_request import parse_gpu_request
from vgpuctl.model.secret_text import SecretText
from vgpuctl.model.vm import CloudInit, VmRequest
from vgpuctl.specs.vm import list_differences

VM = VmRequest("web-1", "acme", cloud_init=CloudInit(user_data=SecretText.of("password: a"), hostname="x"))


def test_differences_are_in_the_words_of_the_file() -> None:
    assert list_differences(VM, VM) == []
    wanted = replace(VM, autostart=True, memory_mib=1500, gpus=(parse_gpu_request("A40-8Q"),), network=None)
    assert list_differences(VM, wanted) == [
        "gpus: none there, A40-8Q wanted",
        "memory: 2GiB there, 1500MiB wanted",
        "network: default there, none wanted",
        "autostart: no there, yes wanted",
    ]
    assert list_differences(VM, replace(VM, disk=DiskRequest())) == [
        "disk.size: none there, 10GiB wanted",
        "disk.pool: none there, default wanted",
    ]


def test_contents_of_documents_are_not_shown() -> None:
    wanted = replace(VM, cloud_init=CloudInit(user_data=SecretText.of("password: b"), hostname="y"))
    assert list_differences(VM, wanted) == ["cloud_init.user_data: differs", "cloud_init.hostname: x there, y wanted"]


def test_a_host_is_compared_only_if_it_is_given() -> None:
    assert list_differences(replace(VM, host="gpu1"), VM) == []
    assert list_differences(replace(VM, host="gpu1"), replace(VM, host="gpu2")) == ["host: gpu1 there, gpu2 wanted"]
