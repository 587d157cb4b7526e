# SPDX-License-Identifier: Apache-2.0
"""The messages between kube-scheduler and an extender: JSON with Go's field names, accepted in any case.

Source: k8s.io/kube-scheduler extender/v1/types.go; pkg/scheduler/extender.go. Every body is treated as hostile: its
size is bounded by the server, its depth by the decoder, names and numbers here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from vgpuctl.clusters.kubernetes.objects import ClusterNode, ObjectError, Pod, checked_pod, is_name, is_uid
from vgpuctl.typed_json import decode

MOST_NODES = 20_000
MOST_VICTIMS = 2_000
_LONGEST_NAME = 253
_IN_NAMES = re.compile(r"[-a-z0-9.]*")
BEST_SCORE = 10
"""MaxExtenderPriority: kube-scheduler does not clamp scores."""


@dataclass(frozen=True)
class FilterRequest:
    """Of the verbs filter and prioritize. by_name: True for the form NodeNames. raw: the nodes as they came, by name;
    an answer to the form Nodes gives them back."""

    pod: Pod
    names: list[str]
    by_name: bool
    raw: Mapping[str, msgspec.Raw]


@dataclass(frozen=True)
class BindRequest:
    """Of the verb bind."""

    name: str
    namespace: str
    uid: str
    node: str


@dataclass(frozen=True)
class PreemptRequest:
    """Of the verb preempt. victims: of each node the UIDs and the number of violated disruption budgets."""

    pod: Pod
    victims: Mapping[str, tuple[list[str], int]]


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def read_filter(body: bytes) -> FilterRequest:
    """Read the request of filter or prioritize. Raises ObjectError."""
    fields = _fields(body)
    pod = _read_pod(fields)
    names = _read(fields, "nodenames", list[str] | None)
    if names is not None:
        if len(names) > MOST_NODES:
            raise ObjectError(f"more than {MOST_NODES} nodes")
        if not _are_names(names):
            raise ObjectError("NodeNames has a text that is no name of a node")
        return FilterRequest(pod, names, by_name=True, raw={})
    listed = _read(fields, "nodes", Any)
    if listed is None:
        return FilterRequest(pod, [], by_name=True, raw={})
    if not isinstance(listed, dict):
        raise ObjectError("Nodes is no list of nodes")
    items = _read({key.lower(): value for key, value in _fields(fields["nodes"]).items()}, "items", _Items) or []
    if len(items) > MOST_NODES:
        raise ObjectError(f"more than {MOST_NODES} nodes")
    raw: dict[str, msgspec.Raw] = {}
    for one in items:
        name = _decode(one, ClusterNode).metadata.name
        if not is_name(name):
            raise ObjectError(f"Nodes has {name[:60]!a}, which is no name of a node")
        raw[name] = one
    return FilterRequest(pod, list(raw), by_name=False, raw=raw)


_Items = list[msgspec.Raw] | None


def _are_names(names: list[str]) -> bool:
    """True if nothing but letters, digits, `-` and `.` is in names of a name's length; all are looked at together,
    since there are thousands in each call."""
    return not names or (
        "" not in names
        and len(max(names, key=len)) <= _LONGEST_NAME
        and _IN_NAMES.fullmatch("".join(names)) is not None
    )


def filter_answer(
    request: FilterRequest | None, fitting: list[str], failed: Mapping[str, str], final: Mapping[str, str], error: str
) -> bytes:
    """The answer in the form of the request. failed: preemption could help; final: it could not."""
    answer: dict[str, Any] = {
        "Nodes": None,
        "NodeNames": None,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": final,
        "Error": error,
    }
    if request is None or request.by_name:
        answer["NodeNames"] = fitting
    else:
        answer["Nodes"] = {"metadata": {}, "items": [request.raw[name] for name in fitting]}
    return msgspec.json.encode(answer)


def prioritize_answer(scores: Mapping[str, int]) -> bytes:
    """A bare array; 0 is worst and 10 best."""
    return msgspec.json.encode([{"Host": name, "Score": score} for name, score in scores.items()])


def read_bind(body: bytes) -> BindRequest:
    """Read the request of bind. Raises ObjectError."""
    fields = _fields(body)
    name, namespace, uid, node = (_read(fields, one, str) for one in ("podname", "podnamespace", "poduid", "node"))
    if not (is_name(name) and is_name(namespace) and is_uid(uid) and is_name(node)):
        raise ObjectError("PodName, PodNamespace, PodUID or Node is no such name")
    return BindRequest(name, namespace, uid, node)


def bind_answer(error: str) -> bytes:
    """The answer; an empty error for success."""
    return msgspec.json.encode({"Error": error})


def read_preempt(body: bytes) -> PreemptRequest:
    """Read the request of preempt, in the form with whole pods or with UIDs. Raises ObjectError."""
    fields = _fields(body)
    pod = _read_pod(fields)
    by_node = _read(fields, "nodenametometavictims", dict[str, Any] | None)
    is_meta = by_node is not None
    if by_node is None:
        by_node = _read(fields, "nodenametovictims", dict[str, Any] | None) or {}
    if len(by_node) > MOST_NODES:
        raise ObjectError(f"more than {MOST_NODES} nodes")
    return PreemptRequest(pod, {name: _read_victims(name, value, is_meta=is_meta) for name, value in by_node.items()})


def _read_victims(name: str, value: Any, *, is_meta: bool) -> tuple[list[str], int]:
    if value is not None and not isinstance(value, dict):
        raise ObjectError(f"the victims on {name[:60]!a} are no object")
    fields = {key.lower(): one for key, one in (value or {}).items()}
    pods, violations = fields.get("pods") or [], fields.get("numpdbviolations") or 0
    if not is_name(name) or not isinstance(pods, list) or len(pods) > MOST_VICTIMS:
        raise ObjectError(f"the victims on {name[:60]!a} are no list")
    if not isinstance(violations, int) or isinstance(violations, bool) or not 0 <= violations <= MOST_VICTIMS:
        raise ObjectError("NumPDBViolations is no number")
    uids = []
    for one in pods:
        about = one if is_meta else one.get("metadata") if isinstance(one, dict) else None
        uid = {key.lower(): text for key, text in about.items()}.get("uid") if isinstance(about, dict) else None
        if not isinstance(uid, str) or not is_uid(uid):
            raise ObjectError("a victim has no UID")
        uids.append(uid)
    return uids, violations


def preempt_answer(victims: Mapping[str, tuple[list[str], int]]) -> bytes:
    """The answer, always by UIDs."""
    return msgspec.json.encode(
        {
            "NodeNameToMetaVictims": {
                name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}
                for name, (uids, violations) in victims.items()
            }
        }
    )


def _read_pod(fields: Mapping[str, msgspec.Raw]) -> Pod:
    pod = _read(fields, "pod", Pod | None)
    if pod is None:
        raise ObjectError("the request has no Pod")
    return checked_pod(pod)


def _fields(body: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The fields of an object by their names in lower case. Raises ObjectError, also for one that comes twice."""
    found = _decode(body, dict[str, msgspec.Raw])
    lower = {name.lower(): value for name, value in found.items()}
    if len(lower) != len(found):
        raise ObjectError("a field comes twice, in other cases")
    return lower


def _read(fields: Mapping[str, msgspec.Raw], name: str, kind: Any) -> Any:
    value = fields.get(name)
    return _decode(b"null" if value is None else value, kind)


def _decode(text: bytes | msgspec.Raw, kind: Any) -> Any:
    try:
        return decode(bytes(text), kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ObjectError(f"the JSON cannot be read: {error}") from error
