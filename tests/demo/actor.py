"""An actor for the tests of the stage, `python -m tests.demo.actor <what>`; it ends by itself only when it is told to.

ready      says so, prints a line that is no fact, waits for `finish`
family     the same with a child in a process group of its own, as Spark's Python workers are; says the child's id
failing    ends at once with exit code 1
silent     says nothing
"""

from __future__ import annotations

import os
import subprocess
import sys

from demo.lines import order_given, say

LONG = "import sys; sys.stdin.read()"


def main(what: str) -> None:
    if what == "failing":
        sys.exit("something is wrong here")
    told = order_given("finish")
    if what == "family":
        child = subprocess.Popen([sys.executable, "-c", LONG], stdin=subprocess.PIPE, process_group=0)
        say(child=child.pid, parent=os.getpid())
    if what != "silent":
        print("no fact", flush=True)
        say(ready=True, round=1)
        say(round=2)
    told.wait()
    say(finished=True)


if __name__ == "__main__":
    main(sys.argv[1])
