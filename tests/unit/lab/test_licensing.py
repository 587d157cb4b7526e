# SPDX-License-Identifier: Apache-2.0
"""The lab's licence server: seats and leases, and the tokens that it takes, at its calls without a network."""

import base64
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from flask.testing import FlaskClient

from vgpuctl.model.licence_token import read_token
from vgpuctl_lab.licence_token import licence_token
from vgpuctl_lab.licensing.client import (
    Claims,
    LicenceClient,
    LicenceRefused,
    LicenceSession,
    Refusal,
    Unreachable,
    read_claims,
)
from vgpuctl_lab.licensing.seats import Seats
from vgpuctl_lab.licensing.service import application
from vgpuctl_lab.licensing.tokens import Identity
from vgpuctl_lab.simulated.machine.state import Licence

ONE, TWO = "0d0d0d0d-0000-4000-8000-000000000001", "0d0d0d0d-0000-4000-8000-000000000002"
TIMERS = (1200.0, 86_400.0)
Ask = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def identity() -> Identity:
    return Identity.made("dls")


@pytest.fixture
def seats(tmp_path: Path) -> Seats:
    made = Seats(tmp_path / "seats.db")
    made.set_up({"vws": 1, "vcs": 1}, 60.0)
    return made


def _token(identity: Identity, seats: Seats, lifetime_s: float = 60.0) -> str:
    token, token_id = identity.token(("127.0.0.1",), 4433, lifetime_s=lifetime_s, timers=TIMERS)
    seats.note_token(token_id, 0.0)
    return token


@pytest.fixture
def ask(identity: Identity, seats: Seats) -> Ask:
    client: FlaskClient = application(identity, seats).test_client()

    def call(token: str | None, method: str = "POST", path: str = "", data: object = None) -> tuple[int, Any]:
        document = {"client": ONE, "editions": ["vws"]} if data is None else data
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        answer = client.open(f"/v1/leases{path}", method=method, data=body, headers=headers)
        return answer.status_code, answer.get_json()

    return call


def test_a_client_checks_out_renews_and_returns(identity: Identity, seats: Seats, ask: Ask) -> None:
    token = _token(identity, seats)
    status, lease = ask(token)
    assert (status, lease["edition"]) == (201, "vws") and 8 < lease["renew_after_s"] <= 9
    assert ask(token, data={"client": TWO, "editions": ["vws"]}) == (
        409, {"error": "full", "message": "all seats of vws are taken"},
    )  # fmt: skip
    # The second edition of a client serves where the first is taken.
    assert ask(token, data={"client": TWO, "editions": ["vws", "vcs"]})[1]["edition"] == "vcs"
    status, again = ask(token, "PUT", f"/{lease['lease']}")
    assert status == 200 and again["expires_at"] > lease["expires_at"]
    assert ask(token, "DELETE", f"/{lease['lease']}") == (200, {})
    assert ask(token, "PUT", f"/{lease['lease']}")[1]["error"] == "no-lease"
    assert [one.client for one in seats.leases(0)] == [TWO]


def test_every_bad_token_is_refused_by_name(identity: Identity, seats: Seats, ask: Ask) -> None:
    good = _token(identity, seats)
    other = _token(Identity.made("other"), seats)
    head, body, signature = good.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    longer = jwt.encode({**claims, "exp": claims["exp"] + 10**6}, "x" * 32, algorithm="HS256")
    unsigned = jwt.encode(claims, "", algorithm="none")
    spliced = f"{head}.{other.split('.')[1]}.{signature}"
    unknown, _ = identity.token(("127.0.0.1",), 4433, lifetime_s=60.0, timers=TIMERS)
    for token, refusal in (
        (None, Refusal.NO_TOKEN),
        ("nonsense", Refusal.FORGED),
        (longer, Refusal.FORGED),
        (unsigned, Refusal.FORGED),
        (f"{head}.{body}.{signature[:-4]}AAAA", Refusal.FORGED),
        (spliced, Refusal.OTHER_SERVER),
        (other, Refusal.OTHER_SERVER),
        (licence_token("127.0.0.1"), Refusal.OTHER_SERVER),
        (_token(identity, seats, lifetime_s=-60.0), Refusal.EXPIRED),
        (unknown, Refusal.REVOKED),
    ):
        assert ask(token)[0] == 401 and ask(token)[1]["error"] == refusal.value, (refusal, token)
    assert ask(good)[0] == 201
    assert seats.revoke_tokens(1.0) > 0
    assert ask(good)[1]["error"] == "token-revoked"
    assert ask(_token(identity, seats))[0] == 201, "a new token is valid"


