"""The short drill: five kills. `make soak` is the long one."""

from __future__ import annotations

from pathlib import Path

from tests.crash.drill import Drill, faults

KILLS = 5
SEED = 5


def test_what_was_promised_is_kept_through_kills(tmp_path: Path) -> None:
    drill = Drill(tmp_path, SEED)
    audit = drill.run(KILLS)
    assert faults(drill, audit) == []
    # That there was something to lose: brokers, confirmations, transactions, redeliveries
    assert audit.latest > KILLS
    assert sum(unit.confirmed > 0 for unit in audit.units.values()) > 500
    assert sum(len(unit.sends) > 1 and unit.confirmed > 0 for unit in audit.units.values()) > 20
    assert any(got.redelivered for deliveries in audit.got.values() for got in deliveries)


def test_what_was_promised_is_kept_when_fronts_are_killed(tmp_path: Path) -> None:
    drill = Drill(tmp_path, SEED, fronts=2)
    audit = drill.run(KILLS)
    assert faults(drill, audit) == []
    assert drill.fronts_killed > 1
    assert sum(unit.confirmed > 0 for unit in audit.units.values()) > 300
