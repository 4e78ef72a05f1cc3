"""`python -m stompbox` is `stompbox`."""

from stompbox.cli import main

main()
