"""The build that mypyc has compiled, as the tests of it want it: nothing is optimized, which would take twice as long.

`python -m tests.compiled.build` makes it ahead of them, in the folder that COMPILED_CACHE names.
"""

from __future__ import annotations

import os
from pathlib import Path

import hatch_build


def extensions(otherwise: Path) -> Path:
    """The folder of extension modules, in COMPILED_CACHE or, where nothing says so, in this one."""
    return hatch_build.compiled(Path(os.environ.get("COMPILED_CACHE") or otherwise), hatch_build.UNOPTIMIZED)


if __name__ == "__main__":
    hatch_build.compiled(Path(os.environ["COMPILED_CACHE"]), hatch_build.UNOPTIMIZED)
