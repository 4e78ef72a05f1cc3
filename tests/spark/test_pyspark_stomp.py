"""What Spark's search for sources meets: a module that imports nothing and never fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
def test_a_library_that_is_missing_is_named_before_a_worker_of_sparks_imports_it(missing: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None; import pyspark_stomp; from stompbox.errors import UsageError\n"
        "try: pyspark_stomp.DefaultSource({'url': 'stomp://127.0.0.1:1', 'destination': '/queue/a'})\n"
        "except UsageError as fault: print(fault)"
    )
    assert f"No module named {missing!r}" in run(code).stdout
    assert (
        "pip install 'stompbox[spark]', or where there is a Spark already pip install 'pyspark-stomp[arrow]'"
        in run(code).stdout
    )


@pytest.mark.parametrize("package", ["pyarrow", "numpy"])
@pytest.mark.parametrize("method", ["reader", "streamReader", "writer", "streamWriter"])
def test_a_library_that_cannot_be_loaded_is_named_by_the_query_that_needs_it(
    package: str, method: str, tmp_path: Path
) -> None:
    (tmp_path / f"{package}.py").write_text("raise ImportError(f'{__name__} is of another platform')")
    given = ["schema", "False"] if "riter" in method else ["schema"]
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pyspark_stomp; from stompbox.errors import UsageError\n"
        "from pyspark.sql.types import StringType, StructField, StructType\n"
        "schema = StructType([StructField('body', StringType())])\n"
        "source = pyspark_stomp.DefaultSource({'url': 'stomp://127.0.0.1:1', 'destination': '/queue/a'})\n"
        f"try: source.{method}({', '.join(given)})\n"
        "except UsageError as fault: print(fault)"
    )
    assert f"{package} is of another platform; the data source 'stomp' needs" in run(code).stdout


@pytest.mark.parametrize(
    ("missing", "version"), [("pyspark", "and there is none"), ("pyspark.sql.datasource", "and this is 4.")]
)
def test_without_data_sources_it_is_as_if_not_there(missing: str, version: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import pyspark_stomp; print(hasattr(pyspark_stomp, 'DefaultSource'))\n"
    found = run(
        code + "try: from pyspark_stomp import StompSource\nexcept ImportError as fault: print(fault)"
    )
    assert found.stdout.startswith("False\nthe Spark data source 'stomp' is not available: ")
    assert f"it needs pyspark 4.0 or newer, {version}" in found.stdout
    assert "the Spark data source 'stomp' is not available" in found.stderr
    assert "pip install 'stompbox[spark]'" in found.stderr


def test_what_needs_pyspark_says_what_to_install() -> None:
    code = "import sys; sys.modules['pyspark'] = None\ntry: from stompbox.spark import observed\nexcept ImportError as fault: print(fault)"
    assert "pyspark" in run(code).stdout
    assert "pip install 'stompbox[spark]'" in run(code).stdout


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
