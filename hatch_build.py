"""What a wheel holds beside its sources: nothing, or with STOMPBOX_COMPILE=1 what mypyc has compiled of them.

`pip install .` needs no compiler. `STOMPBOX_COMPILE=1 pip install .` and `make wheel` compile the modules that each message goes through:
ROOMS without LEFT_OUT. Each is there twice then, as source and as extension module, and Python takes the extension module.

COMPILED_CACHE names a folder where what was compiled is kept, by the hash of all that it is made from. The reasons are in
docs/decisions/compiled-wheels.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
PACKAGE = "stompbox"
BUILT_WITH = ("mypy>=2.4,<2.5", "setuptools>=75")
OPTIMIZED, UNOPTIMIZED = "2", "0"
LAZY = "Treating generator comprehension as list"  # what mypyc only warns of, and would be another program

# of the store: what each commit goes through before it is on the disk
HOT = tuple([f"store/{name}.py" for name in ("base", "journal", "journaled", "watermark")])
ROOMS = ("message.py", "ranges.py", "stomp", "broker", "server", *HOT)
LEFT_OUT = {
    "server/requests": "not on a message's way but for asyncio's generators, which mypyc has not",
    "server/run.py": "runs once",
    "server/seam.py": "protocols alone: what is known by a protocol is asked by its name, and sooner when that is not compiled",
    "broker/queues/contracts.py": "the same",
    "broker/addresses/contracts.py": "the same; and mypyc confuses protocols of one name that inherit from each other",
    "broker/queues/roundrobin.py": "a class below list, which mypyc has not",
    "broker/sparse.py": "classes below dict and list, the same",
    "broker/queues/matching.py": "plans are referred to weakly, which compiled objects cannot be",
    "broker/queues/depth.py": "a dataclass of types that only the type checker imports, which mypyc would look for as it runs",
    "server/cluster": "not on a message's way: what a node passes on for its clients lies in server/fronts",
    "server/clustered.py": "runs once",
    "server/fronts/link.py": "what it names is looked up by msgspec and pickle as it runs",
    "server/fronts/fronts.py": "runs once for each front",
    "server/fronts/process.py": "the same",
    "server/fronts/relay.py": "has a class below one that is not compiled",
    "server/transport/host.py": "protocols alone, as server/seam.py",
    "server/transport/websocket.py": "its classes are below those of a library",
    "server/transport/inflating.py": "the same",
    "server/transport/tls.py": "runs once for each listener",
    "server/transport/keystores.py": "runs once for each listener",
    "server/transport/proxy.py": "runs once for each connection",
    "server/transport/admission.py": "the same",
}

# Nobody looks for mypyc's functions by name: what a library exports is found through tables, which cost memory and a jump for each call.
INWARD = "-fvisibility=hidden"
# What mypyc says nothing of, for each C file: that a line of a traceback is seldom added. The C compiler puts apart, and makes small,
# what leads only there: a quarter of all code. What runs once, when a module is loaded, lies together: else each piece of code that is
# read from the disk has some of it, and all is in memory before a client has come.
SELDOM = """
void CPy_AddTraceback(const char *, const char *, int, PyObject *) __attribute__((cold));
void CPy_TypeErrorTraceback(const char *, const char *, int, PyObject *, const char *, PyObject *) __attribute__((cold));
void CPy_AttributeError(const char *, const char *, const char *, const char *, int, PyObject *) __attribute__((cold));
void CPy_TypeError(const char *, PyObject *) __attribute__((cold));
void CPyError_OutOfMemory(void) __attribute__((cold));
#ifdef __ELF__
#define ONCE __attribute__((cold, section(".text.startup")))
#else
#define ONCE __attribute__((cold))
#endif
"""
LOADING = re.compile(
    r"^(?=(?:char CPyDef_\w+_(?:____top_level__|trait_vtable_setup)|static int CPyExec_\w+__impl|PyObject \*CPyInit_\w+)"
    r"\([^;\n]*$)",
    re.MULTILINE,
)
HEADERS = re.compile(r'\A(?:#include "__native_\w+\.h"\n)+')


def modules(package: Path) -> list[Path]:
    """The sources that are compiled."""
    left_out = [package / name for name in LEFT_OUT]
    found = []
    for room in ROOMS:
        path = package / room
        for source in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if source.name != "__init__.py" and not any(source.is_relative_to(one) for one in left_out):
                found.append(source)
    return found


def key(level: str) -> str:
    """Another one whenever something else would come out."""
    digest = hashlib.sha256()
    what = (sys.version, platform.platform(), metadata.version("mypy"), os.environ.get("CFLAGS", ""), level)
    digest.update("\0".join(what).encode())
    for source in (ROOT / "hatch_build.py", *sorted((ROOT / "src" / PACKAGE).rglob("*.py"))):
        digest.update(f"\0{source.relative_to(ROOT)}\0".encode() + source.read_bytes())
    return digest.hexdigest()[:24]


def compiled(cache: Path, level: str = OPTIMIZED) -> Path:
    """A folder with the extension modules, where they are imported from. Made once; who comes meanwhile waits. `level`: of the C
    compiler's optimization; without it (0) it is there in half the time, and does the same."""
    cache = cache.absolute()  # it is compiled in another working directory
    folder = cache / key(level)
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                work, out = Path(scratch) / "work", Path(scratch) / "out"
                shutil.copytree(ROOT / "src", work, ignore=shutil.ignore_patterns("__pycache__"))
                command = [sys.executable, str(ROOT / "hatch_build.py"), str(out), level]
                done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
                said = done.stdout + done.stderr
                if done.returncode or LAZY in said:
                    raise RuntimeError(f"mypyc has not compiled {PACKAGE}:\n{said[-8000:]}")
                out.rename(folder)
    return folder


