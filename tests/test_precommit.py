"""The hooks of .pre-commit-config.yaml refuse what they are there for: run on a repository of their own, with the tools of this one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
COPIED = (".pre-commit-config.yaml", ".gitignore", "pyproject.toml", "tests/test_sourcecode.py")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    if shutil.which("git") is None:
        pytest.skip("no git")
    folder = tmp_path / "repository"
    for name in COPIED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / ".venv").symlink_to(sys.prefix)
    git(folder, "init", "--quiet")
    git(folder, "add", *COPIED)
    return folder


def git(folder: Path, *arguments: str) -> str:
    # pre-commit's own runs set them
    here = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=here, check=True, capture_output=True, text=True
    ).stdout


def hooks(folder: Path) -> tuple[int, str]:
    """What `git commit` would meet: exit status and what is said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
        "PRE_COMMIT_HOME": str(folder / ".git" / "home")
    }
    command = [sys.executable, "-m", "pre_commit", "run", "--color=never"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_what_is_in_order_passes(repository: Path) -> None:
    code, said = hooks(repository)
    assert code == 0, said


@pytest.mark.parametrize(
    ("name", "content", "hook"),
    [
        ("tests/unused.py", "import os\n", "ruff check"),
        ("tests/laid.py", "x = {  'a':1 }\n", "ruff format"),
        ("docs/blanks.md", "a \n", "nothing large"),
        ("docs/large.txt", "x\n" * (512 << 9), "nothing large"),
    ],
    ids=lambda value: value if value.count("\n") < 1 else "",
)
def test_what_is_not_in_order_is_refused(repository: Path, name: str, content: str, hook: str) -> None:
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text(content + ("x\n" if "large" in name else ""))
    git(repository, "add", name)
    code, said = hooks(repository)
    assert code == 1, said
    [line] = [line for line in said.splitlines() if line.startswith(hook) and "..." in line]
    assert line.endswith("Failed"), said
