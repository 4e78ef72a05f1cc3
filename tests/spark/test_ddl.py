"""The columns of rows, and a user's own: what is taken, and that Spark takes it too."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from stompbox.errors import UsageError
from stompbox.spark.ddl import DEEPEST, check_columns, refuse_types

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD = [
    "a INT",
    "a INT, `b c` STRING",
    "s STRUCT<x: INT, y: ARRAY<STRING>>, d DECIMAL(5,2)",
    "a decimal, b DEC(38), c NUMERIC ( 38 , 38 ), d DECIMAL(1,0)",
    "a INT NOT NULL, b STRUCT<x INT NOT NULL COMMENT 'x>y, z'> COMMENT \"it''s\"",
    "m MAP<STRING, MAP<STRING, ARRAY<STRUCT<>>>>, `a``b` INT",
    "a /* one, two */ INT -- and\n, b INT",
    "select INT, int INT, 1a INT, _ INT",
    "t TIMESTAMP WITHOUT TIME ZONE, u TIMESTAMP WITH LOCAL TIME ZONE, v TIMESTAMP_NTZ, s STRING COLLATE UNICODE_CI",
    "map STRUCT<array: STRUCT<struct: INT>>",
]
BAD = [
    ("n INTEGRAL", "position 3, field 'n': found 'INTEGRAL'; expected a type; allowed are BOOLEAN, TINYINT"),
    ("a INT,", "position 7: found its end; expected the name of a column"),
    ("a", "position 2, field 'a': found its end; expected a type"),
    ("a INT b INT", "position 7: found 'b'; expected a comma or the end"),
    ("a: INT", "position 2, field 'a': found ':'; between a column and its type stands a blank: a STRING"),
    ("`a b`: INT", "between a column and its type stands a blank: `a b` STRING"),
    (
        "a-b INT",
        "position 2: found '-'; after the name 'a' a type is expected; a name with such characters stands in backquotes",
    ),
    ("ä INT", "stands in backquotes: `ä`"),
    ("1 INT", "position 1: found '1'; expected the name of a column"),
    ("v VARIANT", "position 3, field 'v': found 'VARIANT'; expected a type"),
    ("c CHAR(3)", "found 'CHAR'; expected a type"),
    ("v VARCHAR(0)", "found 'VARCHAR'; expected a type"),
    ("i INT(3)", "position 6, field 'i': found '('; INT has no parts; write INT alone"),
    ("i INT<INT>", "INT has no parts"),
    (
        "d DECIMAL(99,2)",
        "position 11, field 'd': found '99'; the precision of DECIMAL is a number from 1 to 38",
    ),
    ("d DECIMAL(0)", "the precision of DECIMAL is a number from 1 to 38"),
    ("d DECIMAL(5,6)", "position 13, field 'd': found '6'; the scale of DECIMAL is a number from 0 to 5"),
    ("d DECIMAL(5,-1)", "found '-'; expected a number; the scale of DECIMAL is a number from 0 to 5"),
    ("d DECIMAL()", "found ')'; expected a number"),
    ("d DECIMAL(5,2", "found its end; expected ) at the end of DECIMAL(5"),
    (f"d DECIMAL({'9' * 5000})", "the precision of DECIMAL"),
    ("l ARRAY", "expected < after ARRAY; write ARRAY<type>"),
    ("l ARRAY<INT", "position 12, field 'l': found its end; expected > at the end of ARRAY<type>"),
    ("l ARRAY<>", "position 9, field 'l': found '>'; expected a type"),
    (
        "m MAP<INT>",
        "position 10, field 'm': found '>'; expected a comma and the type of the values; write MAP<key type, value type>",
    ),
    ("m MAP<INT,INT,INT>", "expected > at the end of MAP<key type, value type>"),
    ("s STRUCT<a INT", "expected > at the end of STRUCT<name: type, ...>"),
    ("s STRUCT<a>", "position 11, field 's.a': found '>'; expected a type"),
    ("s STRUCT<a INT,>", "expected the name of a field"),
    ("s STRUCT<a: INT, b: STRUCT<c: FLOT>>", "field 's.b.c': found 'FLOT'"),
    ("s STRUCT<a: INT, a: INT>", "the field 'a' is there already"),
    ("a INT NOT", "expected NULL after NOT"),
    ("a INT COMMENT x", "expected a text in quotes after COMMENT"),
    ("s STRING COLLATE KLINGON", "expected UTF8_BINARY or"),
    ("a INT COMMENT 'x", 'found "\'"; expected a text'),
    ("l " + "ARRAY<" * 5000 + "INT" + ">" * 5000, f"types are nested deeper than {DEEPEST}"),
]


@pytest.mark.parametrize("schema", GOOD)
def test_columns(schema: str) -> None:
    assert check_columns(schema)


@pytest.mark.parametrize(
    ("schema", "read"),
    [
        ("a INT NOT NULL", "a INT "),
        ("a INT not /* x */ null COMMENT 'NOT NULL', b INT", "a INT  COMMENT 'NOT NULL', b INT"),
        ("s STRUCT<`NOT NULL`: INT NOT NULL, y: ARRAY<STRUCT<z: INT NOT NULL>>> NOT NULL, n INT",
         "s STRUCT<`NOT NULL`: INT , y: ARRAY<STRUCT<z: INT >>> , n INT"),
        ("a INT", "a INT"),
    ],
)  # fmt: skip
def test_any_value_may_be_missing_whatever_the_schema_says(schema: str, read: str) -> None:
    assert check_columns(schema) == read


@pytest.mark.parametrize("schema", ["", "  "])
def test_none(schema: str) -> None:
    assert not check_columns(schema)


@pytest.mark.parametrize(("schema", "words"), BAD)
def test_a_fault_has_its_field_its_place_and_what_is_allowed(schema: str, words: str) -> None:
    with pytest.raises(UsageError, match=r"^option 'schema', position [0-9]+") as caught:
        check_columns(schema)
    assert words in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("schema", "name"),
    [("offset INT", "offset"), ("a INT, A STRING", "A"), ("`body` INT", "body"), ("date DATE", "date")],
)
def test_a_name_that_is_there_already(schema: str, name: str) -> None:
    with pytest.raises(UsageError, match=f"the column '{name}', which is there already"):
        check_columns(schema, "date")


@pytest.mark.parametrize(
    "kind", ["struct<v:variant>", "array<interval>", "map<string,struct<t:time(6)>>", "void"]
)
def test_types_that_no_body_holds(kind: str) -> None:
    with pytest.raises(
        UsageError,
        match=r"column 'c' of type .* cannot be read from json: (variant|interval|time|void) is none",
    ):
        refuse_types("c", kind, "json")


@pytest.mark.parametrize("kind", ["int", "decimal(5,2)", "array<struct<a:int,b:map<string,timestamp_ntz>>>"])
def test_types_that_bodies_hold(kind: str) -> None:
    assert check_columns(f"c {kind}")
    refuse_types("c", kind, "json")


# --- Against Spark's own parser

STRICTER = (  # what Spark takes, and no body can hold
    "'VARCHAR'", "'CHAR'", "'VARIANT'", "'TIME'", "'VOID'", "the precision of", "is there already",
)  # fmt: skip
PIECES = (
    "INT", "STRING", "DECIMAL", "DECIMAL(", "ARRAY<", "MAP<", "STRUCT<", ">", ")", ",", ":", "a", "b", "`c d`", "5", "2", "NOT NULL",
    "COMMENT 'x'", "VARCHAR", "VARIANT", "NULL", "(", "<", "-", ".", "'", "1a", "1L", "--", "\n", "TIMESTAMP", "ZONE",
)  # fmt: skip


def made(random_: random.Random, depth: int = 3) -> str:
    """A type."""
    kind = random_.choice(["plain", "plain", "decimal", "array", "map", "struct"] if depth else ["plain"])
    if kind == "plain":
        return random_.choice(["INT", "string", "TIMESTAMP_NTZ", "Double", "VOID", "VARCHAR(3)"])
    if kind == "decimal":
        return f"DECIMAL({random_.randint(0, 40)},{random_.randint(0, 12)})"
    if kind == "array":
        return f"ARRAY<{made(random_, depth - 1)}>"
    if kind == "map":
        return f"MAP<{made(random_, depth - 1)},{made(random_, depth - 1)}>"
    fields = [
        f"{name}{random_.choice([' ', ': '])}{made(random_, depth - 1)}"
        for name in random_.choices("abc", k=random_.randint(0, 3))
    ]
    return f"STRUCT<{', '.join(fields)}>"


def broken(random_: random.Random, schema: str) -> str:
    """The same with something put in, or left out."""
    for _ in range(random_.randint(0, 3)):
        at = random_.randint(0, len(schema))
        piece = random_.choice(PIECES)
        schema = (
            schema[:at] + f" {piece} " + schema[at:]
            if random_.random() < 0.6
            else schema[:at] + schema[at + random_.randint(1, 4) :]
        )
    return schema


def test_spark_takes_what_is_taken_here_and_what_is_refused_is_refused_there_or_held_by_no_body(
    spark: SparkSession,
) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    random_ = random.Random(7)
    made_ones = [f"a {made(random_)}, `b` {made(random_)}" for _ in range(150)]
    parse = spark._jvm.org.apache.spark.sql.types.StructType.fromDDL  # type: ignore[union-attr]
    taken = 0
    for schema in [
        *GOOD,
        *[schema for schema, _ in BAD if len(schema) < 1000],
        *made_ones,
        *[broken(random_, one) for one in made_ones],
    ]:
        try:
            check_columns(schema)
            said = ""
        except UsageError as error:
            said = str(error)
        try:
            parse(schema)
            is_taken = True
        except (Py4JJavaError, PySparkException):
            is_taken = False
        taken += not said
        assert is_taken or said, f"Spark refuses what is taken here: {schema!r}"
        assert not is_taken or not said or any(words in said for words in STRICTER), f"{schema!r}: {said}"
    assert taken > 40
