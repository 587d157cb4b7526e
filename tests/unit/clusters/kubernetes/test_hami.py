# SPDX-License-Identifier: Apache-2.0
"""HAMi's annotations: both forms of the register, device strings, node locks, handshakes."""

import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpuctl.clusters.kubernetes import hami
from vgpuctl.clusters.kubernetes.hami import GivenDevice, HamiFormatError, NodeLock, RegisteredDevice

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
OLD = "GPU-a,10,46068,100,NVIDIA-NVIDIA A40,0,true:GPU-b,10,46068,100,NVIDIA-GRID A100-10C,1,false,1,mig:"


def test_the_json_form_leaves_zeros_out() -> None:
    text = '[{"id":"GPU-a","count":10,"devmem":46068,"devcore":100,"type":"NVIDIA-NVIDIA A40","new":{}}]'
    assert hami.read_register(text) == [
        RegisteredDevice("GPU-a", 10, 46068, 100, "NVIDIA-NVIDIA A40", 0, is_healthy=False)
    ]


def test_the_old_form_has_seven_or_nine_fields() -> None:
    assert hami.read_register(OLD) == [
        RegisteredDevice("GPU-a", 10, 46068, 100, "NVIDIA-NVIDIA A40", 0, is_healthy=True),
        RegisteredDevice("GPU-b", 10, 46068, 100, "NVIDIA-GRID A100-10C", 1, is_healthy=False, index=1, mode="mig"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "[{}]",
        '[{"id":7}]',
        '[{"id":"a","count":-1}]',
        '[{"id":"a"},{"id":"a"}]',
        '[{"id":"a;b"}]',
        "[" * 100_000,
        "GPU-a,10:",
        "GPU-a,1,1,1,t,0,yes:",
        "GPU-a," + "9" * 5000 + ",1,1,t,0,true:",
        "x" * 300_000,
    ],
)
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(HamiFormatError):
        hami.read_register(text)


def test_position_in_a_device_string_is_the_container() -> None:
    text = ";GPU-a,NVIDIA,4096,30:GPU-b,NVIDIA,4096,30:;"
    given_ = ((), (GivenDevice("GPU-a", 4096, 30), GivenDevice("GPU-b", 4096, 30)))
    assert hami.read_devices(text) == given_
    assert hami.write_devices(given_) == text


_DEVICES = st.builds(GivenDevice, st.from_regex(r"\AGPU-[a-f0-9-]{1,36}\Z"), st.integers(0, 2**20), st.integers(0, 100))


@given(st.lists(st.lists(_DEVICES, max_size=4).map(tuple), max_size=6).map(tuple))
def test_what_is_written_is_read(containers: tuple[tuple[GivenDevice, ...], ...]) -> None:
    assert hami.read_devices(hami.write_devices(containers)) == containers


@given(st.text(alphabet='GPU-a,:;0123456789NVIDIA[]{}"', max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (hami.read_devices, hami.read_register, hami.read_lock, hami.read_cordon):
        try:
            found = read(text)
        except HamiFormatError:
            continue
        assert read(text) == found
    with contextlib.suppress(HamiFormatError):
        devices = hami.read_devices(text)
        assert hami.read_devices(hami.write_devices(devices)) == devices


@pytest.mark.parametrize("text", ["GPU-a,NVIDIA,1,1:", "GPU-a,NVIDIA,1:;", "GPU-a,NVIDIA,1,1;", "a,b,-1,0:;"])
def test_a_broken_device_string_is_refused(text: str) -> None:
    with pytest.raises(HamiFormatError):
        hami.read_devices(text)


def test_init_containers_count_as_their_maximum() -> None:
    text = "a,NVIDIA,5000,10:;a,NVIDIA,100,90:;a,NVIDIA,2000,20:;a,NVIDIA,2000,20:b,NVIDIA,1,1:;"
    assert hami.most_at_once(hami.read_devices(text), 2) == {"a": (2, 5000, 90), "b": (1, 1, 1)}


def test_locks_of_both_forms() -> None:
    lock = hami.read_lock("2026-03-01T13:00:00+01:00,ml,train-0")
    assert lock == NodeLock(NOW, "ml", "train-0")
    assert lock.is_of("ml", "train-0") and not lock.is_of("ml", "train-1")
    assert str(lock) == "2026-03-01T12:00:00Z,ml,train-0"
    assert not lock.is_expired(NOW + timedelta(minutes=5)) and lock.is_expired(NOW + timedelta(minutes=5, seconds=1))
    assert hami.read_lock("2026-03-01T12:00:00Z") == NodeLock(NOW)
    for text in ("", "yesterday", "2026-13-01T12:00:00Z", "2026-03-01T12:00:00Z,ml"):
        with pytest.raises(HamiFormatError):
            hami.read_lock(text)


@pytest.mark.parametrize(
    ("handshake", "register", "gpus", "is_stale"),
    [
        ("", OLD, 0, False),
        ("Reported 2026-03-01 11:00:00", OLD, 0, False),
        ("Requesting_2026-03-01 11:59:30", OLD, 20, False),
        ("Requesting_2026-03-01 11:58:00", OLD, 20, True),
        ("Requesting_2026-99-01 11:58:00", OLD, 20, True),
        ("Deleted_2026-03-01 11:58:00", OLD, 20, True),
        ("Requesting_2026-03-01 11:58:00", "[]", 20, False),
        ("Requesting_2026-03-01 11:58:00", "[]", 0, True),
    ],
)
def test_a_stale_handshake_counts_by_version(handshake: str, register: str, gpus: int, is_stale: bool) -> None:
    annotations = {hami.HANDSHAKE: handshake, hami.REGISTER: register}
    assert hami.is_stale(annotations, advertised_gpus=gpus, now=NOW) is is_stale


def test_bind_writes_what_the_plugin_reads() -> None:
    assert hami.bind_annotations("n1", ((GivenDevice("GPU-a", 1024, 50),),), NOW) == {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1772366400",
        "hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,1024,50:;",
        "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1024,50:;",
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1772366400",
    }
