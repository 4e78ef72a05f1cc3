"""Which worker of `make test` has which file. Those of a process share one session of Spark, whose Java has to load and compile what it
runs, a minute of a processor: so few workers have the rooms of Spark, from the beginning on, and the others come to them last.
"""

from __future__ import annotations

from typing import Any, Final

from xdist.scheduler import LoadFileScheduling

ROOMS: Final = ("tests/pipelines/", "tests/spark/")
SESSIONS: Final = 2  # of three workers: one alone would be the last to come to its end


class Files(LoadFileScheduling):
    """A file is one worker's, as with `--dist loadfile`; this decides whose."""

    def _assign_work_unit(self, node: Any) -> None:
        has_session = self.nodes.index(node) < SESSIONS
        for file in self.workqueue:
            if file.startswith(ROOMS) == has_session:
                self.workqueue.move_to_end(file, last=False)
                break
        super()._assign_work_unit(node)
