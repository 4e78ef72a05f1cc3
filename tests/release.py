"""What `make release` has built, tried as a user would: `python -m tests.release dist`.

Both distributions as wheels, then both as sources, then Stompbox as mypyc has compiled it beside the other one's wheel, each pair in a
fresh virtual environment with what pip brings for them: the command says its version and which build it is, a broker starts, a message
that `stompbox send` sends is what `stompbox subscribe` prints, and the Spark source is there.
Exit status 1, and what was said, when one of it is not so.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import stompbox

ROOT = Path(__file__).resolve().parent.parent
PURE, SOURCES, COMPILED = "-py3-none-any.whl", ".tar.gz", "-cp*.whl"  # how the names of their files end
KINDS = {  # of stompbox and of pyspark_stomp, and what `stompbox --version --verbose` says then
    "wheels": (PURE, PURE, "pure Python"),
    "sources": (SOURCES, SOURCES, "pure Python"),
    "compiled": (COMPILED, PURE, "compiled by mypyc"),
}
NAMES = ("stompbox", "pyspark_stomp")
BODY = "42 apples"
WITHIN = 60  # seconds for a command; pip has WITHIN_PIP
WITHIN_PIP = 600


class Unfit(Exception):
    """Nothing to be released; the text says why."""


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve()
    try:
        for kind, (*endings, build) in KINDS.items():
            files = [built(folder, name, ending) for name, ending in zip(NAMES, endings, strict=True)]
            with tempfile.TemporaryDirectory(prefix="stompbox-release-") as fresh:
                checked(Path(fresh), files, build)
            print(
                f"{kind}: {', '.join(file.name for file in files)}: installed, and a message was sent and received",
                flush=True,
            )
    except Unfit as fault:
        sys.exit(f"release: {fault}")


def built(folder: Path, name: str, ending: str) -> Path:
    """The one file of a distribution, in this version."""
    wanted = f"{name}-{stompbox.__version__}{ending}"
    files = sorted(folder.glob(wanted))
    if len(files) != 1:
        there = ", ".join(sorted(file.name for file in folder.iterdir()))
        raise Unfit(f"{folder} should have one {wanted}, and has {there or 'nothing'}")
    return files[0]


def checked(folder: Path, files: Sequence[Path], build: str) -> None:
    run([sys.executable, "-m", "venv", folder / "venv"])
    bin = folder / "venv" / "bin"
    run(
        [
            bin / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--constraint",
            ROOT / "requirements.lock",
            *files,
        ],
        within=WITHIN_PIP,
    )
    said = run([bin / "stompbox", "--version", "--verbose"], folder)
    if not said.startswith(f"{stompbox.__version__}, {build}, "):
        raise Unfit(
            f"stompbox --version --verbose says {said!r}, and this is {stompbox.__version__}, {build}"
        )
    run(
        [
            bin / "python",
            "-c",
            "import stompbox, pyspark_stomp; assert 'site-packages' in stompbox.__file__, stompbox.__file__",
        ],
        folder,
    )
    delivered(bin, folder)


def delivered(bin: Path, folder: Path) -> None:
    """A broker from this environment, with a store."""
    command = [
        bin / "stompbox",
        "serve",
        "--listen",
        "tcp://127.0.0.1:0",
        "--no-admin",
        "--data",
        folder / "data",
    ]
    with subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, text=True, cwd=folder
    ) as broker:
        assert broker.stdout is not None
        try:
            lines = iter(broker.stdout.readline, "")
            url = next(
                (f"stomp://{line.split('tcp://')[1].split()[0]}" for line in lines if "tcp://" in line), None
            )
            if url is None:
                raise Unfit("the broker ended before it listened")
            run([bin / "stompbox", "send", "--url", url, "/queue/release", BODY], folder)
            got = run(
                [
                    bin / "stompbox",
                    "subscribe",
                    "--url",
                    url,
                    "/queue/release",
                    "--count",
                    "1",
                    "--timeout",
                    str(WITHIN),
                ],
                folder,
            )
        finally:
            broker.terminate()
    if got.strip() != BODY:
        raise Unfit(f"{BODY!r} was sent and {got!r} received")
    if broker.returncode:
        raise Unfit(f"the broker ended with {broker.returncode}")


def run(command: Sequence[str | Path], folder: Path = ROOT, within: int = WITHIN) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=within, check=False)
    if done.returncode:
        raise Unfit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
