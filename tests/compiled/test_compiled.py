"""The build that mypyc has compiled does what the sources do: the cases of the wire, kills and the system's tests are played against it.

It is compiled once (hatch_build.py); COMPILED_CACHE names a folder where it is kept from one run of the tests to the next. Without a C
compiler these tests are skipped, and fail instead where COMPILED_TESTS=required says so, as CI does.

Tests that have the engine in their own process (tests/broker, tests/server) are left out: many of them replace attributes of classes or
constants, and nothing that is compiled sees what they replace. Those of the codec replace nothing, and are played.
"""

from __future__ import annotations

import compileall
import faulthandler
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest

import hatch_build
from tests.compiled.build import extensions

ROOT = Path(__file__).resolve().parent.parent.parent
WITHIN = 1200  # seconds for one of the suites, on a busy machine
SUITES = {
    # what is between socket and octets is not compiled: the codec is fed byte by byte itself, and tests/conformance does it over
    # sockets, TCP and WebSocket, with the sources
    "codec": ("tests/stomp/test_codec.py",),
    "wire": ("tests/conformance", "-k", "not websocket and not fronts and not byte]"),
    "kills": ("tests/crash/test_drill.py", "-k", "not fronts"),
    "store": ("tests/store/test_model.py", "tests/store/test_readonly.py"),
    "nodes": ("tests/crash/test_cluster.py", "-k", "kill and leader"),
    "system": (
        "tests/system/test_serve.py",
        "tests/system/test_large_messages.py",
        "tests/system/test_counting.py",
        "tests/system/test_virtual_hosts.py",
        "-k",
        # what memory has of large bodies: a minute, and the same; who is refused before there is a broker meets nothing that is compiled
        "not never_whole and not bodies_that_wait and not is_refused",
    ),
    "spans": ("tests/server/test_tracing.py", "-k", "collector and not fronts"),
}
WEAKLY = {  # compiled classes below one of plain Python; nothing refers to them weakly
    "stompbox.server.fronts.remote.FrontLink",
    "stompbox.server.transport.tcp.Socket",
    "stompbox.server.transport.tlstransport.TlsTransport",
    "stompbox.stomp.codec.Decoder",
}

EVERY_MODULE = """
import importlib, os, sys
for name in sys.argv[1:]:
    child = os.fork()  # each as the first: none depends on what others have imported
    if child:
        assert os.waitpid(child, 0)[1] == 0, name
        continue
    module = importlib.import_module(name)
    assert not module.__file__.endswith(".py"), module.__file__
    for one in vars(module).values():
        is_native = isinstance(one, type) and one.__module__ == name and "__mypyc_attrs__" in vars(one)
        if is_native and one.__weakrefoffset__ and not getattr(one, "_is_protocol", False):
            print(f"{name}.{one.__qualname__}")
    sys.exit()
"""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has both packages as an installed wheel has them."""
    faulthandler.cancel_dump_traceback_later()  # to compile takes longer than a test may
    compiler = shutil.which((sysconfig.get_config_var("CC") or "cc").split()[0])
    if compiler is None:
        if os.environ.get("COMPILED_TESTS") == "required":
            pytest.fail("there is no C compiler, and COMPILED_TESTS=required")
        pytest.skip(
            "the compiled build is not tested: there is no C compiler (on Debian: apt-get install gcc)"
        )
    made = extensions(tmp_path_factory.mktemp("compiled"))
    folder = tmp_path_factory.mktemp("build")
    shutil.copytree(ROOT / "src", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(made, folder, dirs_exist_ok=True)
    # else each broker of these tests would compile what is left of the sources anew, where the environment has Python keep nothing
    assert compileall.compile_dir(folder, quiet=1)
    return folder


def run(build: Path, *command: str, within: int = 60) -> str:
    """What Python prints that runs the compiled build."""
    faulthandler.cancel_dump_traceback_later()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(build)},
        capture_output=True,
        text=True,
        timeout=within,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}{done.stderr[-6000:]}"
    return done.stdout


def names() -> list[str]:
    source = ROOT / "src"
    return [
        ".".join(path.relative_to(source).with_suffix("").parts)
        for path in hatch_build.modules(source / hatch_build.PACKAGE)
    ]


def test_what_is_left_out_is_there() -> None:
    package = ROOT / "src" / hatch_build.PACKAGE
    assert [name for name in hatch_build.LEFT_OUT if not (package / name).exists()] == []


def test_each_module_is_compiled_and_what_it_has_cannot_be_referred_to_weakly(build: Path) -> None:
    """mypyc lets go of an object below a class of plain Python without a word to those who refer to it weakly."""
    assert set(run(build, "-c", EVERY_MODULE, *names(), within=300).split()) == WEAKLY


def test_the_command_says_so(build: Path) -> None:
    version = metadata.version("stompbox")
    assert run(build, "-m", "stompbox", "--version").strip() == version
    assert run(build, "-m", "stompbox", "--version", "--verbose").startswith(
        f"{version}, compiled by mypyc, "
    )


@pytest.mark.parametrize("suite", SUITES)
def test_it_passes_the_tests_of_the_sources(build: Path, suite: str) -> None:
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITES[suite]]
    assert " passed" in run(build, *command, within=WITHIN)


@pytest.mark.parametrize(("said", "is_wanted"), [("", False), ("0", False), ("1", True)])
def test_one_compiles(monkeypatch: pytest.MonkeyPatch, said: str, *, is_wanted: bool) -> None:
    monkeypatch.setenv("STOMPBOX_COMPILE", said)
    assert hatch_build.is_wanted() is is_wanted


def test_anything_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPBOX_COMPILE", "yes")
    with pytest.raises(ValueError, match="STOMPBOX_COMPILE is 'yes'; 1 compiles"):
        hatch_build.is_wanted()
