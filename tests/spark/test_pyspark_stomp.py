"""What Spark's search for sources meets: a module that imports nothing and never fails."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, pyspark_stomp; print([name for name in ('pyspark', 'pyarrow', 'numpy', 'stompbox') if name in sys.modules])"
    assert run(code).stdout == "[]\n"


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "numpy", "pyspark.sql.streaming.datasource"])
def test_without_its_libraries_it_is_as_if_not_there(missing: str) -> None:
    found = run(f"import sys; sys.modules[{missing!r}] = None; import pyspark_stomp; print(hasattr(pyspark_stomp, 'DefaultSource'))")
    assert found.stdout == "False\n"
    assert "the Spark data source 'stomp' is not available" in found.stderr
    assert "pip install 'stompbox[spark]'" in found.stderr


def test_the_source() -> None:
    pytest.importorskip("pyspark")
    import pyspark_stomp
    from stompbox.spark.source import StompSource

    assert pyspark_stomp.DefaultSource is pyspark_stomp.StompSource is StompSource
    assert pyspark_stomp.DefaultSource.name() == "stomp"
    assert "DefaultSource" in dir(pyspark_stomp)
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        _ = pyspark_stomp.Other
