"""What an operator does to whole addresses: pause and resume their queues, block what comes in. Forgotten at restart."""

from __future__ import annotations

from stompbox.broker.addresses.address import Address


def pause(address: Address) -> None:
    """Nothing goes out of its queues, nor of those that are made later; what is sent is kept."""
    address.is_paused = True
    for queue in list(address.queues()):
        queue.pause()


def resume(address: Address) -> None:
    address.is_paused = False
    for queue in list(address.queues()):
        queue.resume()


def block(address: Address) -> None:
    """A SEND gets an ERROR; consumers go on."""
    address.is_blocked = True


def unblock(address: Address) -> None:
    address.is_blocked = False
