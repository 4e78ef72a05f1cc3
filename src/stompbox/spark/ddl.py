"""The columns of rows as Spark's DDL names them, and what a user's own columns (option `schema`) may be called and be.

    columns  column {, column}
    column   name type [NOT NULL] [COMMENT 'text']
    field    name [:] type [NOT NULL] [COMMENT 'text']
    type     INT, STRING and the like | DECIMAL[(precision[, scale])] | ARRAY<type> | MAP<type, type> | STRUCT<[field {, field}]>

Decides what of Spark's grammar is taken here: all of it whose values a body can hold. What Spark would refuse is refused first, with the
field and the place in the option; Spark's own words count from the beginning of our columns, and come with a stack.
Loads no library, so that Spark finds the source `stomp` without loading what only a query needs.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NoReturn

from stompbox.errors import UsageError
from stompbox.numerals import ANY, digits

TYPES: Final = {  # as Spark names them
    "address": "string",
    "offset": "bigint",
    "timestamp": "timestamp",
    "destination": "string",
    "headers": "map<string,string>",
    "body": "binary",
}
_PLAIN: Final = (  # types of one word
    "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL", "DOUBLE",
    "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "STRING", "BINARY",
)  # fmt: skip
_DECIMAL: Final = ("DECIMAL", "DEC", "NUMERIC")
_NESTED: Final = ("ARRAY", "MAP", "STRUCT")
_DDL: Final = frozenset((*_PLAIN, *_DECIMAL, *_NESTED))  # the first word of a type
_ALLOWED: Final = (
    "BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), DATE, TIMESTAMP, TIMESTAMP_NTZ, STRING, BINARY, "
    "ARRAY<type>, MAP<STRING,type> and STRUCT<name: type, ...>"
)
_COLLATIONS: Final = ("UTF8_BINARY", "UTF8_LCASE", "UNICODE", "UNICODE_CI")
MOST_DIGITS: Final = 38  # of a DECIMAL, in Spark and Arrow alike
DEEPEST: Final = 50  # types in each other
SHOWN: Final = 40  # characters of what was found

_TOKEN: Final = re.compile(
    r"""(?:\s|--[^\n]*|/\*.*?\*/)*                                 # blanks and comments
    (?:(?P<quoted>`(?:[^`]|``)+`)|(?P<word>\w+)
    |(?P<text>r?'(?:[^'\\]|\\.|'')*'|r?"(?:[^"\\]|\\.|"")*")|(?P<sign>.)|$)""",
    re.DOTALL | re.VERBOSE,
)
# what looks like one is no name
_NUMBER: Final = re.compile(r"\d+(?:[LSY]|(?:E\d+)?(?:D|F|BD)?)?", re.IGNORECASE)


class _Token(NamedTuple):
    kind: str  # quoted, word, text, sign; empty at the end
    text: str
    position: int  # in the option, from 1

    def says(self, *words: str) -> bool:
        return self.kind in ("word", "sign") and self.text.upper() in words


def check_columns(schema: str, *taken: str) -> str:
    """The columns as they are read, empty where there are none: without NOT NULL, as Spark's from_json has it, for any body may lack a
    value. `taken`: names besides our own that a column may not have. Raises UsageError: which field is wrong, and where."""
    names = {name.lower() for name in (*TYPES, *taken)}
    if not schema.strip():
        return ""
    reader = _Reader(schema)
    for name in reader.columns():
        if name.lower() in names:
            raise UsageError(
                "bad-option",
                f"option 'schema' names the column {name!r}, which is there already; take another name",
            )
        names.add(name.lower())
    for first, last in reversed(reader.demands):
        schema = schema[: first.position - 1] + schema[last.position - 1 + len(last.text) :]
    return schema


class _Reader:
    """Reads an option `schema` from left to right."""

    def __init__(self, schema: str) -> None:
        self._tokens = list(_tokens(schema))
        self._at = 0
        self._path: list[str] = []  # names of the field that is being read, from the column on
        self._depth = 0
        self.demands: list[tuple[_Token, _Token]] = []  # NOT and NULL

    def columns(self) -> list[str]:
        names = [self._field("column")]
        while self._takes(","):
            names.append(self._field("column"))
        if self._next.kind:
            self._refuse("expected a comma or the end after the column")
        return names

    def _field(self, what: str) -> str:
        name = self._name(what)
        self._path.append(name)
        if self._next.says(":"):
            if what == "column":
                self._refuse(f"between a column and its type stands a blank: {_written(name)} STRING")
            self._at += 1
        self._type()
        if self._takes("NOT"):
            if not self._takes("NULL"):
                self._refuse("expected NULL after NOT")
            self.demands.append((self._tokens[self._at - 2], self._tokens[self._at - 1]))
        if self._takes("COMMENT"):
            if self._next.kind != "text":
                self._refuse("expected a text in quotes after COMMENT")
            self._at += 1
        self._path.pop()
        return name

    def _name(self, what: str) -> str:
        token = self._next
        if token.kind == "quoted":
            self._at += 1
            return token.text[1:-1].replace("``", "`")
        if token.kind != "word" or _NUMBER.fullmatch(token.text):
            self._refuse(f"expected the name of a {what}; allowed is Spark DDL: carrier STRING, delay INT")
        if not token.text.isascii():
            self._refuse(
                f"a name with other letters than a to z stands in backquotes: {_written(token.text)}"
            )
        self._at += 1
        if self._next.kind == "sign" and not self._next.says(":", ",", "<", ">", "(", ")"):
            self._refuse(
                f"after the name {token.text!r} a type is expected; a name with such characters stands in backquotes"
            )
        return token.text

    def _type(self) -> None:
        token = self._next
        word = token.text.upper()
        if token.kind != "word" or word not in _DDL:
            self._refuse(f"expected a type; allowed are {_ALLOWED}")
        self._at += 1
        if word in _DECIMAL:
            self._decimal(word)
        elif word in _NESTED:
            self._nested(word)
        elif self._next.says("(", "<"):
            self._refuse(f"{word} has no parts; write {word} alone")
        elif word == "STRING" and self._takes("COLLATE"):
            self._one_of(_COLLATIONS)
        elif word == "TIMESTAMP":
            self._time_zone()

    def _decimal(self, word: str) -> None:
        if not self._takes("("):
            return
        precision = self._number(f"the precision of {word}", 1, MOST_DIGITS)
        if self._takes(","):
            self._number(f"the scale of {word}", 0, precision)
        self._close(")", f"{word}({precision}")

    def _number(self, what: str, least: int, most: int) -> int:
        token = self._next
        allowed = f"{what} is a number from {least} to {most}"
        found = digits(token.text, ANY) if token.kind == "word" else None
        if found is None:
            self._refuse(f"expected a number; {allowed}")
        if len(token.text) > 9 or not least <= found <= most:
            self._refuse(allowed)
        self._at += 1
        return found

    def _nested(self, word: str) -> None:
        form = {
            "ARRAY": "ARRAY<type>",
            "MAP": "MAP<key type, value type>",
            "STRUCT": "STRUCT<name: type, ...>",
        }[word]
        if self._depth == DEEPEST:
            self._refuse(f"types are nested deeper than {DEEPEST}")
        if not self._takes("<"):
            self._refuse(f"expected < after {word}; write {form}")
        self._depth += 1
        if word == "STRUCT":
            self._fields()
        else:
            self._type()
            if word == "MAP":
                if not self._takes(","):
                    self._refuse(f"expected a comma and the type of the values; write {form}")
                self._type()
        self._close(">", form)
        self._depth -= 1

    def _fields(self) -> None:
        names: set[str] = set()
        while not self._next.says(">") or names:
            position = self._at
            name = self._field("field")
            if name in names:
                self._at = position
                self._refuse(f"the field {name!r} is there already; take another name")
            names.add(name)
            if not self._takes(","):
                return

    def _time_zone(self) -> None:
        if self._takes("WITHOUT") or self._takes("WITH"):
            if self._tokens[self._at - 1].says("WITH"):
                self._one_of(("LOCAL",))
            self._one_of(("TIME",))
            self._one_of(("ZONE",))

    def _one_of(self, words: tuple[str, ...]) -> None:
        if not self._takes(*words):
            self._refuse(f"expected {' or '.join(words)}")

    def _close(self, sign: str, form: str) -> None:
        if not self._takes(sign):
            self._refuse(f"expected {sign} at the end of {form}")

    def _takes(self, *words: str) -> bool:
        if not self._next.says(*words):
            return False
        self._at += 1
        return True

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _refuse(self, problem: str) -> NoReturn:
        token = self._next
        found = f"found {token.text[:SHOWN]!r}" if token.kind else "found its end"
        field = ".".join(self._path)
        place = f"option 'schema', position {token.position}" + (
            f", field {field[: 2 * SHOWN]!r}" if field else ""
        )
        raise UsageError("bad-option", f"{place}: {found}; {problem}")


def _tokens(schema: str) -> list[_Token]:
    """The tokens of a schema, and its end."""
    found, at = [], 0
    while at < len(schema):
        match = _TOKEN.match(schema, at)
        assert match is not None  # whatever comes is at the least a sign, or the end
        if match.lastgroup is not None:
            found.append(_Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup) + 1))
        at = match.end()
    return [*found, _Token("", "", len(schema) + 1)]


def _written(name: str) -> str:
    """A name as a schema has it, quoted where it must be."""
    return name if re.fullmatch(r"\w+", name, re.ASCII) else "`" + name.replace("`", "``") + "`"


def refuse_types(name: str, kind: str, format_: str) -> None:
    """Raises UsageError where a type, as Spark writes it, has one in it that no body can hold: struct<v:variant>, say."""
    for word in re.findall(r"(?:^|[<:,])(\w+)(?=$|[<(>,])", kind):
        if word.upper() not in _DDL:
            raise UsageError(
                "bad-option",
                f"option 'schema': column {name!r} of type {kind} cannot be read from {format_}: {word} is none",
            )
