"""Address settings: inheritance against a slow obvious model, defaults, caching, and that all keys are there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.config.fields import fields_of
from stompbox.config.matching import DOTS, is_match, specificity
from stompbox.config.settings import (
    CACHED_ADDRESSES,
    AddressFullPolicy,
    AddressSetting,
    AddressSettings,
    AddressSettingsTable,
    RoutingType,
    SlowConsumerUnit,
)
from stompbox.config.settings import given as keys_given

# Keys of the Artemis manual's address settings (and of paging, dead letters, expiry, groups) that Stompbox takes, with its defaults
# where Stompbox does not choose another one.
ARTEMIS_DEFAULTS: dict[str, Any] = {
    "auto-create-dead-letter-resources": False,
    "dead-letter-queue-prefix": "DLQ.",
    "dead-letter-queue-suffix": "",
    "expiry-address": None,
    "auto-create-expiry-resources": False,
    "expiry-queue-prefix": "EXP.",
    "expiry-queue-suffix": "",
    "expiry-delay": -1,
    "min-expiry-delay": -1,
    "max-expiry-delay": -1,
    "no-expiry": False,
    "redelivery-delay": 0,
    "redelivery-delay-multiplier": 1.0,
    "redelivery-collision-avoidance-factor": 0.0,
    "max-delivery-attempts": 10,
    "max-size-bytes": -1,
    "max-size-messages": -1,
    "page-size-bytes": 10 * 1024 * 1024,
    "max-read-page-messages": -1,
    "prefetch-page-messages": -1,
    "address-full-policy": AddressFullPolicy.PAGE,
    "default-last-value-queue": False,
    "default-last-value-key": None,
    "default-non-destructive": False,
    "default-exclusive-queue": False,
    "default-consumers-before-dispatch": 0,
    "default-delay-before-dispatch": -1,
    "default-purge-on-no-consumers": False,
    "default-max-consumers": -1,
    "default-ring-size": -1,
    "default-group-rebalance": False,
    "default-group-rebalance-pause-dispatch": False,
    "default-group-buckets": -1,
    "default-group-first-key": None,
    "send-to-dla-on-no-route": False,
    "slow-consumer-threshold": -1,
    "slow-consumer-threshold-measurement-unit": SlowConsumerUnit.MESSAGES_PER_SECOND,
    "slow-consumer-check-period": 5,
    "auto-create-queues": True,
    "auto-create-addresses": True,
    "auto-delete-queues": True,
    "auto-delete-created-queues": False,
    "auto-delete-queues-delay": 0,
    "auto-delete-queues-message-count": 0,
    "auto-delete-queues-skip-usage-check": False,
    "auto-delete-addresses": True,
    "auto-delete-addresses-delay": 0,
    "auto-delete-addresses-skip-usage-check": False,
    "management-browse-page-size": 200,
    "retroactive-message-count": 0,
    "enable-metrics": True,
    "enable-ingress-timestamp": False,
    "id-cache-size": 20_000,
}
# What Stompbox adds or chooses itself.
OWN_DEFAULTS: dict[str, Any] = {
    "dead-letter-address": "DLQ",
    "default-address-routing-type": RoutingType.ANYCAST,
    "default-queue-routing-type": RoutingType.ANYCAST,
    "default-persistent": True,
    "retention-ms": -1,
    "retention-bytes": -1,
    "retention-messages": -1,
    "offline-durable-subscription-timeout": -1,
    "page-limit-bytes": -1,
    "page-limit-messages": -1,
    "max-read-page-bytes": -1,
    "prefetch-page-bytes": -1,
    "max-redelivery-delay": -1,
}


def setting(match: str, **keys: Any) -> AddressSetting:
    return msgspec.convert(
        {"match": match, **{name.replace("_", "-"): value for name, value in keys.items()}}, AddressSetting
    )


@pytest.mark.parametrize(("key", "default"), [*ARTEMIS_DEFAULTS.items(), *OWN_DEFAULTS.items()])
def test_a_key_is_there_with_its_default_and_says_where_it_is_from(key: str, default: Any) -> None:
    described = fields_of(AddressSettings)[key]
    assert described.default == default and type(described.default) is type(default)
    assert described.source


def test_a_setting_has_exactly_the_keys_of_the_settings() -> None:
    described, partial = fields_of(AddressSettings), dict(fields_of(AddressSetting))
    partial.pop("match")
    assert {name: (field.plain, field.optional) for name, field in partial.items()} == {
        name: (field.plain, field.optional) for name, field in described.items()
    }


def test_what_is_not_set_stays_unset() -> None:
    assert keys_given(setting("a")) == {}
    assert keys_given(setting("a", max_delivery_attempts=10)) == {"max_delivery_attempts": 10}
    assert repr(setting("a", no_expiry=True)) == "AddressSetting(match='a', no_expiry=True)"


def test_the_most_specific_wins_and_the_rest_is_inherited() -> None:
    table = AddressSettingsTable(
        [
            setting("orders.#", max_delivery_attempts=3, redelivery_delay=200, dead_letter_address="DLQ"),
            setting("#", max_delivery_attempts=7, no_expiry=True),
            setting("orders.new", redelivery_delay=0, dead_letter_address=None),
        ]
    )
    resolved = table.resolve("orders.new")
    assert (resolved.max_delivery_attempts, resolved.redelivery_delay, resolved.no_expiry) == (3, 0, True)
    assert resolved.dead_letter_address is None  # explicitly none, although a less specific one names it
    assert table.resolve("orders.old").redelivery_delay == 200
    assert table.resolve("other").max_delivery_attempts == 7


keys = st.fixed_dictionaries(
    {},
    optional={
        "max-delivery-attempts": st.integers(-1, 5),
        "redelivery-delay": st.integers(0, 5),
        "auto-create-queues": st.booleans(),
        "expiry-address": st.none() | st.sampled_from(["x", "y"]),
    },
)
patterns = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=4).map(".".join)


@given(
    st.dictionaries(patterns, keys, max_size=6),
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4).map(".".join),
)
def test_resolving_is_laying_one_table_over_the_other(
    tables: dict[str, dict[str, Any]], address: str
) -> None:
    expected = {field.spelled: field.default for field in fields_of(AddressSettings).values()}
    order = {match: place for place, match in enumerate(tables)}
    for match in sorted(tables, key=lambda match: (specificity(DOTS.words(match)), order[match])):
        if is_match(DOTS.words(match), address.split(".")):
            expected |= tables[match]
    table = AddressSettingsTable(
        msgspec.convert({"match": match, **keys}, AddressSetting) for match, keys in tables.items()
    )
    resolved = table.resolve(address)
    assert {
        field.spelled: getattr(resolved, field.name) for field in fields_of(AddressSettings).values()
    } == expected
    assert table.resolve(address) is resolved


def test_equal_settings_are_one_object() -> None:
    table = AddressSettingsTable([setting("a.#", redelivery_delay=1)])
    assert table.resolve("a.b") is table.resolve("a.c")
    assert table.resolve("x") is table.resolve("y")
    assert table.resolve("a.b") != table.resolve("x")


def test_the_answers_kept_are_bounded() -> None:
    table = AddressSettingsTable([setting("a.#", redelivery_delay=1)])
    first = table.resolve("a.0")
    for number in range(CACHED_ADDRESSES + 10):
        table.resolve(f"a.{number}")
    assert repr(table) == f"<AddressSettingsTable of 1, {CACHED_ADDRESSES} addresses known>"
    assert table.resolve("a.0") is first


def test_defaults_can_come_from_elsewhere() -> None:
    table = AddressSettingsTable([setting("a", redelivery_delay=1)], AddressSettings(id_cache_size=5))
    assert (table.resolve("a").id_cache_size, table.resolve("b").id_cache_size) == (5, 5)


def test_a_key_for_last_values_makes_a_last_value_queue() -> None:
    assert AddressSettings(default_last_value_key="id").is_last_value
    assert AddressSettings(default_last_value_queue=True).is_last_value
    assert not AddressSettings().is_last_value
