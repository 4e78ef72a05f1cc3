"""Ranges to rows, over a socket, with what can go missing on the way."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable

import pyarrow as pa
import pytest

from stompbox.errors import FrameError, Refused, UsageError
from stompbox.spark.bodies import decoding_of
from stompbox.spark.bounds import parse_bound, parse_time, parse_times
from stompbox.spark.link import Request, SparkLink, leased
from stompbox.spark.offsets import Extent, OffsetRange
from stompbox.spark.options import Given, SourceOptions, source_options
from stompbox.spark.reading import View, batches, resolved
from tests.spark.fake_broker import ARRIVED, FakeBroker

BODIES = View(("address", "offset", "body"))


def options(fake: FakeBroker, **given: str) -> SourceOptions:
    return source_options(
        Given({"url": fake.url, "destination": "/topic/#", "reconnectTimeout": "5000", **given}),
        streaming=False,
    )


def read(
    fake: FakeBroker, *ranges: OffsetRange, fetch_bytes: int = 1 << 20, view: View = BODIES, **given: str
) -> list[tuple[object, ...]]:
    found = batches(dataclasses.replace(options(fake, **given), fetch_bytes=fetch_bytes), ranges, view)
    return [tuple(row.values()) for batch in found for row in batch.to_pylist()]


def fill(fake: FakeBroker, chunks: int = 5, each: int = 3) -> None:
    for chunk in range(chunks):
        fake.send("/topic/a", [b"%d" % (chunk * each + index) for index in range(each)])


@pytest.mark.parametrize("fetch_bytes", [1, 300, 1 << 20])
def test_in_as_many_answers_as_it_takes(fake: FakeBroker, fetch_bytes: int) -> None:
    fill(fake)
    fake.send("/topic/b", [b"x"])
    rows = read(fake, OffsetRange("a", 2, 13), OffsetRange("b", 0, 1), fetch_bytes=fetch_bytes)
    assert rows == [*(("a", offset, b"%d" % offset) for offset in range(2, 13)), ("b", 0, b"x")]


@pytest.mark.parametrize("fault", ["drop", "lose"])
def test_a_connection_that_breaks_in_the_middle(fake: FakeBroker, fault: str) -> None:
    fill(fake)
    fake.faults["fetch"] = ["", fault, "", fault]
    assert [row[1] for row in read(fake, OffsetRange("a", 0, 15), fetch_bytes=1)] == list(range(15))


def test_a_node_that_reads_answers_what_it_has_and_the_broker_the_rest(
    make_fake: Callable[..., FakeBroker],
) -> None:
    broker, node = make_fake(), make_fake()
    fill(broker)
    fill(node, chunks=3)
    wanted = [OffsetRange("a", 0, 6), OffsetRange("a", 6, 15)]
    rows = read(broker, *wanted, fetch_bytes=1, readUrl=node.url)
    assert rows == [("a", offset, b"%d" % offset) for offset in range(15)]
    assert node.fetched and len(broker.fetched) == 3, "only what the node has not"
    node.close()
    assert [row[1] for row in read(broker, *wanted, readUrl=node.url)] == list(range(15))


def test_what_a_node_that_reads_has_lost_is_for_the_broker_to_say(
    make_fake: Callable[..., FakeBroker],
) -> None:
    broker, node = make_fake(), make_fake()
    for one in (broker, node):
        fill(one)
    node.logs["a"].trim(6)
    assert [row[1] for row in read(broker, OffsetRange("a", 2, 9), readUrl=node.url)] == list(range(2, 9))
    broker.logs["a"].trim(6)
    with pytest.raises(Refused, match="offsets 2 to 5 of 'a' were deleted"):
        read(broker, OffsetRange("a", 2, 9), readUrl=node.url)


def test_gaps_are_legal(fake: FakeBroker) -> None:
    fill(fake, chunks=1)
    fake.logs["a"].next = 10
    fill(fake, chunks=1)
    assert [row[1] for row in read(fake, OffsetRange("a", 0, 13))] == [0, 1, 2, 10, 11, 12]


def test_messages_deleted_before_they_were_read(fake: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    fill(fake)
    fake.logs["a"].trim(6)
    with pytest.raises(
        Refused,
        match=r"offsets 2 to 5 of 'a' were deleted before they were read; the option failOnDataLoss=false",
    ) as caught:
        read(fake, OffsetRange("a", 2, 9))
    assert caught.value.code == "data-lost"
    with caplog.at_level(logging.WARNING):
        assert [row[1] for row in read(fake, OffsetRange("a", 2, 9), failOnDataLoss="false")] == [6, 7, 8]
    assert "skipped 4 offsets (failOnDataLoss=false)" in caplog.text


def test_a_chunk_may_hold_what_is_deleted(fake: FakeBroker) -> None:
    fill(fake, chunks=2, each=10)
    fake.logs["a"].first = 5  # the broker deletes whole chunks only
    assert [row[1] for row in read(fake, OffsetRange("a", 2, 12), failOnDataLoss="false")] == list(
        range(5, 12)
    )
    assert read(fake, OffsetRange("a", 2, 4), failOnDataLoss="false") == []


def test_a_log_that_became_shorter(fake: FakeBroker) -> None:
    fill(fake)
    with pytest.raises(Refused, match="ends at offset 15, before the 20 that was planned"):
        read(fake, OffsetRange("a", 0, 20))
    assert len(read(fake, OffsetRange("a", 0, 20), failOnDataLoss="false")) == 15


def test_a_log_that_is_gone(fake: FakeBroker) -> None:
    fake.send("/topic/b", [b"x"])
    with pytest.raises(Refused, match="address 'a' is gone from the broker"):
        read(fake, OffsetRange("a", 0, 3))
    assert read(fake, OffsetRange("a", 0, 3), OffsetRange("b", 0, 1), failOnDataLoss="false") == [
        ("b", 0, b"x")
    ]


def test_an_answer_that_does_not_go_on(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(fake)
    monkeypatch.setattr(fake, "_fetch", lambda headers, body: ({"next": headers["start"], "first": "0"}, b""))
    with pytest.raises(FrameError, match="does not go on"):
        read(fake, OffsetRange("a", 0, 3))


def test_an_answer_that_is_cut(fake: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        fake, "_fetch", lambda headers, body: ({"next": "3", "first": "0"}, b"\0" * 15 + b"\1")
    )
    with pytest.raises(FrameError, match=r"lacks .* bytes of its last chunk"):
        read(fake, OffsetRange("a", 0, 3))


def test_a_generator_that_is_left_does_not_spoil_the_next(fake: FakeBroker) -> None:
    fill(fake)
    rows = batches(dataclasses.replace(options(fake), fetch_bytes=1), [OffsetRange("a", 0, 15)], BODIES)
    next(rows)
    rows.close()  # type: ignore[attr-defined]
    assert len(read(fake, OffsetRange("a", 0, 15))) == 15


def test_columns_of_the_body_and_a_selector(fake: FakeBroker) -> None:
    fake.send("/topic/a", [b'{"n": 1}', b'{"n": 2}', b"?"], carrier=[b"UA", b"DL", b"DL"])
    decoding = decoding_of("json", pa.schema([("n", pa.int32())]))
    view = View(("n", "offset"), "carrier = 'DL'", decoding)
    assert read(fake, OffsetRange("a", 0, 3), view=view) == [(2, 1), (None, 2)]


BAD = [b'{"n": 1}', b'{"n": "x"}', b'{"n":', b"", b'{"n": 5}']


def decoded(mode: str, *more: pa.Field) -> View:
    fields = pa.schema([("n", pa.int32()), *more])
    return View((*fields.names, "offset"), "", decoding_of("json", fields, mode=mode))


def test_malformed_bodies_stay_with_their_text_and_are_counted(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    fake.send("/topic/a", BAD)
    view = decoded("PERMISSIVE", pa.field("_corrupt_record", pa.string()))
    rows = [(1, None, 0), (None, '{"n": "x"}', 1), (None, '{"n":', 2), (None, None, 3), (5, None, 4)]
    assert read(fake, OffsetRange("a", 0, 5), view=view) == rows
    assert "2 of 5 bodies are malformed (json)" in caplog.text
    assert "the first at offset 1 of 'a': 'x' is no integer" in caplog.text


def test_malformed_bodies_are_dropped(fake: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    fake.send("/topic/a", BAD)
    assert read(fake, OffsetRange("a", 0, 5), view=decoded("DROPMALFORMED")) == [(1, 0), (None, 3), (5, 4)]
    assert "2 of 5 bodies are malformed (json), dropped" in caplog.text


def test_a_malformed_body_ends_the_read(fake: FakeBroker, caplog: pytest.LogCaptureFixture) -> None:
    fake.send("/topic/a", BAD)
    with pytest.raises(FrameError, match=r"'mode' is FAILFAST.* at offset 1 of 'a': 'x' is no integer"):
        read(fake, OffsetRange("a", 0, 5), view=decoded("FAILFAST"))
    assert "malformed" not in caplog.text, "it is said once, and nothing became NULL"


def test_a_broker_that_does_not_know_selectors(fake: FakeBroker) -> None:
    fake.send("/topic/a", [b"1", b"2", b"3"], carrier=[b"UA", b"DL", b"DL"])
    for selector, pushed in (("carrier = 'DL'", "carrier = 'DL'"), ("carrier = 'DL' AND AMQSize > 0", None)):
        assert read(fake, OffsetRange("a", 0, 3), view=View(("offset",), selector)) == [(1,), (2,)]
        assert fake.named("fetch")[-1].headers.get("selector") == pushed


BOUNDS = [
    ("startingOffsets", "earliest", {"a": 2, "b": 0}),
    ("startingOffsets", "latest", {"a": 9, "b": 4}),
    ("startingOffsets", "3", {"a": 3, "b": 3}),
    ("startingOffsets", '{"a": 5}', {"a": 5, "b": 0}),
    ("endingOffsets", '{"a": 5}', {"a": 5, "b": 4}),
]


@pytest.mark.parametrize(("option", "text", "offsets"), BOUNDS)
def test_bounds(fake: FakeBroker, option: str, text: str, offsets: dict[str, int]) -> None:
    with leased(options(fake).target) as link:
        found = resolved(parse_bound(option, text), {"a": Extent(2, 9), "b": Extent(0, 4)}, link, strict=True)
    assert found == offsets


def test_bounds_by_time(fake: FakeBroker) -> None:
    for second in range(3):
        fake.send("/topic/a", [b"x", b"y"], arrived=ARRIVED + 1000 * second)
    bound = parse_bound("startingOffsets", "2023-11-14T22:13:20.500Z")
    with leased(options(fake).target) as link:
        assert resolved(bound, {"a": Extent(0, 6)}, link, strict=True) == {"a": 2}


def test_bounds_by_time_and_address(fake: FakeBroker) -> None:
    for address in ("a", "b", "c"):
        for second in range(3):
            fake.send(f"/topic/{address}", [b"x", b"y"], arrived=ARRIVED + 1000 * second)
    extents = {address: Extent(0, 6) for address in ("a", "b", "c")}
    text = json.dumps({"a": ARRIVED + 1, "b": "2023-11-14T22:13:22.000Z"})
    with leased(options(fake).target) as link:
        starting = parse_times("startingOffsetsByTimestamp", text, must_match=True)
        assert resolved(starting, extents, link, strict=True) == {"a": 2, "b": 4, "c": 0}
        ending = parse_times("endingOffsetsByTimestamp", text, must_match=False)
        assert resolved(ending, extents, link, strict=True) == {"a": 2, "b": 4, "c": 6}
        with pytest.raises(
            UsageError, match="'startingOffsetsByTimestamp' names 'z'; the addresses to read are a, b, c"
        ):
            resolved(
                parse_times("startingOffsetsByTimestamp", '{"z": 1}', must_match=True),
                extents,
                link,
                strict=True,
            )


def test_a_time_after_which_there_is_no_message(fake: FakeBroker) -> None:
    fake.send("/topic/a", [b"x", b"y"])
    with leased(options(fake).target) as link:
        for option, bound in (("startingTimestamp", parse_time), ("startingOffsetsByTimestamp", parse_times)):
            text = json.dumps({"a": ARRIVED + 1}) if bound is parse_times else str(ARRIVED + 1)
            words = f"'{option}': no message of 'a' arrived at or after 2023-11-14T22:13:20.001Z; the option .*Strategy=latest"
            with pytest.raises(Refused, match=words) as caught:
                resolved(bound(option, text, must_match=True), {"a": Extent(0, 2)}, link, strict=True)
            assert caught.value.code == "no-message-since"
            assert resolved(
                bound(option, text, must_match=False), {"a": Extent(0, 2)}, link, strict=True
            ) == {"a": 2}
            assert resolved(
                bound(option, text, must_match=True), {"a": Extent(0, 2)}, link, strict=True, known={"a": 1}
            ) == {"a": 1}
        fake.send("/topic/a", [b"z"], arrived=ARRIVED + 5)  # after the look at the logs
        assert resolved(bound(option, text, must_match=True), {"a": Extent(0, 2)}, link, strict=True) == {
            "a": 2
        }


def test_bounds_outside_the_log(fake: FakeBroker) -> None:
    extents = {"a": Extent(2, 9)}
    with leased(options(fake).target) as link:
        for text in ("1", "10"):
            bound = parse_bound("startingOffsets", text)
            with pytest.raises(
                Refused,
                match=rf"'startingOffsets': offset {text} is outside the log of 'a', which holds 2 to 9",
            ):
                resolved(bound, extents, link, strict=True)
        assert resolved(parse_bound("x", "1"), extents, link, strict=False) == {"a": 2}
        with pytest.raises(UsageError, match=r"'startingOffsets' names 'z'; the addresses to read are a"):
            resolved(parse_bound("startingOffsets", '{"z": 1}'), extents, link, strict=True)


def test_the_next_range_is_asked_for_before_one_is_given_out(
    fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address in "abc":
        fake.send(f"/topic/{address}", [b"x"])
    told = []
    begin = SparkLink.begin

    def asked(link: SparkLink, request: Request) -> None:
        told.append(f"asked {request.headers['address']}")
        begin(link, request)

    monkeypatch.setattr(SparkLink, "begin", asked)
    for batch in batches(options(fake), [OffsetRange(address, 0, 1) for address in "abc"], BODIES):
        told.append(f"given {batch.column('address')[0]}")
    assert told == ["asked a", "asked b", "given a", "asked c", "given b", "given c"]
