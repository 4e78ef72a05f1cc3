"""The examples that the chapters of other brokers print: taken as they are, or refused with what to write instead."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from stompbox.config import load, parse_listener
from stompbox.errors import ConfigError

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
FROM_ARTEMIS = PAGE.partition("## From a broker.xml")[2].partition("\n## ")[0]

ACCEPTORS = [
    "tcp://localhost:61613?protocols=STOMP",
    "tcp://127.0.0.1:61613?protocols=STOMP;connectionTtl=20000",
    "tcp://127.0.0.1:61613?protocols=STOMP;heartBeatToConnectionTtlModifier=6",
    "tcp://127.0.0.1:61613?protocols=STOMP&connectionTtlMin=1000&connectionTtlMax=30000",
    "tcp://localhost:61613?protocols=STOMP;stompEnableMessageId=true",
    "tcp://localhost:61613?protocols=STOMP;stompMinLargeMessageSize=10240",
    "tcp://localhost:61613?protocols=STOMP;stompMaxFramePayloadLength=65536",
    "tcp://localhost:61613?protocols=STOMP;stompConsumerCredits=10240",
    "tcp://0.0.0.0:61613?protocols=STOMP;anycastPrefix=jms.queue.;multicastPrefix=jms.topic.",
    "tcp://0.0.0.0:7672?dialect=openmq",
]
REFUSED = [
    ("tcp://0.0.0.0:61616?protocols=CORE,AMQP,STOMP,HORNETQ,MQTT,OPENWIRE", "write protocols=STOMP"),
    ("tcp://localhost:61613?protocols=STOMP;sslEnabled=true", "write ssl:// instead of tcp://"),
    ("tcp://localhost:61613?protocols=STOMP;useEpoll=true", "leave it out"),
]
FILES = [
    (
        '<?xml version="1.0"?>\n<configuration><core><acceptors/></core></configuration>\n',
        "From a broker.xml",
    ),
    (
        '<acceptor name="stomp-acceptor">tcp://localhost:61613?protocols=STOMP</acceptor>\n',
        "From a broker.xml",
    ),
    ("imq.bridge.enabled=true\nimq.bridge.activelist=stomp\n", "From OpenMQ's properties"),
    (
        "# comment\nimq.bridge.stomp.tcp.port=7672\nimq.bridge.stomp.hostname=0.0.0.0\n",
        "From OpenMQ's properties",
    ),
    (
        '[[address-setting]]\nmatch = "queue/#"\n',
        "write 'queue.#', or set delimiter = \"/\" in [wildcard-addresses]",
    ),
]


@pytest.mark.parametrize("url", ACCEPTORS)
def test_an_acceptor_is_taken_as_it_is_printed(url: str) -> None:
    assert parse_listener(url).scheme == "tcp"


@pytest.mark.parametrize(("url", "instead"), REFUSED)
def test_one_that_cannot_be_is_refused_with_what_to_write(url: str, instead: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(instead)):
        parse_listener(url)


@pytest.mark.parametrize(("text", "instead"), FILES)
def test_a_file_of_another_broker_is_refused_with_where_to_look(
    tmp_path: Path, text: str, instead: str
) -> None:
    file = tmp_path / "broker.xml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(instead)):
        load(file, {}, {})
    heading = instead if instead.startswith("From") else "From a broker.xml"
    assert f"\n## {heading}\n" in PAGE


def test_what_the_page_says_beside_the_broker_xml_is_good(tmp_path: Path) -> None:
    """Each row by itself: the tables and keys in its second column."""
    taken = 0
    for row in [line for line in FROM_ARTEMIS.splitlines() if line.startswith("| `<")]:
        quoted = re.findall(r"`([^`]+)`", row.split(" | ")[1])
        text = "\n".join(part for part in quoted if part.startswith("[") or " = " in part)
        if " = " not in text or "not here" in row:
            continue
        file = tmp_path / "row.toml"
        file.write_text(text.replace("0.0.0.0", "127.0.0.1") + "\n")
        load(file, {}, {})
        taken += 1
    assert taken >= 7


def test_the_example_has_the_second_default_port() -> None:
    example = tomllib.loads(PAGE.partition("## Example")[2].partition("```toml\n")[2].partition("```")[0])
    assert "tcp://0.0.0.0:61616" in [listener["url"] for listener in example["listener"]]