def compile_here(out: str, level: str) -> None:
    """Compiles the copy of the sources that is the working directory, as `python hatch_build.py OUT LEVEL` in a process of its own."""
    from setuptools import setup  # first: mypyc looks whether it is there
    from setuptools._distutils import ccompiler

    from mypyc.build import mypycify  # isort: skip

    ccompiler.CCompiler.compile = side_by_side
    Path("mypy.ini").write_text("[mypy]\nignore_missing_imports = True\n")
    paths = [str(path) for path in modules(Path(PACKAGE))]
    extensions = mypycify(
        ["--config-file", "mypy.ini", *paths], opt_level=level, debug_level="0", multi_file=True
    )
    for source in Path("build").glob("__native_*.c"):
        source.write_text(arranged(source.read_text("utf-8")), "utf-8")
    setup(
        name=PACKAGE,
        packages=[],
        ext_modules=extensions,
        script_args=["-q", "build_ext", "--build-lib", out, "--build-temp", "objects"],
    )


def arranged(source: str) -> str:
    """A C file of mypyc's that says what is seldom run, and what once."""
    headers = HEADERS.match(source)
    if headers is None:
        raise ValueError("a C file of mypyc's does not begin with its headers")
    return f"{headers[0]}{SELDOM}{LOADING.sub('ONCE ', source[headers.end() :])}"


def side_by_side(self: Any, sources: list[str], output_dir: str | None = None, **options: Any) -> list[str]:
    """What setuptools does one after the other: each C file becomes an object, on all cores."""
    names = ("macros", "include_dirs", "debug", "extra_preargs", "extra_postargs", "depends")
    macros, folders, debug, before, after, depends = [options.get(name) for name in names]
    setup = self._setup_compile(output_dir, macros, folders, sources, depends, after)
    _, objects, after, preprocessing, build = setup
    arguments = [*self._get_cc_args(preprocessing, debug, before), INWARD]

    headers = precompiled(self, [*arguments, *after]) if f"-O{UNOPTIMIZED}" in after else []

    def one(name: str) -> None:
        source, ending = build[name]
        first = headers if is_generated(Path(source)) else []
        self._compile(name, source, ending, [*arguments, *first], after, preprocessing)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, [name for name in objects if name in build]))
    return list(objects)


def is_generated(source: Path) -> bool:
    """Else it is of mypyc's own library, which is copied beside what is."""
    return source.name.startswith("__native_") or source.parent != Path("build")


def precompiled(compiler: Any, arguments: list[str]) -> list[str]:
    """Arguments by which each generated C file begins with all their headers, which are read once and not 280 times: a quarter of the
    time where nothing is optimized. None where the compiler refuses."""
    from setuptools._distutils.errors import DistutilsExecError

    every, kept = Path("every.h"), Path("every.h.gch")
    if not every.exists():
        names = sorted(path.resolve() for path in Path("build").glob("__native_*.h"))
        every.write_text("".join(f'#include "{name}"\n' for name in names))
        with suppress(DistutilsExecError):
            compiler.spawn([*compiler.compiler_so, *arguments, "-x", "c-header", str(every), "-o", str(kept)])
    return ["-include", str(every)] if kept.exists() else []


def is_wanted() -> bool:
    asked = os.environ.get("STOMPBOX_COMPILE", "")
    if asked not in ("", "0", "1"):
        raise ValueError(f"STOMPBOX_COMPILE is {asked!r}; 1 compiles, 0 or nothing does not")
    return asked == "1"


if __name__ == "__main__":
    compile_here(sys.argv[1], sys.argv[2])
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class Compiling(BuildHookInterface[Any]):
        """Hatchling's side of it."""

        def dependencies(self) -> list[str]:
            """mypyc looks at the types of what is imported."""
            return [*BUILT_WITH, *self.metadata.core.dependencies] if is_wanted() else []

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            if not is_wanted():
                return
            if version == "editable":
                raise ValueError(
                    "STOMPBOX_COMPILE=1 compiles wheels: an editable installation runs its sources"
                )
            self.scratch = tempfile.TemporaryDirectory()
            folder = compiled(Path(os.environ.get("COMPILED_CACHE") or self.scratch.name))
            files = [path for path in folder.rglob("*") if path.is_file()]
            build_data["force_include"].update({str(path): str(path.relative_to(folder)) for path in files})
            build_data.update(pure_python=False, infer_tag=True)
