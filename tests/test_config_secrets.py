"""Secrets: what is one, where they come from, where they must not go."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbortui.config.dotenv import read_dotenv
from harbortui.config.errors import ConfigError
from harbortui.config.load import Loaded, load
from harbortui.config.secrets import expand, is_secret_name, looks_secret, redact

BACKEND = '[backend]\nname = "demo"\n'


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(text: str, *overrides: str, **environ: str) -> Loaded:
    Path("x.toml").write_text(BACKEND + text)
    return load(Path("x.toml"), list(overrides), environ)


@pytest.mark.parametrize(
    "name",
    "KEY API_KEY WANDB_API_KEY AWS_SECRET_ACCESS_KEY HF_TOKEN hfToken accessToken api-key apiKey APIKey api.key KEY_2 "
    "PGPASSWORD_PASSWD DB_PASSWORD credentials GOOGLE_APPLICATION_CREDENTIALS BASIC_AUTH Authorization".split(),
)
def test_a_name_is_secret_when_a_word_of_it_is(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    "MONKEY KEYBOARD TOKENIZERS_PARALLELISM MAX_TOKENS max_tokens SSH_AUTH_SOCK AUTHOR SECRETARY pad_token eosToken "
    "api_key_var TOKEN_FILE SECRET_NAME sort_key public_key TOKENS_PER_SECOND".split(),
)
def test_a_name_that_only_contains_such_a_word_is_not_secret(name: str) -> None:
    assert not is_secret_name(name)
    assert not is_secret_name("")


@pytest.mark.parametrize(
    "value",
    [
        "sk-" + "a1" * 12,
        "hf_" + "a1" * 12,
        "AKIA" + "A1" * 8,
        "https://user:word@example.org/x",
        "https://hooks.slack.com/services/T0/B0/x",
        "-----BEGIN PRIVATE KEY-----\nabc",
    ],
)
def test_a_value_may_look_secret_whatever_its_name(here: Path, value: str) -> None:
    assert looks_secret(value)
    with pytest.raises(ConfigError) as caught:
        read("", f"prime_rl.note={value!r}".replace("\\n", "\n") if "\n" not in value else f"prime_rl.note={value}")
    assert str(caught.value) == (
        '--set: prime_rl.note: looks like a secret; put it into .env and name the variable: "${NOTE}"'
    )


@pytest.mark.parametrize("value", ["sk-short", "https://example.org/a:b@c", "git@example.org:a/b", "Qwen/Qwen3-8B", ""])
def test_ordinary_values_do_not_look_secret(value: str) -> None:
    assert not looks_secret(value)


def test_a_secret_in_a_config_is_refused_without_being_shown(here: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(
            "[agent.kwargs]\nopenai_api_key = 'hunter2'\n[server]\napi_key = 'hunter2'\npassword = 'hunter2'\n",
            "environment.kwargs.tokens.auth=hunter2",
        )
    assert str(caught.value).splitlines() == [
        (
            "x.toml:4: agent.kwargs.openai_api_key: looks like a secret; put it into .env and name the variable: "
            '"${OPENAI_API_KEY}"'
        ),
        'x.toml:6: server.api_key: looks like a secret; put it into .env and name the variable: "${API_KEY}"',
        'x.toml:7: server.password: looks like a secret; put it into .env and name the variable: "${PASSWORD}"',
        '--set: environment.kwargs.tokens.auth: looks like a secret; put it into .env and name the variable: "${AUTH}"',
    ]


def test_a_secret_is_named_in_the_config_and_its_value_stays_out_of_run_toml(here: Path) -> None:
    Path(".env").write_text("ENDPOINT_KEY=from-dotenv\nDEBUG=1\nHF_TOKEN=dotenv-token\n")
    loaded = read(
        "[server]\nengine = 'external'\nurl = '${ENDPOINT}'\napi_key = '${ENDPOINT_KEY}'\n"
        "[run.notify]\nwebhook = '${HOOK}'\n[agent.kwargs]\ntoken = '${NOBODY}'\n",
        ENDPOINT_KEY="from-environ",
        ENDPOINT="http://127.0.0.1:1",
        HOOK="https://example.org/hook",
        HF_TOKEN="environ-token",
    )
    assert loaded.env == {"ENDPOINT_KEY": "from-dotenv", "DEBUG": "1", "HF_TOKEN": "dotenv-token"}
    assert loaded.secrets == {
        "ENDPOINT_KEY": "from-environ",
        "DEBUG": "1",
        "HF_TOKEN": "environ-token",
        "ENDPOINT": "http://127.0.0.1:1",
        "HOOK": "https://example.org/hook",
    }
    assert loaded.redactions == (
        "from-dotenv",
        "dotenv-token",
        "from-environ",
        "environ-token",
        "https://example.org/hook",
    )
    assert loaded.missing == ("NOBODY",)
    assert expand(loaded.config.server.api_key or "", loaded.secrets) == "from-environ"
    assert not [value for value in loaded.redactions if value in loaded.text]


def test_redaction_takes_overlapping_values_out_whole_and_spares_short_ones() -> None:
    values = ["abcdef", "efghijk", "1", "ab", "", "first line\nx\nsecond line"]
    assert redact("abcdefghijk abcdef 1 ab", values) == "[redacted] [redacted] 1 ab"
    assert redact("log: second line", values) == "log: [redacted]"


@given(st.text(), st.lists(st.text(min_size=6), max_size=4))
def test_no_redacted_value_remains(text: str, values: list[str]) -> None:
    shown = redact(text.join(values), values)
    assert all(value not in shown.replace("[redacted]", "\0") for value in values if "\0" not in value)


def test_a_dotenv_is_read_and_never_run(here: Path) -> None:
    Path(".env").write_bytes(
        b"\xef\xbb\xbf# comment\r\n\r\nA=1\r\nexport B = two words  # comment\n  C='single $HOME \\n # kept'\n"
        b'D="double \\"quoted\\"\\n\\$HOME \\\\ \\x"  # comment\nE=\nF=  # only a comment\nG=$(touch touched)\n'
        b'H="-----BEGIN\nline\n-----END"\nI=a#b\nJ=`id`\nA=2'
    )
    assert read_dotenv(Path(".env")) == {
        "A": "2",
        "B": "two words",
        "C": "single $HOME \\n # kept",
        "D": 'double "quoted"\n$HOME \\ \\x',
        "E": "",
        "F": "",
        "G": "$(touch touched)",
        "H": "-----BEGIN\nline\n-----END",
        "I": "a#b",
        "J": "`id`",
    }
    assert not Path("touched").exists()


def test_no_dotenv_is_no_variables(here: Path) -> None:
    assert read_dotenv(Path(".env")) == {}


def test_every_bad_line_of_a_dotenv_is_named_and_none_is_shown(here: Path) -> None:
    Path(".env").write_text("A=1\nhunter2\n2B=hunter2\nC='hunter2' hunter2\nD=\"hunter2\nE: hunter2\nF=a\0b\n")
    with pytest.raises(ConfigError) as caught:
        read_dotenv(Path(".env"))
    assert str(caught.value).splitlines() == [
        ".env:2: not a variable; allowed: NAME=value, export NAME=value, # comment",
        ".env:3: not a variable; allowed: NAME=value, export NAME=value, # comment",
        ".env:4: C: text after the closing quote; put the whole value into one pair of quotes",
        ".env:5: D: the quote is never closed; close it, or quote with the other kind",
        ".env:6: not a variable; allowed: NAME=value, export NAME=value, # comment",
        ".env:7: F: the value holds a NUL byte, which no environment can carry",
    ]


def test_a_dotenv_that_is_a_folder_or_not_text_is_one_sentence(here: Path) -> None:
    Path(".env").mkdir()
    Path("bytes").write_bytes(b"A=1\nB=\xff")
    found = []
    for name in (".env", "bytes"):
        with pytest.raises(ConfigError) as caught:
            read_dotenv(Path(name))
        found.append(str(caught.value))
    assert found == [".env: cannot be read: Is a directory", "bytes:2: not UTF-8 text; save it as UTF-8"]


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
VALUES = st.text(st.characters(exclude_characters="\0\r", exclude_categories=("Cs",)))


@given(variables=st.dictionaries(NAMES, VALUES, max_size=5), export=st.booleans())
def test_what_is_quoted_into_a_dotenv_comes_out_the_same(
    tmp_path_factory: pytest.TempPathFactory, variables: dict[str, str], export: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "round.env"
    lines = []
    for name, value in variables.items():
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        quoted = f"'{value}'" if "'" not in value else f'"{escaped}"'
        lines.append(f"{'export ' if export else ''}{name}={quoted} # comment")
    path.write_text("\n".join(lines), encoding="utf-8", newline="")
    assert read_dotenv(path) == variables


@given(data=st.binary(max_size=200))
def test_reading_any_bytes_as_a_dotenv_gives_variables_or_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.env"
    path.write_bytes(data)
    with contextlib.suppress(ConfigError):
        assert all(read_dotenv(path))
