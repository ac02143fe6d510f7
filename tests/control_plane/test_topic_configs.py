"""The control plane's table of topic configurations against the brokers'."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_plane.messaging.topic_configs import CONFIGS, Json, normalized
from control_plane.tenancy.errors import Invalid
from data_plane.broker.config.definition import InvalidValue
from data_plane.broker.config.topic_properties import KAFKA_TOPIC_PROPERTIES
from data_plane.cell.virtual_topics import HEADERS_PROPERTY
from features.headers import HEADERS_DEFINITION

# The tenant names no brokers, and what has no effect in a cell is not offered.
NOT_OFFERED = {"leader.replication.throttled.replicas"}
DEFINITIONS = {
    **KAFKA_TOPIC_PROPERTIES.definitions,
    HEADERS_PROPERTY: HEADERS_DEFINITION,
}


def test_what_is_offered_is_what_has_an_effect() -> None:
    served = {name for name, definition in DEFINITIONS.items() if not definition.moot}
    assert set(CONFIGS) == served - NOT_OFFERED


@given(
    st.sampled_from(sorted(CONFIGS)),
    st.one_of(
        st.integers(-(2**64), 2**64),
        st.integers(-3, 20),
        st.floats(allow_nan=True),
        st.booleans(),
        st.text(max_size=10),
        st.sampled_from(["compact", "delete,compact", "zstd", "CreateTime", "fsync", "TRUE"]),
    ),
)
def test_what_is_accepted_is_accepted_by_a_broker(name: str, value: Json) -> None:
    try:
        text = normalized({name: value})[name]
    except Invalid:
        return
    try:
        DEFINITIONS[name].parse(text)
    except InvalidValue as error:
        pytest.fail(f"{name}={value!r} becomes {text!r}: {error}")
    assert normalized({name: text}) == {name: text}


def test_a_refusal_names_the_key() -> None:
    for name in ("retention.ms", "no/such"):
        with pytest.raises(Invalid) as refusal:
            normalized({name: "x"})
        assert refusal.value.field == f"/spec/configs/{name.replace('/', '~1')}"


def test_defaults_of_brokers_are_accepted() -> None:
    for name in CONFIGS:
        default = DEFINITIONS[name].default
        if default is not None:
            assert name in normalized({name: default})
