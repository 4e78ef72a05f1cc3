"""A fuzz target for the codec. Not run by the tests: they use mutation.py with fixed seeds.

    python tests/fuzz/fuzz_codec.py                     atheris (pip install atheris), until it is stopped
    python tests/fuzz/fuzz_codec.py -max_total_time=60  libFuzzer's options work
    python tests/fuzz/fuzz_codec.py --plain 100000      without atheris: so many mutations of the table of cases

Anything that it raises is a bug: FrameError, the one exception of the contract, is caught in mutation.py.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))


def run_plain(rounds: int) -> None:
    from tests.fuzz.mutation import Mutator, check

    mutator = Mutator(seed := 0)
    for _ in range(rounds):
        data, cuts, version, is_server, logged_in = mutator.next()
        check(data, cuts, version, is_server=is_server, logged_in=logged_in)
    print(f"{rounds} inputs, seed {seed}: the codec kept its contract")


def run_atheris() -> None:
    import atheris

    with atheris.instrument_imports(include=["stompbox.stomp"]):
        from stompbox.stomp.versions import VERSIONS
        from tests.conformance.cases import CASES
        from tests.fuzz.mutation import check

    versions = list(VERSIONS.values())

    def target(octets: bytes) -> None:
        """The first octet chooses version and side, the next four where the rest is cut."""
        choice = octets[0] if octets else 0
        check(
            octets[5:],
            list(octets[1:5]),
            versions[choice % 3],
            is_server=choice & 64 == 0,
            logged_in=choice & 128 == 0,
        )

    with tempfile.TemporaryDirectory() as corpus:
        for at, case in enumerate(CASES):
            choice = versions.index(VERSIONS[case.versions[-1]]) + (66 if case.sender == "server" else 0)
            (Path(corpus) / str(at)).write_bytes(bytes([choice, 3, 9, 30, 40]) + case.data)
        atheris.Setup([*sys.argv, corpus], target)
        atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--plain"]:
        run_plain(int(sys.argv[2]) if len(sys.argv) > 2 else 100_000)
    else:
        run_atheris()
