"""Options of ActiveMQ Classic's connectors, and its prefetch of all queues, as options of a listener."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stompbox.config.options import DEFAULTS
from stompbox.conversion.elements import Element
from stompbox.numerals import ANY, whole

_OPTIONS: Final = {
    "maximumConnections": "maxConnections",
    "wireFormat.maxDataLength": "maxBodySize",
    "wireFormat.maxFrameSize": "maxBodySize",
    "transport.maxDataLength": "maxBodySize",
    "transport.maxFrameSize": "maxBodySize",
    "transport.connectAttemptTimeout": "handshakeTimeout",
    "transport.hbGracePeriodMultiplier": "heartBeatToConnectionTtlModifier",
    "needClientAuth": "needClientAuth",
    "transport.needClientAuth": "needClientAuth",
}


def options_of(told: Mapping[str, str]) -> dict[str, str]:
    """The options that a connector has here; of two limits of a size the smaller one counts."""
    options: dict[str, str] = {}
    for name, value in told.items():
        made, number = _OPTIONS.get(name, name), whole(value, ANY)
        before = whole(options.get(made, ""), ANY)
        if number is None or before is None or number < before:
            options[made] = value
    _frame_size(told, options)
    _default_heart_beat(told, options)
    return options


def _frame_size(told: Mapping[str, str], options: dict[str, str]) -> None:
    """The largest frame there is one with all its headers: a smaller one than heads may have is a limit of theirs, too."""
    for name in ("wireFormat.maxFrameSize", "transport.maxFrameSize"):
        number = whole(told.get(name, ""), ANY)
        if number is not None and 0 < number < DEFAULTS.max_header_size:
            options["maxHeaderSize"] = str(number)


def _default_heart_beat(told: Mapping[str, str], options: dict[str, str]) -> None:
    """What clients are held to that say nothing of heart-beats: how long they may be silent."""
    name = "transport.defaultHeartBeat"
    least = whole(told.get(name, "").partition(",")[0].strip(), ANY)
    if least is None:
        return
    del options[name]
    if least > 0:
        grace = told.get("transport.hbGracePeriodMultiplier", "1")
        is_number = whole(grace.replace(".", "", 1), ANY) is not None
        options["connectionTtl"] = str(int(least * float(grace)) if is_number else least)


def prefetch_of(broker: Element) -> str | None:
    """What a policy for all queues says of it: the window of each listener."""
    for tag in ("policyEntries", "defaultEntry"):
        for entry in broker.below("destinationPolicy", "policyMap", tag, "policyEntry"):
            if is_for_all_queues(entry):
                return entry.attributes["queuePrefetch"]
    return None


def is_for_all_queues(entry: Element) -> bool:
    """Whether a policy gives all queues one prefetch."""
    told = entry.attributes
    is_for_all = "topic" not in told and told.get("queue", ">") in (">", "**")
    return is_for_all and (whole(told.get("queuePrefetch", ""), ANY) or 0) > 0
