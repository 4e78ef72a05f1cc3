"""What pipelines have told of themselves, with what the broker knows better: whether they are there, and how far they are behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from stompbox.admin.lag import behind
from stompbox.admin.listing import Field
from stompbox.server.requests.progress import Told
from stompbox.server.requests.replies import in_turns

if TYPE_CHECKING:
    from stompbox.server.broker import Broker


class PipelineView(Struct, frozen=True):
    """A step of a pipeline. `told`: when it last said something; `lag_messages`: of its reader groups, as they are now, else as it said."""

    pipeline: str
    step: str
    kind: str
    state: str
    reason: str
    user: str
    groups: tuple[str, ...]
    rows: int
    of: int
    rate: float
    lag_messages: int | None
    batch: int | None
    batch_at: int | None
    batch_seconds: float
    told: int


def told_of(broker: Broker) -> list[Told]:
    """What every step of a pipeline has told of itself last."""
    if broker.progress is None:
        return []
    broker.progress.forget(broker.now())
    return list(broker.progress.told.values())


async def views_of(broker: Broker, user: str | None) -> list[PipelineView]:
    """What one user's pipelines have told, by pipeline and step; None: all users'."""
    found = [told for told in told_of(broker) if user in (None, told.user)]
    sessions = broker.sessions()
    lags = await _lags(broker) if any(told.groups for told in found) else Counter()
    return sorted([_view(broker, told, told.state(sessions), lags) for told in found], key=key_of)


def key_of(view: PipelineView) -> str:
    return f"{view.pipeline}/{view.step}/{view.user}"


async def _lags(broker: Broker) -> Counter[str]:
    """Messages that each reader group has not read, over all addresses."""
    found: Counter[str] = Counter()
    async for address in in_turns(broker.turns, list(broker.engine.addresses.values())):
        async for name, queue in in_turns(broker.turns, list(address.groups.items())):
            found[name] += behind(queue)
    return found


def _view(broker: Broker, told: Told, state: str, lags: Counter[str]) -> PipelineView:
    step, known = told.step, broker.engine.group_patterns
    is_known = bool(told.groups) and all(group in known for group in told.groups)
    return PipelineView(
        told.pipeline, step.step, step.kind, state, step.reason, told.user, told.groups, step.rows, step.of, step.rate,
        sum([lags[group] for group in told.groups]) if is_known else step.lag,
        step.batch, told.batch_at, step.batch_seconds, told.at,
    )  # fmt: skip


BY_PIPELINE: Final[Mapping[str, Field]] = MappingProxyType(
    {
        "pipeline": lambda one: one.pipeline, "step": lambda one: one.step, "state": lambda one: one.state, "rows": lambda one: one.rows,
        "rate": lambda one: one.rate, "lag_messages": lambda one: one.lag_messages or 0, "told": lambda one: one.told,
    }
)  # fmt: skip
