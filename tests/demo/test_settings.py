"""Where the demo writes, and the broker that it configures."""

from __future__ import annotations

from pathlib import Path

import pytest

from demo.settings import OutputRefused, Settings
from stompbox.config import check, load


def test_the_brokers_configuration_is_a_good_one(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "out")
    settings.prepare()
    configuration = load(settings.configuration)
    assert check(configuration) == []
    assert Path(configuration.data) == tmp_path / "out" / "data"
    assert configuration.settings_of().resolve("flights.UA").retention_ms == 7 * 86_400_000
    (divert,) = configuration.diverts
    assert (divert.address, divert.filter, divert.forwarding_address) == (
        "flights.#",
        "dep_delay > 60",
        "late",
    )
    assert configuration.admin.endpoint() == ("127.0.0.1", 0)


def test_an_output_of_the_demo_is_made_anew(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "out")
    settings.prepare()
    (settings.output / "report.html").write_text("old")
    (settings.table / "old").mkdir(parents=True)
    settings.prepare()
    assert not settings.report.exists() and not settings.table.exists() and settings.logs.is_dir()


def test_a_folder_with_a_strangers_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(OutputRefused, match=r"is not empty.*--output"):
        Settings(tmp_path).prepare()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
