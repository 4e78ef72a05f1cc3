"""Calls for a message: what is counted, and what is told of it."""

from __future__ import annotations

import cProfile
from pathlib import Path

import pytest

from bench import calls
from bench.brokers import BenchError, Stompbox
from bench.calls import LEAST, LIMIT, TOLD, change_of, counted, main, most_changed, of_profile, table
from bench.rows import ROWS

WAITING = next(row for row in ROWS if row.key == "waiting-16")
SOUND = {
    "sent": 10,
    "expected": 10,
    "received": 10,
    "duplicates": 0,
    "disorder": 0,
    "damaged": 0,
    "failed": 0,
}


def written(folder: Path, times: int) -> Path:
    """A profile of so many calls of a function of a file below the folder, and as many of one of Python's own."""
    source = folder / "src" / "stompbox" / "sums.py"
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text("def size(texts):\n    return len(texts)\n")
    names: dict[str, object] = {}
    exec(compile(source.read_text(), str(source), "exec"), names)
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(times):
        names["size"]("text")  # type: ignore[operator]
    profile.disable()
    profile.dump_stats(folder / "profile")
    return folder / "profile"


def test_functions_are_named_by_their_place_below_the_sources(tmp_path: Path) -> None:
    found = of_profile(written(tmp_path, 7), tmp_path / "src")
    assert found["stompbox/sums.py", "size"] == 7
    assert found["~", "<built-in method builtins.len>"] == 7


def test_what_a_broker_calls_that_has_nothing_to_do_is_taken_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loads: list[object] = []
    monkeypatch.setattr(Stompbox, "start", lambda self: written(tmp_path, 5 if not loads else 25))
    monkeypatch.setattr(Stompbox, "stop", lambda self: (tmp_path / "profile").rename(self.program[2]))
    monkeypatch.setattr(calls, "run_row", lambda _, __, row, *___, **____: SOUND)
    monkeypatch.setattr(calls, "say", loads.append)
    idle, _ = calls.profiled(Path("load"), tmp_path / "src", None, 1.0)
    assert idle["stompbox/sums.py", "size"] == 5
    loads.append("now it has one")
    monkeypatch.setattr(
        calls,
        "profiled",
        lambda load, source, row, scale, of=calls.profiled: (
            (idle.copy(), 1) if row is None else of(load, source, row, scale)
        ),
    )
    found = counted(Path("load"), tmp_path / "src", [WAITING], 1.0)
    assert found["waiting-16"]["stompbox/sums.py", "size"] == 2.0


def test_what_has_changed_most_comes_first_and_a_row_beyond_the_limit_is_named() -> None:
    before = {("a.py", "one"): 90.0, ("a.py", "two"): 10.0, ("a.py", "gone"): LEAST / 2}
    after = {("a.py", "one"): 91.0, ("a.py", "two"): 5.0, ("a.py", "new"): 10.0}
    assert most_changed(before, after) == [("a.py", "new"), ("a.py", "two"), ("a.py", "one")]
    assert change_of(before, after) > LIMIT
    told = table([WAITING], {"waiting-16": before}, {"waiting-16": after})
    assert f"| {WAITING.title} | 100.0 | 106.0 | 1.06 | **more than {LIMIT:.2f}** |" in told
    assert "       0.00 ->   10.00  a.py new" in told
    many = {("a.py", f"f{number:02}"): float(number) for number in range(1, 2 * TOLD)}
    assert (
        table([WAITING], {"waiting-16": {} | {("a.py", "f"): 1.0}}, {"waiting-16": many}).count("->") == TOLD
    )


def test_a_load_that_goes_wrong_is_no_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Stompbox, "start", lambda self: written(tmp_path, 1))
    monkeypatch.setattr(Stompbox, "stop", lambda self: (tmp_path / "profile").rename(self.program[2]))
    monkeypatch.setattr(calls, "run_row", lambda *_, **__: {**SOUND, "received": 9})
    with pytest.raises(BenchError, match="row waiting-16: 1 lost"):
        calls.profiled(Path("load"), tmp_path / "src", WAITING, 1.0)


def test_a_commit_that_is_not_there_ends_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.calls", "--base", "no-such-commit"])
    monkeypatch.setattr("bench.run.build_stompload", lambda: Path("load"))
    assert main() == 2
    assert "no-such-commit" in capsys.readouterr().err
