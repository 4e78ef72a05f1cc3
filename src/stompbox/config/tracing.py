"""The table [tracing] of the configuration file: whether the broker makes spans of OpenTelemetry, how many, and where they go.

Decides its keys and what is refused in them. What the spans are is server/tracing.py; what is not said here, the environment of
OpenTelemetry says (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES` …).
"""

from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

from stompbox.config.fields import key, shown
from stompbox.config.tables import Table
from stompbox.errors import redacted

if TYPE_CHECKING:
    from stompbox.config.origins import Loaded


class TracingTable(Table, frozen=True):
    enabled: Annotated[
        bool, key("true: spans for messages that bring a sampled `traceparent`; needs the extra `otel`.")
    ] = False
    endpoint: Annotated[
        str | None,
        key(
            "Where spans are posted, OTLP over HTTP: `http://host:4318/v1/traces`; unset: what `OTEL_EXPORTER_OTLP_ENDPOINT` says, else "
            "port 4318 of this machine.",
            kind="log",
        ),
    ] = None
    service_name: Annotated[
        str | None, key("`service.name` of the spans; unset: what `OTEL_SERVICE_NAME` says, else `stompbox`.")
    ] = None
    max_spans_per_second: Annotated[
        int,
        key(
            "Spans that are made in a second; messages beyond it have none. -1: no limit.",
            "spans",
            at_least=-1,
        ),
    ] = 2000

    def __repr__(self) -> str:
        return f"TracingTable(enabled={self.enabled!r}, endpoint={redacted(self.endpoint or 'none')!r})"


def check_tracing(loaded: "Loaded") -> None:
    """Refuses an endpoint that spans cannot be posted to. Raises ConfigError."""
    endpoint = loaded.configuration.tracing.endpoint
    if endpoint is not None and not _is_postable(endpoint):
        problem = f"expected http://host:port/path or https://host:port/path, not {shown(redacted(endpoint))}"
        loaded.refuse(("tracing", "endpoint"), problem)


def _is_postable(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is no number, or brackets have no end
        return False
