"""CONNECT, STOMP and DISCONNECT: versions, heart-beats, logins, limits of connections.

The session is in CONNECTING from the frame on, and nothing is obeyed in it; `_connected` alone opens it, when CONNECTED is written.
Whatever is raised before closes the connection, in every version (Connection.refuse).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from stompbox import __version__
from stompbox.broker.addresses.notifications import Event
from stompbox.config.spaces import MARK, is_inside
from stompbox.errors import IllegalFrame, Refused, StompboxError
from stompbox.security import CERTIFICATE, User
from stompbox.server import notifications
from stompbox.server.addressing.brokerheaders import AddedHeaders
from stompbox.server.closings import DISCONNECTED
from stompbox.server.frames import uploads
from stompbox.server.hosts import admit
from stompbox.server.logins import Login
from stompbox.stomp.codec import encode
from stompbox.stomp.frames import Frame
from stompbox.stomp.heartbeat import Agreement, agree
from stompbox.stomp.versions import V10

if TYPE_CHECKING:
    from stompbox.server.frames.speaker import Speaker


def connect(connection: Speaker, frame: Frame) -> None:
    """Looks at version, heart-beat and login; a hashed passcode is verified off the loop."""
    options = connection.options
    asked = frame.headers.get("heart-beat") if connection.session.version.heart_beats else None
    agreement = agree(asked, options)
    if options.require_host and connection.session.version is not V10 and "host" not in frame.headers:
        raise IllegalFrame("missing-host", f"{frame.command} needs a host header here", closes=True)
    # one that is not here is refused before anybody looks at a login
    connection.broker.hosts.find(frame.headers.get("host"))
    _check_names(frame)
    login, passcode = frame.headers.get("login"), frame.headers.get("passcode")
    name = connection.transport.certificate_name if login is None and passcode is None else ""
    if options.require_login and not name and (login is None or passcode is None):
        raise Refused("login-required", "login and passcode are required")
    broker = connection.broker
    if not len(broker.users):
        _connected(connection, frame, agreement, Login(User(login or name)))
        return
    if name:
        found = Login(broker.users.by_certificate(name), CERTIFICATE)
        _connected(connection, frame, agreement, found)
        return
    connection.reading.hold()
    broker.spawn(_authenticate(connection, frame, agreement), connection)


def _check_names(frame: Frame) -> None:
    """Names of a client's own become part of others inside the broker, so they must not look like those of a virtual host."""
    for header in ("client-id", "login"):
        if is_inside(frame.headers.get(header, "")):
            text = f"header {header} is {frame.headers[header][:80]!r}; names that begin with {MARK!r} are the broker's own"
            raise IllegalFrame("reserved-name", text, closes=True)


async def _authenticate(connection: Speaker, frame: Frame, agreement: Agreement) -> None:
    broker, headers = connection.broker, frame.headers
    try:
        login = await broker.logins.log_in(
            connection.peer, headers.get("login"), headers.get("passcode"), lambda: connection.is_ended
        )
        if not connection.is_ended:
            _connected(connection, frame, agreement, login)
    except StompboxError as error:
        _refuse(connection, frame, error)
        error.__traceback__ = None  # it is kept by the answer that it was, which the traceback refers to
    finally:
        if not broker.is_stopping:
            connection.reading.go_on()


def _refuse(connection: Speaker, frame: Frame, error: StompboxError) -> None:
    """A login that was looked at for a while: nobody waits for the exception any more."""
    if not connection.is_ended:
        connection.refuse(error, frame)
        connection.end(is_failure=False)
        connection.write_out()


def _connected(connection: Speaker, frame: Frame, agreement: Agreement, login: Login) -> None:
    broker, options, version = connection.broker, connection.options, connection.session.version
    space = admit(broker.hosts.find(frame.headers.get("host")), login.user)
    broker.enter(connection, login)  # the last thing that can be refused
    connection.enter_host(frame.headers.get("host"), space, frame.headers.get("client-id", ""))
    connection.decoder.version = version
    connection.decoder.logged_in = True
    if connection.transform is None:  # which looks at each frame by itself
        connection.decoder.runs = broker.reader(version.name, options)
    connection.added_headers = _added_headers(connection)
    uploads.prepare(connection)
    headers = {"version": version.name, "session": f"{broker.engine.epoch}-{connection.session_id}"}
    if version.heart_beats:
        headers["heart-beat"] = f"{agreement.server_sends_ms},{agreement.client_sends_ms}"
    if not options.disable_stomp_server_header:
        headers["server"] = f"Stompbox/{__version__}"
    for asked, told in (("request-id", "response-id"), ("receipt", "receipt-id")):
        if asked in frame.headers and "\n" not in frame.headers[asked]:
            headers[told] = frame.headers[asked]
    connection.out.append(encode(Frame("CONNECTED", headers), version))
    connection.session.open()
    connection.agree(agreement)
    notifications.tell(connection, Event.CONNECTION_CREATED)


def _added_headers(connection: Speaker) -> AddedHeaders | None:
    """What becomes of the headers of its SENDs, if anything."""
    configuration = connection.broker.configuration
    added = AddedHeaders(
        connection.options, connection.user.name, connection.broker.numbers,
        shows_user=configuration.populate_validated_user, needs_user=configuration.reject_empty_validated_user,
    )  # fmt: skip
    return None if added.is_idle else added


def disconnect(connection: Speaker, frame: Frame) -> None:
    """Aborts, gives back, then says RECEIPT: when it arrives all that was sent is where it belongs."""
    connection.end(is_failure=False, then=partial(_answer_last, connection, frame), why=DISCONNECTED)


def _answer_last(connection: Speaker, frame: Frame) -> None:
    connection.answer(frame, waits=connection.broker.is_unsaved)
