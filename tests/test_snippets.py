"""What the papers print works: each Python block runs, each TOML block is taken, each command line has a command that takes its flags.

A block that cannot run is marked by a line `<!-- not run: why -->` before it, and there are few. What a piece of a program needs around it
(a client, some rows) stands here, in AROUND.
"""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import json
import os
import re
import selectors
import shlex
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stompbox
from stompbox.cli.application import app
from stompbox.config import read
from stompbox.server.verifying import verify
from tests.certificates import of_localhost
from tests.testing.test_pytest_plugin import play

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("docs", "examples", "packages")
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "bench" / "README.md"]
    + [page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md")]
)
MOST_NOT_RUN = 1
WITHIN = 60.0  # seconds
URL = re.compile(r"stomps?://[^\"'/ ]*")
# programs that are not ours
OTHERS = {"git", "curl", "export", "spark-submit", "spark-pipelines", "env/bin/pip", "env/bin/venv-pack"}


@dataclass(frozen=True, slots=True)
class Snippet:
    page: str
    line: int
    language: str
    text: str
    is_marked: bool  # not to be run

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def snippets() -> list[Snippet]:
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            before = text[: block.start()].rstrip().splitlines()[-1:]
            is_marked = bool(before and re.match(r"<!-- not run: .+ -->$", before[0]))
            name = page.relative_to(ROOT).as_posix()
            found.append(Snippet(name, text.count("\n", 0, block.start()) + 1, block[1], block[2], is_marked))
    return found


SNIPPETS = snippets()


def those(*languages: str) -> Any:
    return pytest.mark.parametrize(
        "snippet", [each for each in SNIPPETS if each.language in languages and not each.is_marked], ids=str
    )


def test_few_are_marked_and_each_language_is_looked_at() -> None:
    assert len([each for each in SNIPPETS if each.is_marked]) <= MOST_NOT_RUN
    assert {each.language for each in SNIPPETS} <= {
        "python",
        "toml",
        "bash",
        "",
        "json",
        "yaml",
        "sql",
        "text",
    }
    assert len(SNIPPETS) > 20


# --- command lines ------------------------------------------------------------------------------------------------------------


def command_lines() -> list[tuple[str, str]]:
    """(place, command) of the blocks of commands, and of the lines that are set in by four blanks and begin with `stompbox`."""
    found = []
    for snippet in SNIPPETS:
        if snippet.language in ("bash", ""):
            for line in snippet.text.replace("\\\n", " ").splitlines():
                found += [
                    (str(snippet), part.strip())
                    for part in line.partition(" #")[0].split("&&")
                    if part.strip()
                ]
    for page in PAGES:
        outside = re.sub(
            r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
        )
        for line in re.findall(r"^    (stompbox [a-z].*)$", outside, re.MULTILINE):
            command = re.split(r"  +|(?<=WHERE) ", line)[0]  # what follows says what it does
            found.append((page.relative_to(ROOT).as_posix(), re.sub(r"[\[\]]", "", command)))
    return found


def named_in_sentences() -> list[tuple[str, str]]:
    """(page, command) of what stands between backticks in the running text; it may be a command without what it needs."""
    found = {
        (page.relative_to(ROOT).as_posix(), re.sub(r"\s+", " ", command))
        for page in PAGES
        for command in re.findall(r"(?<!`)`stompbox ([a-z][^`]*)`(?!`)", page.read_text(encoding="utf-8"))
    }
    return sorted(found)


COMMANDS = [each for each in command_lines() if re.match(r"[a-z]", each[1])]


def targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def extras() -> set[str]:
    return set(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "optional-dependencies"
        ]
    )


@pytest.mark.parametrize(
    ("place", "command"), COMMANDS, ids=[f"{place} {command}" for place, command in COMMANDS]
)
def test_a_command_line_is_one(place: str, command: str) -> None:
    words = shlex.split(command)
    while "=" in words[0]:
        del words[0]
    name, *rest = words
    name = name.removeprefix(".venv/bin/")
    if name == "stompbox":
        app.parse_args(
            [word.replace("WHERE", "earliest") for word in rest], exit_on_error=False, print_error=False
        )
    elif name == "make":
        assert [word for word in rest if "=" not in word and word not in targets()] == []
    elif name == "python":
        require_program(rest)
    elif name == "pip":
        wanted = re.findall(r"\[(.*?)\]", " ".join(rest))
        assert rest[0] == "install" and set(",".join(wanted).split(",")) - {""} <= extras()
    else:
        assert name in OTHERS or name == "cd", f"{place}: {command}"


