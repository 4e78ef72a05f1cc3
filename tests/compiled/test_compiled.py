"""The build that mypyc has compiled does what the sources do: the cases of the wire, kills and the system's tests are played against it.

It is compiled once (hatch_build.py); COMPILED_CACHE names a folder where it is kept from one run of the tests to the next. Without a C
compiler these tests are skipped, and fail instead where COMPILED_TESTS=required says so, as CI does.

Tests that have the engine in their own process (tests/broker, tests/server) are left out: many of them replace attributes of classes or
constants, and nothing that is compiled sees what they replace. Those of the codec replace nothing, and are played.
"""

from __future__ import annotations

import compileall
import ctypes
import faulthandler
import os
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from importlib import metadata
from pathlib import Path

import pytest

import hatch_build
from tests.compiled.build import extensions
from tests.conformance.playing import in_versions
from tests.conformance.test_routing import CASES

ROOT = Path(__file__).resolve().parent.parent.parent
WITHIN = 1200  # seconds for one of the suites, on a busy machine
SUITES = {
    # what is between socket and octets is not compiled: the codec is fed byte by byte itself, in each version, and tests/conformance
    # does it over sockets, TCP and WebSocket, with the sources; here it plays each case once, in its versions by turns, and in all of
    # them in `make soak`. Where a time to live is configured is nothing that is compiled, either
    "codec": ("tests/stomp/test_codec.py",),
    "wire": (
        "tests/conformance",
        "-k",
        "not websocket and not fronts and not byte] and not (heart_beat_live and listeners)",
    ),
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
import ctypes, importlib, os, pathlib, sys

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

folder, *names = sys.argv[1:]
shared, = pathlib.Path(folder).glob("*__mypyc.*")  # the code of all modules
ctypes.CDLL(str(shared))
# What is not ours is there once; of ours each module is the first: none depends on what others have imported
reading, writing = os.pipe()
if not os.fork():
    for name in names:
        importlib.import_module(name)
    others = [name for name in sys.modules if name.partition(".")[0] not in ("stompbox", "__main__") and not name.endswith("__mypyc")]
    os.write(writing, " ".join(others).encode())
    os._exit(0)
os.close(writing)
with os.fdopen(reading) as told:
    for name in told.read().split():
        importlib.import_module(name)
for name in names:
    assert not any(one.partition(".")[0] == "stompbox" for one in sys.modules)
    child = os.fork()
    if child:
        assert ended(child) == 0, name
        continue
    module = importlib.import_module(name)
    assert not module.__file__.endswith(".py"), module.__file__
    for one in vars(module).values():
        is_native = isinstance(one, type) and one.__module__ == name and "__mypyc_attrs__" in vars(one)
        if is_native and one.__weakrefoffset__ and not getattr(one, "_is_protocol", False):
            print(f"{name}.{one.__qualname__}")
    sys.stdout.flush()
    os._exit(0)
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
    shutil.copytree(ROOT / "src", folder, dirs_exist_ok=True)
    shutil.copytree(made, folder, dirs_exist_ok=True)
    # else each broker of these tests would compile what is left of the sources anew, where the environment has Python keep nothing;
    # what Python has kept of them came with them
    assert compileall.compile_dir(folder, quiet=1)
    return folder


def run(build: Path, *command: str, within: int = 60) -> str:
    """What Python prints that runs the compiled build."""
    faulthandler.cancel_dump_traceback_later()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={"TESTED_VERSIONS": "turns", **os.environ, "PYTHONPATH": str(build)},
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
    assert set(run(build, "-c", EVERY_MODULE, str(build), *names(), within=300).split()) == WEAKLY


def test_the_command_says_so(build: Path) -> None:
    version = metadata.version("stompbox")
    assert run(build, "-m", "stompbox", "--version").strip() == version
    assert run(build, "-m", "stompbox", "--version", "--verbose").startswith(
        f"{version}, compiled by mypyc, "
    )


@pytest.mark.parametrize("suite", SUITES)
def test_it_passes_the_tests_of_the_sources(build: Path, suite: str) -> None:
    # what nobody asks of these suites need not be imported for each
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis", *SUITES[suite]]
    assert " passed" in run(build, *command, within=WITHIN)


def test_each_case_is_played_once_and_in_each_version_some_are() -> None:
    every, some = in_versions(CASES, {}), in_versions(CASES, {"TESTED_VERSIONS": "turns"})
    assert [case for case, _ in some] == CASES
    assert all(row in every for row in some)
    assert min(Counter(version for _, version in some).values()) > len(CASES) // 4


@pytest.mark.parametrize(("said", "is_wanted"), [("", False), ("0", False), ("1", True)])
def test_one_compiles(monkeypatch: pytest.MonkeyPatch, said: str, *, is_wanted: bool) -> None:
    monkeypatch.setenv("STOMPBOX_COMPILE", said)
    assert hatch_build.is_wanted() is is_wanted


def test_anything_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOMPBOX_COMPILE", "yes")
    with pytest.raises(ValueError, match="STOMPBOX_COMPILE is 'yes'; 1 compiles"):
        hatch_build.is_wanted()


GENERATED = """\
#include "__native_abc.h"
#include "__native_internal_abc.h"
char CPyDef_codec_____top_level__(void);
static int CPyExec_stompbox___codec__impl(PyObject *module)
{
    char result = CPyDef_codec_____top_level__();
}
PyObject *CPyInit_stompbox___codec(void)
{
PyObject *CPyDef_codec___decode(PyObject *cpy_r_octets) {
    CPy_AddTraceback("codec.py", "decode", 1, CPyStatic_codec___globals);
char CPyDef_codec_____top_level__(void) {
"""


def test_what_runs_once_and_what_is_seldom_run_is_told_to_the_c_compiler() -> None:
    """Each lies by itself then, and is not in memory with what each message goes through."""
    arranged = hatch_build.arranged(GENERATED)
    headers, _, rest = arranged.partition(hatch_build.SELDOM)
    assert headers.splitlines() == GENERATED.splitlines()[:2]
    assert [line for line in rest.splitlines() if line.startswith("ONCE ")] == [
        "ONCE static int CPyExec_stompbox___codec__impl(PyObject *module)",
        "ONCE PyObject *CPyInit_stompbox___codec(void)",
        "ONCE char CPyDef_codec_____top_level__(void) {",
    ]
    assert f"{headers}{rest}".replace("ONCE ", "") == GENERATED


def test_a_c_file_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="does not begin with its headers"):
        hatch_build.arranged("int main(void) { return 0; }\n")


def test_a_library_tells_nobody_of_its_functions(build: Path) -> None:
    """What is found by name is found through tables, which would be in memory for nobody."""
    (library,) = build.glob("*__mypyc*.so")
    loaded = ctypes.CDLL(str(library))
    assert hasattr(loaded, f"PyInit_{library.name.partition('.')[0]}")
    assert not hasattr(loaded, "CPyGlobalsInit")
