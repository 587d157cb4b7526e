# SPDX-License-Identifier: Apache-2.0
"""Policies as users write them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vgpuctl.errors import UsageError
from vgpuctl.model.policy import DEFAULT_POLICY, PolicyName, parse_policy


def test_one_name_is_a_policy() -> None:
    assert parse_policy("fragmentation") == DEFAULT_POLICY
    assert parse_policy(" spread ").parts == ((PolicyName.SPREAD, 1.0),)


def test_weights_are_relative() -> None:
    assert parse_policy("spread:0.3+binpack:0.7").parts == ((PolicyName.SPREAD, 0.3), (PolicyName.BINPACK, 0.7))
    assert parse_policy("spread+binpack:3").parts == ((PolicyName.SPREAD, 0.25), (PolicyName.BINPACK, 0.75))


def test_least_utilised_has_a_threshold() -> None:
    policy = parse_policy("least-utilised@60:2+binpack:2")
    assert policy.threshold_percent == 60
    assert str(policy) == "least-utilised@60:0.5+binpack:0.5"
    assert str(parse_policy("least-utilised")) == "least-utilised"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "best",
        "spread:",
        "spread:0",
        "spread:-1",
        "spread:nan",
        "spread:inf",
        "spread+spread",
        "spread@5",
        "least-utilised@101",
        "least-utilised@x",
        "spread+",
    ],
)
def test_what_is_no_policy_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_policy(text)
    assert caught.value.hint


@given(st.dictionaries(st.sampled_from(list(PolicyName)), st.integers(1, 1000), min_size=1))
@settings(deadline=None)
def test_a_policy_survives_being_written_and_read(weights: dict[PolicyName, int]) -> None:
    policy = parse_policy("+".join(f"{name}:{weight}" for name, weight in weights.items()))
    again = parse_policy(str(policy))
    assert again.names == policy.names
    assert [weight for _, weight in again.parts] == pytest.approx([weight for _, weight in policy.parts])


@given(
    st.lists(st.sampled_from([*PolicyName, "+", ":", "@", "0.3", "80", "-", " ", "e", "²"]), max_size=8).map("".join)
)
def test_any_text_is_a_policy_or_a_usage_error(text: str) -> None:
    try:
        assert parse_policy(text).parts
    except UsageError:
        pass
