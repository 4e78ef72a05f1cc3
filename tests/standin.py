"""What Java starts, which has a copy be that instead: `python -ISs standin.py SOCKET PYTHON ARGUMENTS...` (forked.py).

It is there so that a start is cheap, and imports nothing that is not in the interpreter. What is no module is run by that Python itself.
"""

import _signal  # type: ignore[import-not-found, unused-ignore]
import _socket
import marshal
import os
import sys

LENGTH = 8  # as in forked.py
TOLD = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP)


def main(address: str, python: str, *arguments: str) -> None:
    if arguments[:1] != ("-m",):
        os.execv(python, [python, *arguments])
    copy = _socket.socket(_socket.AF_UNIX)
    copy.connect(address)
    octets = marshal.dumps(
        {
            "module": arguments[1],
            "arguments": arguments[2:],
            "folder": os.getcwd(),
            "environment": dict(os.environ),
        }
    )
    streams = b"".join([stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2)])
    copy.sendmsg([len(octets).to_bytes(LENGTH)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    copy.sendall(octets)
    pid = int.from_bytes(copy.recv(LENGTH))
    for number in TOLD:
        _signal.signal(number, lambda told, _: _tell(pid, told))
    code = os.waitstatus_to_exitcode(int.from_bytes(copy.recv(LENGTH)))
    if code < 0:
        if -code in TOLD:
            _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _tell(pid: int, number: int) -> None:
    try:  # noqa: SIM105  what that would have imported costs more than all else here
        os.kill(pid, number)
    except ProcessLookupError:  # it has ended, and how comes now
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