@pytest.mark.parametrize(("page", "command"), named_in_sentences(), ids=" ".join)
def test_a_command_that_a_sentence_names_is_there(page: str, command: str) -> None:
    words = shlex.split(command)
    found: Any = app
    while words and re.fullmatch("[a-z]+", words[0]) and words[0] in found:
        found = found[words.pop(0)]
    assert found is not app, f"{page}: {command}"
    has_commands = any(not name.startswith("-") for name in found)
    assert not (has_commands and words and words[0].islower()), f"{page}: {command}"
    flags = (
        {name for argument in found.assemble_argument_collection() for name in argument.names}
        if found.default_command
        else set()
    )
    assert [word for word in words if word.startswith("--") and word not in flags] == [], f"{page}: {command}"


def require_program(words: list[str]) -> None:
    if words[0] == "-X":
        del words[:2]
    if words[0] == "-c":
        exec(words[1], {})
    elif words[0] == "-m":
        assert words[1] in ("venv", "pytest") or importlib.util.find_spec(words[1]) is not None
    else:
        assert (ROOT / words[0]).is_file()


def test_command_lines_are_found() -> None:
    assert len(COMMANDS) > 30
    assert sum(command.startswith("stompbox ") for _, command in COMMANDS) > 15


# --- TOML -----------------------------------------------------------------------------------------------------------------------


def in_place(text: str, folder: Path) -> str:
    """With files that are here in place of those that a machine would have."""
    for number, path in enumerate(sorted(set(re.findall(r'"(/run/[^"]+|private-ca\.pem)"', text)))):
        (folder / f"secret-{number}").write_text("secret\n", encoding="utf-8")
        text = text.replace(f'"{path}"', f'"{folder}/secret-{number}"')
    if "/etc/stompbox/server.pem" in text:
        (folder / "server.pem").write_text(of_localhost(), encoding="utf-8")
        (folder / "ca.pem").write_text(of_localhost(), encoding="utf-8")
    return text.replace("/etc/stompbox/", f"{folder}/")


