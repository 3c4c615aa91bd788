"""Loading a config: what it gives."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harbortui.config.load import Loaded, json_schema, load, parse
from harbortui.config.schema import LIVE, RunConfig, keys, live_value

DEMO = Path(__file__).parent.parent / "configs" / "demo.toml"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "x.toml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def read(text: str, *overrides: str, **environ: str) -> Loaded:
    return load(write(text), list(overrides), environ)


BACKEND = '[backend]\nname = "demo"\n'


def test_the_demo_config_is_valid_and_its_resolved_text_is_the_same_config() -> None:
    loaded = load(DEMO, environ={})
    assert loaded.config.backend.name == "demo"
    assert loaded.config.run.seed == 7
    assert parse(loaded.text) == loaded.config
    assert loaded.missing == ()


def test_a_config_with_only_a_backend_is_whole_and_named_after_its_file(here: Path) -> None:
    loaded = load(write(BACKEND, "my run.toml"), environ={})
    assert loaded.config == RunConfig.model_validate({"backend": {"name": "demo"}, "run": {"name": "my-run"}})
    assert (loaded.env, loaded.secrets, loaded.redactions) == ({}, {}, ())


def test_the_resolved_text_writes_every_default_out(here: Path) -> None:
    text = tomllib.loads(read(BACKEND).text)
    assert text["rollouts"] == {
        "group_size": 8,
        "groups_per_step": 8,
        "concurrency": 16,
        "workers": 2,
        "max_staleness": 2,
    }


def test_free_tables_are_passed_through_untouched(here: Path) -> None:
    free = """
        [prime_rl]
        when = 2026-01-02T03:04:05Z
        odd."a.b" = [1, [2.5, {}], { x = "\\u007f" }]
        [prime_rl.deployment]
        [[prime_rl.train.source]]
        name = "harbor"
        [[prime_rl.train.source]]
        [agent.kwargs]
        parser_name = "json"
    """
    loaded = read(BACKEND + free)
    assert loaded.config.prime_rl == tomllib.loads(free)["prime_rl"]
    assert loaded.config.agent.kwargs == {"parser_name": "json"}
    assert parse(loaded.text) == loaded.config


def test_a_child_wins_over_its_parent_key_by_key(here: Path) -> None:
    write("[run]\nseed = 1\nname = 'root'\n[tasks]\npath = ['a', 'b']\n[prime_rl]\na.b = 1\n", "base/root.toml")
    write(f"extends = 'root.toml'\n{BACKEND}[run]\nseed = 2\n", "base/base.toml")
    loaded = read("extends = 'base/base.toml'\n[tasks]\npath = ['c']\n[prime_rl]\na.c = 2\n", "run.seed=3")
    assert (loaded.config.run.seed, loaded.config.run.name) == (3, "root")
    assert loaded.config.tasks.path == ["c"]
    assert loaded.config.prime_rl == {"a": {"b": 1, "c": 2}}
    assert "extends" not in tomllib.loads(loaded.text)


def test_every_key_of_the_schema_is_described_for_editors_and_has_no_null() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert set(schema["properties"]) == {*RunConfig.model_fields, "extends"}
    for name, section in schema["$defs"].items():
        assert section["description"], name
        assert section["additionalProperties"] is False, name
        for key, field in section["properties"].items():
            assert field.get("description"), f"{name}.{key}"
    assert "null" not in json.dumps(schema)


def test_live_keys_take_their_type_and_range_from_the_schema() -> None:
    assert {key: live.allowed for key, live in LIVE.items()} == {
        "rollouts.concurrency": "a whole number >= 1",
        "agent.max_turns": "a whole number >= 1",
        "agent.temperature": "a number >= 0 and <= 2",
        "learning.learning_rate": "a number > 0",
        "demo.rate": "a number > 0 and <= 100000",
    }
    assert set(LIVE) <= set(keys())
    assert live_value("rollouts.concurrency", "32") == 32
    assert isinstance(live_value("agent.temperature", "1"), float)
    assert live_value("learning.learning_rate", "2e-6") == 2e-6


def loaded_modules(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_keepers_can_ask_what_is_secret_without_loading_pydantic_or_tomlkit() -> None:
    assert not {"pydantic", "tomlkit"} & loaded_modules("import harbortui.config.secrets, harbortui.config.dotenv")


def test_a_config_without_errors_does_not_load_tomlkit() -> None:
    statement = f"from pathlib import Path\nfrom harbortui.config.load import load\nload(Path({str(DEMO)!r}))"
    assert "tomlkit" not in loaded_modules(statement)
