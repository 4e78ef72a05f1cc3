"""The high-water mark: what it says after each kind of end."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompbox.errors import StoreError
from stompbox.store import watermark
from stompbox.store.folder import WATERMARK
from stompbox.store.losses import Losses
from stompbox.store.watermark import COPIES, Mark, Watermark, read


def test_it_says_what_was_durable_last(tmp_path: Path) -> None:
    assert read(tmp_path) == Mark()
    mark = Watermark(tmp_path, Losses())
    mark.committed(3)
    for sequence in range(1, 6):
        mark.appended(sequence)
        assert read(tmp_path) == Mark(3, sequence), "a kill needs no closing"
    mark.close()
    again = Watermark(tmp_path, Losses())
    assert again.found == Mark(3, 5)
    again.begun(2)
    assert read(tmp_path) == Mark(3, 2), "loss was accepted"


def test_one_copy_that_is_damaged_changes_nothing_and_both_are_named(tmp_path: Path) -> None:
    mark = Watermark(tmp_path, Losses())
    mark.committed(7)
    mark.begun(9)
    mark.close()
    file = tmp_path / WATERMARK
    whole = file.read_bytes()
    for copy in COPIES:
        for bit in range(40 * 8):
            flipped = bytearray(whole)
            flipped[copy + bit // 8] ^= 1 << bit % 8
            file.write_bytes(flipped)
            assert read(tmp_path) == Mark(7, 9)
    for copy in COPIES:
        flipped[copy + 20] ^= 8
    file.write_bytes(flipped)
    with pytest.raises(StoreError, match="both copies") as caught:
        Watermark(tmp_path, Losses())
    assert caught.value.code == "data-corrupt"
    told: list[str] = []
    assert (
        Watermark(tmp_path, Losses(are_accepted=True, tell=lambda code, _: told.append(code))).found == Mark()
    )
    assert told == ["data-corrupt"]


def test_without_room_nothing_is_kept_and_what_was_there_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Watermark(tmp_path, Losses()).committed(4)

    def refused(path: Path) -> None:
        raise StoreError("disk-full", str(path))

    monkeypatch.setattr(watermark, "make_file", refused)
    mark = Watermark(tmp_path, Losses())
    mark.committed(5)
    assert (mark.found, read(tmp_path)) == (Mark(4, 0), Mark(4, 0))
