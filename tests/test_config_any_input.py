"""Whatever is written into a config or an override: a config, or a `ConfigError` of one line per problem."""

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbortui.config import layers, toml
from harbortui.config.errors import ConfigError
from harbortui.config.lines import locate
from harbortui.config.load import load, parse
from harbortui.config.schema import RunConfig, keys

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
SCALARS = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | TEXT
    | st.dates()
    | st.datetimes()
    | st.times()
)
NAMES = sorted({part for key in keys() for part in key.split(".")} | {"extends", "api_key"})
KEYS = st.sampled_from(NAMES) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3))
SECTIONS = st.sampled_from(sorted(RunConfig.model_fields)) | KEYS
DOCUMENTS = st.dictionaries(SECTIONS, st.dictionaries(KEYS, VALUES, max_size=4) | VALUES, max_size=4)


def try_load(folder: Path, data: bytes, *overrides: str) -> None:
    path = folder / "any.toml"
    path.write_bytes(data)
    error = None
    try:
        loaded = load(path, list(overrides), {})
    except ConfigError as caught:
        error = caught
    if error is None:
        assert parse(loaded.text) == loaded.config
    else:
        assert error.problems
        assert [line for line in str(error).split("\n") if line.isprintable()] == [str(one) for one in error.problems]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any")


@given(document=DOCUMENTS)
def test_what_is_written_as_toml_is_read_back_the_same(document: dict[str, Any]) -> None:
    assert tomllib.loads(toml.dumps(document)) == document


@given(document=DOCUMENTS)
@settings(max_examples=300, deadline=None)
def test_any_toml_loads_or_is_a_config_error(folder: Path, document: dict[str, Any]) -> None:
    try_load(folder, toml.dumps({"backend": {"name": "demo"}, **document}).encode())


@given(data=st.binary(max_size=100) | st.text(max_size=100).map(lambda text: text.encode("utf-8", "replace")))
@settings(deadline=None)
def test_any_bytes_load_or_are_a_config_error(folder: Path, data: bytes) -> None:
    try_load(folder, data)


@given(overrides=st.lists(st.text(max_size=20) | st.tuples(KEYS, st.text()).map("=".join), max_size=3))
@settings(deadline=None)
def test_any_overrides_load_or_are_a_config_error(folder: Path, overrides: list[str]) -> None:
    try_load(folder, b"[backend]\nname = 'demo'\n", *overrides)


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 3000 + " = 1",
        "prime_rl = " + "[" * 5000,
        "prime_rl.x = " + "[" * 200 + "]" * 200,
        "[prime_rl]\nx = " + "9" * 5000,
        "[prime_rl]\nx = 0x" + "f" * 5000,
        "[prime_rl]\n" + "x" * 100_000 + " = 1",
        "".join(f"k{number} = {number}\n" for number in range(2000)),
        "[prime_rl]\nx = 2026-99-99",
        "x = 1" + " " * (5 << 20),
    ],
    ids=str.__len__,
)
def test_hostile_toml_is_refused_or_read(folder: Path, text: str) -> None:
    try_load(folder, text.encode())


@given(
    path=st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True), min_size=1, max_size=4),
    value=SCALARS | st.lists(st.integers(-9, 9)),
)
def test_an_override_is_the_value_at_its_path(path: list[str], value: Any) -> None:
    if path[0] == "extends":
        path = ["x", *path]
    written = toml.dumps({"v": value}).removeprefix("v = ").rstrip("\n")
    data: Any = layers.override(f"{'.'.join(path)} = {written}")
    for part in path:
        data = data[part]
    assert data == value
    assert type(data) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8", 8),
        ("1e-5", 1e-5),
        ("true", True),
        ("True", "True"),
        ('"8"', "8"),
        ("", ""),
        ("a=b", "a=b"),
        ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("[1, 2]", [1, 2]),
        ("[1, 2", "[1, 2"),
        ('{ a.b = "c" }', {"a": {"b": "c"}}),
        ("1\nb = 2", "1\nb = 2"),
        ("99999999999999999999", 99999999999999999999),
    ],
)
def test_an_override_that_is_no_toml_is_a_string(text: str, value: Any) -> None:
    assert layers.override(f"run.x={text}") == {"run": {"x": value}}


@given(document=DOCUMENTS)
@settings(deadline=None)
def test_a_line_that_is_given_holds_the_last_part_of_the_key_or_begins_what_it_is_in(document: dict[str, Any]) -> None:
    text = toml.dumps(document)
    paths = [path for path, _ in toml.walk(document) if isinstance(path[-1], str)]
    rows = text.split("\n")
    for path, line in locate(text, paths).items():
        assert 1 <= line <= len(rows)
        assert not math.isnan(line)
        parts = [part for part in path if isinstance(part, str)]
        assert any(part in rows[line - 1] or toml._key(part) in rows[line - 1] for part in parts)
