# SPDX-License-Identifier: Apache-2.0
"""The probe of a Windows guest: the XML of its nvidia-smi, from an honest guest and from those that are not."""

import pytest

from vgpuctl.errors import GuestError
from vgpuctl.guests.facts.guest_report import describe
from vgpuctl.guests.facts.smi_log import MOST_LOG_BYTES, read_smi_log

HEAD = '<?xml version="1.0" ?>\r\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\r\n'
GPU = """<gpu id="00000000:02:00.0">
<product_name>NVIDIA A40-8Q</product_name><uuid>GPU-1</uuid><mig_mode><current_mig>N/A</current_mig></mig_mode>
<vgpu_software_licensed_product><product_name>NVIDIA RTX Virtual Workstation</product_name>
<license_status>Licensed (Expiry: 2026-12-1 0:0:0 GMT)</license_status></vgpu_software_licensed_product>
<fb_memory_usage><total>8192 MiB</total><used>500 MiB</used></fb_memory_usage>
<bar1_memory_usage><total>256 MiB</total></bar1_memory_usage>
<processes><process_info><process_name>C:\\Spiele\\GR\u00dcN.exe</process_name></process_info></processes>
</gpu>
"""


def log(inner: str) -> bytes:
    """A document as nvidia-smi on Windows writes it, in a code page of its own."""
    return f"{HEAD}<nvidia_smi_log>{inner}</nvidia_smi_log>".encode("cp1252", "replace")


def test_a_windows_guest_tells_driver_gpu_framebuffer_and_licence() -> None:
    report = read_smi_log(log(f"<driver_version>573.48</driver_version>\r\n{GPU}"))
    (gpu,) = report.gpus
    assert (report.driver, report.open_module, report.cuda_devices) == ("573.48", None, None)
    assert (gpu.name, gpu.uuid, gpu.memory_mib, gpu.mig) == ("NVIDIA A40-8Q", "GPU-1", 8192, None)
    assert gpu.licence == "Licensed (Expiry: 2026-12-1 0:0:0 GMT)"
    assert describe(report) == ("driver 573.48", "GPU-1: NVIDIA A40-8Q")


def test_two_gpus_and_none() -> None:
    assert len(read_smi_log(log(GPU + GPU.replace("GPU-1", "GPU-2"))).gpus) == 2
    empty = read_smi_log(log("<driver_version>N/A</driver_version><attached_gpus>0</attached_gpus>"))
    assert (empty.driver, empty.gpus) == (None, ())


def test_hidden_characters_are_shown() -> None:
    evil = GPU.replace("NVIDIA A40-8Q", "A40-8Q&#x202e;&#x200b;&#xfeff;&#9;\u00e9")
    (gpu,) = read_smi_log(f"{HEAD}<nvidia_smi_log>{evil}</nvidia_smi_log>".encode()).gpus
    assert gpu.name == "A40-8Q\\u202e\\u200b\\ufeff\\x09\u00e9"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "no element found"),
        (b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver", "syntax error"),
        (b"x" * (MOST_LOG_BYTES + 1), "are not read"),
        (b"\xff\xfe\x00<", "not well-formed"),
        (b"<html/>", "no nvidia_smi_log"),
        (b"<nvidia_smi_log>" + b"<a>" * 100, "nested too deeply"),
        (b"<nvidia_smi_log>" + b"<a>" * 100_000, "nested too deeply"),
        (b'<!DOCTYPE l [<!ENTITY a "b">]><nvidia_smi_log>&a;</nvidia_smi_log>', "declares the entity 'a'"),
        (b'<!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]><nvidia_smi_log/>', "declares the entity 'a'"),
        (b'<!DOCTYPE l [<!ENTITY % a "b">]><nvidia_smi_log/>', "declares the entity 'a'"),
        (log("<driver_version>1</driver_version>"), "Expected `str` matching"),
        (log("<driver_version>573.48\n573.49</driver_version>"), "Expected `str` matching"),
        (log("<driver_version>573.48</driver_version><driver_version>580.1</driver_version>"), "stands twice"),
        (log("<gpu><uuid>a</uuid><uuid>b</uuid></gpu>"), "uuid stands twice"),
        (log("<gpu/>" * 65), "length <= 64"),
        (log("<gpu><fb_memory_usage><total>999999999 MiB</total></fb_memory_usage></gpu>"), "<= 16777216"),
        (log("<driver_version>&#27;]0;owned</driver_version>"), "reference to invalid character"),
    ],
)
def test_other_documents_are_refused(answer: bytes, why: str) -> None:
    with pytest.raises(GuestError, match=why) as refused:
        read_smi_log(answer)
    assert "\x1b" not in refused.value.message + "".join(refused.value.context)


@pytest.mark.parametrize("told", ["8192", "8192 GiB", "-1 MiB", "1e9 MiB", "\u0668 MiB", "9" * 5000 + " MiB"])
def test_a_framebuffer_in_other_words_is_not_told(told: str) -> None:
    (gpu,) = read_smi_log(
        f"<nvidia_smi_log><gpu><fb_memory_usage><total>{told}</total></fb_memory_usage></gpu></nvidia_smi_log>".encode()
    ).gpus
    assert gpu.memory_mib is None
