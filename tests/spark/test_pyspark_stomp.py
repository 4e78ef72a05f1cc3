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


def test_finding_the_source_loads_no_library_that_a_query_alone_needs() -> None:
    code = "import sys, pyspark_stomp as p; p.DefaultSource.name(); print([n for n in ('pyarrow', 'numpy', 'pandas') if n in sys.modules])"
    assert run(code).stdout == "[]\n"


@pytest.mark.parametrize("missing", ["pyarrow", "numpy"])
@pytest.mark.parametrize("method", ["reader", "streamReader", "writer", "streamWriter"])
def test_a_library_that_is_missing_is_named_by_the_query_that_needs_it(missing: str, method: str) -> None:
    given = ["schema", "False"] if "riter" in method else ["schema"]
    code = (
        f"import sys; sys.modules[{missing!r}] = None; import pyspark_stomp; from stompbox.errors import UsageError\n"
        "from pyspark.sql.types import StringType, StructField, StructType\n"
        "schema = StructType([StructField('body', StringType())])\n"
        "source = pyspark_stomp.DefaultSource({'url': 'stomp://127.0.0.1:1', 'destination': '/queue/a'})\n"
        f"try: source.{method}({', '.join(given)})\n"
        "except UsageError as fault: print(fault)"
    )
    assert missing in run(code).stdout
    assert (
        "pip install 'stompbox[spark]', or where there is a Spark already pip install 'pyspark-stomp[arrow]'"
        in run(code).stdout
    )


@pytest.mark.parametrize(
    ("missing", "version"), [("pyspark", "and there is none"), ("pyspark.sql.datasource", "and this is 4.")]
)
def test_without_data_sources_it_is_as_if_not_there(missing: str, version: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import pyspark_stomp; print(hasattr(pyspark_stomp, 'DefaultSource'))\n"
    found = run(code + "try: pyspark_stomp.StompSource\nexcept AttributeError as fault: print(fault)")
    assert found.stdout.startswith("False\nthe Spark data source 'stomp' is not available: ")
    assert f"it needs pyspark 4.0 or newer, {version}" in found.stdout
    assert "the Spark data source 'stomp' is not available" in found.stderr
    assert "pip install 'stompbox[spark]'" in found.stderr


def test_the_source() -> None:
    pytest.importorskip("pyspark")
    import pyspark_stomp
    from stompbox.spark.datasource import StompSource

    assert pyspark_stomp.DefaultSource is pyspark_stomp.StompSource is StompSource
    assert pyspark_stomp.DefaultSource.name() == "stomp"
    assert "DefaultSource" in dir(pyspark_stomp)
    assert pyspark_stomp.ProgressListener.__name__ == "ProgressListener"
    assert pyspark_stomp.observed.__name__ == "observed"
    with pytest.raises(AttributeError, match="no attribute 'Other'"):
        _ = pyspark_stomp.Other