@those("toml")
def test_a_configuration_is_taken(snippet: Snippet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "printed.toml"
    file.write_text(in_place(snippet.text, tmp_path), encoding="utf-8")
    if snippet.page != "docs/pipelines.md":
        verify(read(file))
        return
    pytest.importorskip("pyspark")
    from stompbox.pipelines.plan import read_plan

    whole = (
        snippet.text
        if re.search("^url", snippet.text, re.MULTILINE)
        else 'url = "stomp://127.0.0.1:61613"\n' + snippet.text
    )
    if "[[archive]]" not in whole:
        whole += '\n[[archive]]\nname = "orders"\ndestinations = ["/queue/orders"]\ntable = "lake/orders"\n'
    file.write_text(in_place(whole, tmp_path), encoding="utf-8")
    assert read_plan(file, {}).pipeline.steps


# --- Python ---------------------------------------------------------------------------------------------------------------------

Around = dict[str, Any]


async def once(message: stompbox.Message) -> None:
    """A handler that has enough with one message."""
    await message._route.subscription.unsubscribe()


# The first line of a piece -> names that it takes from its surroundings, made with a client that is connected
AROUND: dict[str, Any] = {
    "async with client.publisher(window=1000) as publisher:": lambda: {
        "rows": [SimpleNamespace(body=b"x", carrier="UA")] * 3
    },
    "async with client.transaction() as transaction:": lambda: {"result": b"done"},
    'count = await client.send_many("/queue/numbers", ({"n": n} for n in range(100_000)))  # all of them are stored': dict,
    'async with client.subscribe("/queue/orders", ack="client-individual", prefetch=20) as messages:': lambda: {
        "handle": once
    },
    'async with client.subscribe("/topic/flights", offset=4711) as messages:': dict,
    "async def answer(request):": lambda: {"asyncio": asyncio},
}
SAYS = {  # what a whole program prints, and which then goes on, or ends
    "README.md": "EU b'42 apples'",
    "docs/client.md": "42 apples",
    "docs/tutorial.md": "EU b'42 apples'",
    "docs/howto/tracing.md": "b'42 apples'",
}


def is_about_spark(snippet: Snippet) -> bool:
    return "stompbox.spark" in snippet.text or snippet.page in (
        "docs/spark.md",
        "packages/pyspark-stomp/README.md",
    )


@pytest.mark.parametrize(
    "snippet",
    [
        each
        for each in SNIPPETS
        if each.language == "python" and not is_about_spark(each) and not each.is_marked
    ],
    ids=str,
)
def test_a_program_runs(snippet: Snippet, broker: tuple[str, int], tmp_path: Path) -> None:
    place = f"stomp://{broker[0]}:{broker[1]}"
    first = snippet.text.splitlines()[0]
    if first in AROUND:
        asyncio.run(_piece(snippet, place, AROUND[first]()))
        return
    if re.search(r"^(async )?def test_", snippet.text, re.MULTILINE):
        code, said = play(
            tmp_path, snippet.text, *(["pytest_asyncio.plugin"] if "asyncio" in snippet.text else [])
        )
        assert code == 0 and "1 passed" in said, said
        return
    program = tmp_path / "printed.py"
    program.write_text(URL.sub(place, snippet.text), encoding="utf-8")
    said = _run_until(program, SAYS[snippet.page])
    assert SAYS[snippet.page] in said


async def _piece(snippet: Snippet, place: str, around: Around) -> None:
    code = compile(snippet.text, str(snippet), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    async with stompbox.connect(place) as client:
        await client.send("/queue/snippet.piece", b"one")
        await client.send("/queue/orders", b"one")
        async with client.subscribe("/queue/snippet.piece", ack="client-individual") as messages:
            around |= {"client": client, "message": await messages.receive(WITHIN)}
            done = eval(code, around)
            if inspect.isawaitable(done):
                await done


def _run_until(program: Path, words: str) -> str:
    """What it prints, up to these words; it is ended then, for some go on for ever."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    said = b""
    deadline = time.monotonic() + WITHIN
    with subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
    ) as process:
        assert process.stdout is not None
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            while words not in said.decode() and waiting.select(max(0.0, deadline - time.monotonic())):
                octets = os.read(process.stdout.fileno(), 65536)
                if not octets:
                    break
                said += octets
        process.kill()
    return said.decode()


# --- All of them ----------------------------------------------------------------------------------------------------------------

ELSEWHERE = {  # blocks that need more than is here, by page and language: the tests that play them
    ("README.md", "python"): "tests/test_packaging.py",
    ("packages/pyspark-stomp/README.md", "python"): "tests/test_packaging.py",
    ("docs/spark.md", "python"): "tests/spark/test_printed.py",
    ("docs/pipelines.md", "sql"): "tests/pipelines/test_staging.py",
}
WITHOUT_SNIPPETS = {"CHANGELOG.md"}  # says what was printed once, too
NAMED_ONLY = {  # nothing that runs
    "yaml",  # the configuration of another program: tests/admin/test_metrics.py reads what it would scrape
    "text",  # a drawing
}


def test_every_page_with_a_block_is_looked_at() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("no git checkout")
    pages = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert [
        page
        for page in listed.stdout.split()
        if page not in pages | WITHOUT_SNIPPETS and "```" in (ROOT / page).read_text()
    ] == []


def test_every_block_is_played_or_exempt_by_name() -> None:
    """Command lines, TOML, JSON and programs are played above; what is marked says why it is not."""
    left = []
    for each in SNIPPETS:
        is_played = each.language in ("bash", "", "toml", "json") or (
            each.language == "python" and not is_about_spark(each)
        )
        if not (
            is_played
            or each.is_marked
            or each.language in NAMED_ONLY
            or (each.page, each.language) in ELSEWHERE
        ):
            left.append(str(each))
    assert left == []


@pytest.mark.parametrize(("page", "test"), [(page, test) for (page, _), test in ELSEWHERE.items()])
def test_what_is_played_elsewhere_is_read_there(page: str, test: str) -> None:
    text = (ROOT / test).read_text(encoding="utf-8")
    assert Path(page).name in text or page in text


def test_no_block_is_out_of_sight() -> None:
    """One within a list or a quotation, with tildes, with more than a language behind its fence, or that does not end, is not found by
    `snippets`."""
    for page in PAGES:
        fences = re.findall(r"^[ \t>]*(?:```|~~~).*$", page.read_text(encoding="utf-8"), re.MULTILINE)
        name = page.relative_to(ROOT).as_posix()
        assert len(fences) == 2 * sum(snippet.page == name for snippet in SNIPPETS), f"{name}: {fences}"


@those("json")
def test_json_is_json(snippet: Snippet) -> None:
    assert [json.loads(line) for line in snippet.text.splitlines()]