@pytest.mark.parametrize(
    "data",
    [b"", b"[", b"[]", b"[" * 50_000, {"client": "me", "editions": ["vws"]}, {"client": ONE, "editions": []},
     {"client": ONE, "editions": [["vws"]]}, {"client": ONE, "editions": ["x" * 33]}, {"client": 1, "editions": "v"}],
)  # fmt: skip
def test_a_call_that_is_none_is_refused(identity: Identity, seats: Seats, ask: Ask, data: object) -> None:
    token = _token(identity, seats)
    status, said = ask(token, data=data)
    assert (status, said["error"]) == (400, "bad-request")
    assert ask(token, "GET")[0] == 405
    assert ask(token, data=b"x" * 70_000)[0] in (400, 413)
    assert seats.leases(0) == []


def test_a_lease_that_is_not_renewed_ends_and_a_client_that_comes_again_keeps_its_seat(seats: Seats) -> None:
    first = seats.check_out(ONE, ["vws"], 100.0)
    # After a crash the same guest asks again, and the lease of before is worth nothing.
    again = seats.check_out(ONE, ["vws"], 110.0)
    assert again.expires_at == 170.0 and len(seats.leases(111.0)) == 1
    with pytest.raises(LicenceRefused):
        seats.renew(first.id, 112.0)
    with pytest.raises(LicenceRefused, match="taken"):
        seats.check_out(TWO, ["vws"], 169.0)
    with pytest.raises(LicenceRefused, match="expired"):
        seats.renew(again.id, 170.0)
    assert seats.check_out(TWO, ["vws"], 170.0).client == TWO
    with pytest.raises(LicenceRefused, match="there are no seats of vpc"):
        seats.check_out(TWO, ["vpc"], 171.0)


def test_the_last_seat_goes_to_one_of_many(seats: Seats) -> None:
    seats.set_up({"vws": 3}, 60.0)
    gate, got = threading.Barrier(12), []

    def take(number: int) -> None:
        gate.wait()
        try:
            got.append(seats.check_out(f"client-{number}", ["vws"], 100.0).client)
        except LicenceRefused:
            pass

    threads = [threading.Thread(target=take, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 3 and sorted(got) == [one.client for one in seats.leases(100.0)]


def test_a_token_names_its_own_address_and_vgpuctl_reads_it(identity: Identity, seats: Seats) -> None:
    token = _token(identity, seats)
    assert read_token(token).servers == ("127.0.0.1",)
    claims = read_claims(token)
    assert claims == Claims(["127.0.0.1:4433"], identity.certificate.decode(), *TIMERS)
    assert read_claims(licence_token("127.0.0.1")) is None, "no guest asks a server that a stand-in token names"
    assert read_claims("a.b.c") is None


def test_a_guest_without_an_answer_says_so(identity: Identity) -> None:
    claims = Claims(["127.0.0.1:1"], identity.certificate.decode(), *TIMERS)
    client = LicenceClient("token", claims, ONE, timeout_s=1.0)
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:1: .*refused"):
        client.check_out(["vws"])
    session = LicenceSession(client, ["vws"])
    assert session.step() == 2.0
    assert session.held is None and session.failure is not None and session.failure.startswith("unreachable")
    assert session.end()


def test_the_steps_of_a_guest_without_a_licence() -> None:
    licence = Licence(1000.0, *TIMERS)
    states = [licence.state(at, 0.0) for at in (999.0, 1000.0, 2199.0, 2200.0, 87_399.0, 87_400.0)]
    free, slow, stopped = "unlicensed-unrestricted", "unlicensed-restricted", "unlicensed"
    assert states == ["licensed", free, free, slow, slow, stopped]
    assert Licence(0.0, *TIMERS).state(5100.0, 5000.0) == free, "the steps begin at the guest's boot"
