"""The client library: any STOMP broker (1.0, 1.1, 1.2) over TCP, TLS or WebSocket, on asyncio. Without async: stompbox.blocking.

From bottom to top: url, outgoing, options, message, refusal, runs, wire and websocket, intake (all without I/O); protocol (one
connection as octets in, events out); connection (asyncio); link (what survives a connection); handlers,
subscription, publisher, transaction; client.
"""

from __future__ import annotations

from stompbox.client.client import Client, connect
from stompbox.client.link import ClientState
from stompbox.client.message import Message, ReceivedMessage
from stompbox.client.options import TLS, Reconnect
from stompbox.client.publisher import Publisher
from stompbox.client.refusal import BrokerError
from stompbox.client.subscription import Subscription
from stompbox.client.transaction import Transaction

__all__ = [
    "TLS",
    "BrokerError",
    "Client",
    "ClientState",
    "Message",
    "Publisher",
    "ReceivedMessage",
    "Reconnect",
    "Subscription",
    "Transaction",
    "connect",
]
