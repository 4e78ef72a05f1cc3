"""Where a broker is, or the nodes of one: what `url` and `readUrl` say."""

from __future__ import annotations

import pytest

from stompbox.errors import UsageError
from stompbox.spark.options import Given, SourceOptions, sink_options, source_options
from stompbox.spark.targets import parse_place


def source(**given: str) -> SourceOptions:
    return source_options(Given({"url": "stomp://a", "destination": "/queue/q", **given}), streaming=False)


def test_a_url_may_name_all_nodes_of_a_cluster() -> None:
    found = source(url="stomp://u:p%40w@a,b:7,[::1]", readUrl="stomp://reader@c:8,d").target
    assert found.nodes == (("a", 61613), ("b", 7), ("::1", 61613))
    assert (found.login, found.passcode, found.virtual_host) == ("u", "p@w", "a")
    assert str(found) == "stomp://a:61613,b:7,[::1]:61613"
    reading = source(url="stomp://u:p@a,b", readUrl="stomp://c:8,d").read_target
    assert reading is not None and reading.is_spread and reading.nodes == (("c", 8), ("d", 61613))
    assert (reading.login, reading.passcode, reading.virtual_host) == ("u", "p", "a")
    assert source().read_target is None


def test_what_is_written_is_written_to_the_leader() -> None:
    with pytest.raises(UsageError, match="option 'readUrl' is for reading, not for writing"):
        sink_options(Given({"url": "stomp://a,b", "readUrl": "stomp://a"}), streaming=False)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("a:61613", "option 'url' is 'a:61613'; allowed are stomp://host:port"),
        ("stomp://a,b/c,d:x@e", "option 'url' is"),
        ("stomp://u:secret@a,b:x", r"option 'url' is not a URL: 'stomp://\*\*\*@a,b:x'"),
        ("stomp://b:2,a,b:2", "option 'url' names b:2 twice"),
    ],
)
def test_what_is_no_url_is_refused_without_its_passcode(url: str, text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        parse_place("url", url)
    assert "secret" not in caught.value.message and caught.value.code == "bad-option"
