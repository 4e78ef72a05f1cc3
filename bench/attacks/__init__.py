"""What a hostile client does, a function an attack: each connects by itself, sends its bytes and stays until it is told to go.

Decides what is sent; hostile.py measures the others.
"""

from bench.attacks import answering, composed, fanning, frames, many, matching, memory, secured  # noqa: F401 - each notes its attacks in ATTACKS
from bench.attacks.attacker import ATTACKS

__all__ = ["ATTACKS"]
