"""The short drill with all features: some kills in SECONDS. `make soak` has the long one."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.crash.drill import faults
from tests.crash.features import DEAD, EXPIRED
from tests.crash.mixture import Mixture

SECONDS = 15.0
SEED = 7


def test_what_was_promised_is_kept_through_kills_with_all_features(tmp_path: Path) -> None:
    drill = Mixture(tmp_path, SEED)
    audit = drill.run(sys.maxsize, SECONDS)
    assert faults(drill, audit) == []
    # That there was something to lose, of each kind
    assert audit.latest > 2
    assert sum(unit.confirmed > 0 for unit in audit.units.values()) > 200
    places = {source.partition("|")[0] for source, _ in audit.got}
    assert {"all.copies", "all.taken", "all.ring", "all.last", "all.kept", "all.filtered"} <= places
    assert places & {DEAD, EXPIRED}  # which of them in so short a time is chance
    assert any(got.redelivered for deliveries in audit.got.values() for got in deliveries)
