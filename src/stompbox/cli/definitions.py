"""`stompbox definitions`, `stompbox permissions` and `stompbox settings`: what is defined at run time in a running broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from stompbox.cli.asking import ask, ask_text, every, plain, print_json, print_table
from stompbox.cli.connecting import counted, leaving
from stompbox.cli.examples import examples
from stompbox.cli.listing import Entry, Listing
from stompbox.cli.operating import Operation, sure, warned
from stompbox.cli.parameters import Admin, AllFlag, AsJson, Flag, Match, Yes
from stompbox.errors import UsageError
from stompbox.numerals import digits

app = App(name="definitions", help_epilogue=examples("definitions"))
permissions_app = App(name="permissions", help_epilogue=examples("permissions"))
settings_app = App(name="settings", help_epilogue=examples("settings"))

Host = Annotated[str | None, Parameter(name="--virtual-host", help="Of this virtual host.")]
Pattern = Annotated[str, Parameter(help="Which addresses: * one word, # any number of words.")]
_AS_IT_IS: Final = Operation()


@app.command(name="export")
def print_definitions(
    file: Annotated[Path | None, Parameter(help="Where to; else stdout.")] = None,
    /,
    *,
    every_one: Annotated[AllFlag, Parameter(help="Also what the configuration of the broker says.")] = False,
    admin: Admin = None,
) -> None:
    """Print users, permissions, settings, addresses and queues as TOML, with hashes in place of passcodes."""
    with leaving("definitions export"):
        text = ask_text(admin, f"definitions?all={'true' if every_one else 'false'}")
        if file is None:
            print(text, end="")
            return
        try:
            file.touch(mode=0o600)
            file.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError("bad-argument", f"{file} cannot be written: {error.strerror}") from None


@app.command(name="import")
def take(
    file: Annotated[Path | None, Parameter(help="An export; else stdin.")] = None,
    /,
    *,
    dry_run: Annotated[Flag, Parameter(help="Say what would be done, and do nothing.")] = False,
    replace: Annotated[
        Flag, Parameter(help="What was defined at run time before and is not in the file goes.")
    ] = False,
    yes: Yes = False,
    operation: Operation = _AS_IT_IS,
) -> None:
    """Take what `export` has printed, all of it or nothing: what is there by the same name is replaced."""
    with leaving("definitions import"):
        text = _read(file)
    if replace and not dry_run:
        sure("definitions import", "replace all that was defined at run time", yes=yes)

    def told(found: dict[str, Any]) -> list[str]:
        verb = "would be defined" if dry_run else "defined"
        kinds = {"users": "user", "permissions": "permission", "address_settings": "address setting"}
        counts = ", ".join([counted(found[kind], noun) for kind, noun in kinds.items()])
        made = f"{counted(found['addresses'], 'address')} and {counted(found['queues'], 'queue')}"
        return [f"{counts} {verb}; {made} {'would be ' if dry_run else ''}made", *warned(found)]

    order = {"toml": text, "is_dry_run": dry_run, "is_replacing": replace}
    operation.do("definitions import", "definitions", order, told)


def _read(file: Path | None) -> str:
    if file is None and sys.stdin is None:
        raise UsageError("bad-argument", "stdin is closed, and no file is given")
    try:
        octets = sys.stdin.buffer.read() if file is None else file.read_bytes()
        return octets.decode()
    except OSError as error:
        raise UsageError("bad-argument", f"{file or 'stdin'} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError("bad-argument", f"{file or 'stdin'}: byte {error.start} is not UTF-8") from None


# Permissions


@permissions_app.command(name="list", show=False)
@permissions_app.default
def permissions(match: Match = "", *, admin: Admin = None, listing: Listing = Listing()) -> None:  # noqa: B008 - a frozen value
    """List who may do what: groups by right and match, and where each was set."""
    columns = ("match", "virtual host", "right", "groups", "set at")

    def fetch() -> list[Entry]:
        return [
            {
                "match": one["match"],
                "virtual_host": one["virtual_host"] or "",
                "right": right,
                "groups": groups,
            }
            | {"source": one["source"]}
            for one in every(admin, "permissions", match=match)
            for right, groups in (one["grants"] or {"": []}).items()
        ]

    listing.show(
        "permissions", columns, fetch,
        lambda one: (one["match"], one["virtual_host"], one["right"], ", ".join(one["groups"]), one["source"]),
    )  # fmt: skip


@permissions_app.command(name="set")
def grant(
    match: Pattern,
    /,
    *,
    grant: Annotated[
        list[str] | None,
        Parameter(
            consume_multiple=False,
            negative="",
            help="RIGHT=GROUP,GROUP such as send=sellers; may be given several times.",
        ),
    ] = None,
    virtual_host: Host = None,
    operation: Operation = _AS_IT_IS,
) -> None:
    """Say who may do what with addresses. Of all that match an address the most specific one alone decides."""
    with leaving("permissions set"):
        grants = {
            right: _words(groups) for right, groups in _pairs("--grant", grant or [], "RIGHT=GROUP,GROUP")
        }
    order = {"match": match, "grants": grants, "virtual_host": virtual_host}
    told = f"permission for {match} is set"
    operation.do("permissions set", "permissions/set", order, lambda found: [told, *warned(found)])


@permissions_app.command(name="delete")
def revoke(
    match: Pattern, /, *, virtual_host: Host = None, yes: Yes = False, operation: Operation = _AS_IT_IS
) -> None:
    """Take away what was defined at run time for a match."""
    sure("permissions delete", f"delete the permission for {match}", yes=yes)
    order = {"match": match, "virtual_host": virtual_host}
    told = f"permission for {match} deleted"
    operation.do("permissions delete", "permissions/delete", order, lambda found: [told, *warned(found)])


# Settings


@settings_app.default
def settings(
    address: Annotated[str, Parameter(help="Name of the address, which need not be there.")],
    /,
    *,
    every_one: Annotated[AllFlag, Parameter(help="Also those that nobody has set.")] = False,
    admin: Admin = None,
    as_json: AsJson = False,
) -> None:
    """List the settings that an address obeys, which match says so, and where that was set."""
    from urllib.parse import quote

    with leaving("settings"):
        found = ask(admin, f"settings?address={quote(address, safe='')}")["settings"]
        if as_json:
            print_json(found)
            return
        rows = [
            (key, _shown(one["value"]), one["match"] or "", one["source"])
            for key, one in found.items()
            if every_one or one["match"] is not None
        ]
        if not rows:
            print(
                f"nobody has set anything for address {plain(address)}; --all shows what it obeys by default"
            )
            return
        print_table(("setting", "value", "match", "set at"), rows)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


@settings_app.command(name="set")
def set_settings(
    match: Pattern,
    /,
    *settings: Annotated[str, Parameter(help="KEY=VALUE, such as max-size-bytes=1GiB; KEY= takes it away.")],
    virtual_host: Host = None,
    operation: Operation = _AS_IT_IS,
) -> None:
    """Change settings of addresses; those that are there obey them at once."""
    with leaving("settings set"):
        if not settings:
            raise UsageError("bad-argument", "there is nothing to set; KEY=VALUE is missing")
        values = {key: _value(text) for key, text in _pairs("a setting", settings, "KEY=VALUE")}
    order = {"match": match, "settings": values, "virtual_host": virtual_host}
    told = f"settings of {match} are set"
    operation.do("settings set", "settings/set", order, lambda found: [told, *warned(found)])


@settings_app.command(name="delete")
def delete_settings(
    match: Pattern, /, *, virtual_host: Host = None, yes: Yes = False, operation: Operation = _AS_IT_IS
) -> None:
    """Take away what was defined at run time for a match."""
    sure("settings delete", f"delete the settings of {match}", yes=yes)
    order = {"match": match, "virtual_host": virtual_host}
    told = f"settings of {match} deleted"
    operation.do("settings delete", "settings/delete", order, lambda found: [told, *warned(found)])


def _pairs(what: str, given: list[str] | tuple[str, ...], form: str) -> list[tuple[str, str]]:
    found = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError("bad-argument", f"{what} is {text!r}; allowed is {form}")
        found.append((name, value))
    return found


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _value(text: str) -> Any:
    """As a file has it: a number, true or false, or a text. Nothing takes the key away."""
    if text == "":
        return None
    if text in ("true", "false"):
        return text == "true"
    number = digits(text.removeprefix("-"))
    return text if number is None else -number if text.startswith("-") else number
