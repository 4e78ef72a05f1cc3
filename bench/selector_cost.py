"""What one evaluation of a selector costs: `python bench/selector_cost.py`.

Prints nanoseconds per evaluation, the best of several rounds, for five selectors on the headers of one message, and what compiling costs.
"""

from __future__ import annotations

import timeit
from functools import partial

from stompbox.selectors import Selector, SelectorLimits, compile_selector

HEADERS = {
    "destination": "/topic/flights",
    "content-type": "application/json",
    "carrier": "UA",
    "origin": "EWR",
    "dest": "IAH",
    "dep_delay": "75",
    "arr_delay": "NA",
    "distance": "1400.5",
}
FACTS = {"priority": 4, "timestamp": 1_700_000_000_000, "durable": True}
BODY = b"<flight carrier='UA'><origin>EWR</origin><dest>IAH</dest><delay>75</delay></flight>"

SELECTORS = (
    "dep_delay > 60",
    "carrier = 'UA'",
    "carrier IN ('UA', 'AA', 'DL') AND dep_delay > 60 AND NOT (origin = 'JFK')",
    "dest LIKE 'I%' AND JMSPriority >= 4 AND distance BETWEEN 500 AND 2000.5",
    "arr_delay > 60 OR XPATH '//delay > 60'",
)
ROUNDS, CALLS = 15, 20_000


def nanoseconds(selector: Selector, calls: int) -> float:
    def evaluate() -> bool:
        return selector.matches(HEADERS, FACTS, lambda: BODY)

    timer = timeit.Timer(
        "matches(headers, facts)", globals={"matches": selector.matches, "headers": HEADERS, "facts": FACTS}
    )
    if selector.needs_body:
        timer = timeit.Timer(evaluate)
    return min(timer.repeat(ROUNDS, calls)) / calls * 1e9


def compiling(text: str) -> float:
    """Microseconds; each round with limits of its own, so that no cache answers."""
    rounds = [
        timeit.timeit(partial(compile_selector, text, limits=SelectorLimits(length=20_000 + at)), number=1)
        for at in range(20)
    ]
    return min(rounds) * 1e6


def main() -> None:
    print(f"{'ns/evaluation':>14} {'us/compile':>11}  selector")
    for text in SELECTORS:
        selector = compile_selector(text)
        calls = CALLS // 20 if selector.needs_body else CALLS
        print(f"{nanoseconds(selector, calls):14.0f} {compiling(text):11.0f}  {text}")


if __name__ == "__main__":
    main()
