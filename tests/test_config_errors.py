"""What is said about a config that is wrong: file, line, key, what was found and what is allowed."""

from pathlib import Path

import pytest

from harbortui.config.errors import ConfigError
from harbortui.config.load import Loaded, load, parse
from harbortui.config.schema import live_value


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


def problems(text: str, *overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, *overrides)
    return str(caught.value).splitlines()


BACKEND = '[backend]\nname = "demo"\n'


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(here: Path) -> None:
    text = """\
[run]
name = "a/b"
budget = { steps = 0, epoch = 1 }

[rollouts]
group_sise = 8
concurrency = "eight"

[learning]
loss = "pppo"
max_staleness = 2
normalize_std = "yes"
[agnet]
[[demo.faults]]
process = "trainer"
do = "explode"
[zebra]
"""
    assert problems(text, "rollouts.workers=many") == [
        (
            "x.toml:2: run.name: found 'a/b' (string), allowed: 1 to 64 letters, digits, '.', '_' and '-', "
            "first a letter or digit, last not '.'"
        ),
        "x.toml:3: run.budget.steps: found 0 (whole number), allowed: a whole number >= 1",
        "x.toml:3: run.budget.epoch: unknown key; did you mean epochs?",
        "x.toml:6: rollouts.group_sise: unknown key; did you mean group_size?",
        "x.toml:7: rollouts.concurrency: found 'eight' (string), allowed: a whole number >= 1",
        (
            "x.toml:10: learning.loss: found 'pppo' (string), allowed: ppo, importance_sampling, cispo, gspo; "
            "did you mean ppo?"
        ),
        "x.toml:11: learning.max_staleness: unknown key; did you mean rollouts.max_staleness?",
        "x.toml:12: learning.normalize_std: found 'yes' (string), allowed: true or false",
        "x.toml:13: agnet: unknown key; did you mean agent?",
        "x.toml:14: demo.faults[0].after: missing; allowed: a number >= 0",
        (
            "x.toml:16: demo.faults[0].do: found 'explode' (string), allowed: die, exit, hang, flood, ignore-sigterm, "
            "fork, stop-journal"
        ),
        (
            "x.toml:17: zebra: unknown key; allowed: run, backend, model, tasks, environment, agent, rollouts, "
            "learning, server, checkpoints, wandb, supervision, demo, prime_rl, extends"
        ),
        "x.toml: backend.name: missing; allowed: demo, local, tinker, prime-rl",
        "--set: rollouts.workers: found 'many' (string), allowed: a whole number >= 1",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("run = 3", "x.toml:1: run: found 3 (whole number), allowed: a table"),
        (
            "[run]\nseed = true",
            ("x.toml:2: run.seed: found true (true or false), allowed: a whole number >= 0 and <= 4294967295"),
        ),
        ("[run]\nseed = 1.0", "x.toml:2: run.seed: found 1.0 (number), allowed: a whole number >= 0 and <= 4294967295"),
        (
            "[run]\nname = 2026-01-02",
            (
                "x.toml:2: run.name: found 2026-01-02 (date or time), allowed: 1 to 64 letters, "
                "digits, '.', '_' and '-', first a letter or digit, last not '.'"
            ),
        ),
        (
            "[tasks]\npath = [\n  'a',\n  3,\n]",
            (
                "x.toml:2: tasks.path: found ['a', 3] (array), allowed: a string that "
                "is not empty or an array of strings"
            ),
        ),
        (
            "[tasks]\npath = []",
            ("x.toml:2: tasks.path: found an empty array, allowed: a string that is not empty or an array of strings"),
        ),
        ("[tasks]\nholdout = 1", "x.toml:2: tasks.holdout: found 1 (whole number), allowed: a number >= 0 and < 1"),
        (
            "[learning]\nlearning_rate = inf",
            ("x.toml:2: learning.learning_rate: found inf (number), allowed: a number > 0"),
        ),
        ("[agent]\nkwargs = [1]", "x.toml:2: agent.kwargs: found [1] (array), allowed: a table"),
        ("[agent]\nmax_turns = { a = 1 }", "x.toml:2: agent.max_turns: found a table, allowed: a whole number >= 1"),
        ("[demo]\nfaults = [1]", "x.toml:2: demo.faults[0]: found 1 (whole number), allowed: an array of tables"),
        (
            "[agent]\nmax_tokens = 40000",
            ("x.toml:2: agent.max_tokens: found 40000, allowed: less than agent.context_limit, which is 32000"),
        ),
        (
            "[server]\nengine = 'external'",
            ('x.toml:1: server.url: missing; engine = "external" needs the URL at which it answers'),
        ),
        (
            "[server]\nurl = 'http://127.0.0.1:1'",
            ('x.toml:2: server.url: only engine = "external" has one, and engine is "torch"; remove it'),
        ),
        (
            "[run.notify]\nwebhook = 'example.org'",
            (
                "x.toml:2: run.notify.webhook: found 'example.org' (string), "
                "allowed: a URL that starts with http:// or https://, or ${NAME}"
            ),
        ),
        (
            "[run.notify]\ncommand = 'say \"done'",
            "x.toml:2: run.notify.command: found 'say \"done' (string), allowed: a command with its quotes closed",
        ),
        ("[wandb]", "x.toml:1: wandb.project: missing; allowed: a string that is not empty"),
        (
            '["a\\u001b[31m\\nb"]',
            (
                'x.toml:1: "a\\u001b[31m\\nb": unknown key; allowed: run, backend, model, tasks, environment, '
                "agent, rollouts, learning, server, checkpoints, wandb, supervision, demo, prime_rl, extends"
            ),
        ),
        (
            "[prime_rl]\nx = 0x1_0000_0000_0000_0000",
            (
                "x.toml:2: prime_rl.x: found 18446744073709551616 (whole number), "
                "allowed: a whole number that fits in 64 bits"
            ),
        ),
    ],
)
def test_a_problem_says_what_was_found_and_what_is_allowed(here: Path, text: str, problem: str) -> None:
    found = problems(text)
    assert found[0] == problem
    assert all("backend" in other for other in found[1:])


def test_an_unknown_environment_names_the_nearest(here: Path) -> None:
    [problem] = problems(BACKEND + "[environment]\ntype = 'dokcer'\n")
    assert problem.startswith("x.toml:4: environment.type: found 'dokcer' (string), allowed: auto, sandbox, docker,")
    assert problem.endswith(", or module:Class; did you mean docker?")


@pytest.mark.parametrize("kind", ["auto", "sandbox", "modal", "package.module:Class"])
def test_an_environment_is_known_or_a_class(here: Path, kind: str) -> None:
    assert read(BACKEND, f"environment.type={kind}").config.environment.type == kind


def test_a_syntax_error_does_not_hide_bad_overrides_or_a_bad_dotenv(here: Path) -> None:
    write("NAME\n", ".env")
    assert problems("= 1", "seed", "a b=1", "extends=y.toml", "run.sed=1") == [
        "x.toml:1: no key before the '='; allowed: key = value",
        "--set: found 'seed', allowed: KEY=VALUE, such as run.seed=7",
        "--set: found 'a b' before the '=', allowed: a dotted key, such as run.seed",
        "--set: extends: only a file can extend another; write it into the file",
        "--set: run.sed: unknown key; did you mean seed?",
        ".env:1: not a variable; allowed: NAME=value, export NAME=value, # comment",
    ]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("dmeo.toml", "dmeo.toml: no such file; did you mean demo.toml?"),
        ("demo", "demo: no such file; did you mean demo.toml?"),
        ("other.toml", "other.toml: no such file"),
        ("configs", "configs: a folder; name a TOML file in it"),
        ("bytes.toml", "bytes.toml:2: not UTF-8 text; save the file as UTF-8"),
        ("a\0b", "a\\x00b: cannot be read: embedded null byte"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(here: Path, name: str, problem: str) -> None:
    write(BACKEND, "demo.toml")
    Path("configs").mkdir()
    Path("bytes.toml").write_bytes(b"[run]\nname = '\xff'\n")
    with pytest.raises(ConfigError) as caught:
        load(Path(name), environ={})
    assert str(caught.value) == problem


def test_a_byte_order_mark_and_windows_line_ends_are_read(here: Path) -> None:
    Path("w.toml").write_bytes(b"\xef\xbb\xbf[backend]\r\nname = 'demo'\r\n\r\n[run]\r\nseeed = 1\r\n")
    with pytest.raises(ConfigError) as caught:
        load(Path("w.toml"), environ={})
    assert str(caught.value) == "w.toml:5: run.seeed: unknown key; did you mean seed?"


def test_a_problem_in_a_parent_names_the_parents_line(here: Path) -> None:
    write("\n[run]\nseed = 'x'\n[rollouts]\nworkers = 0\n", "base/base.toml")
    assert problems("extends = 'base/base.toml'\n[rollouts]\nworkers = -1\n" + BACKEND) == [
        "x.toml:3: rollouts.workers: found -1 (whole number), allowed: a whole number >= 1",
        "base/base.toml:3: run.seed: found 'x' (string), allowed: a whole number >= 0 and <= 4294967295",
    ]


@pytest.mark.parametrize(
    ("extends", "problem"),
    [
        ("'bse.toml'", "x.toml:2: extends: found 'bse.toml', which is no file: bse.toml; did you mean base.toml?"),
        (
            "3",
            (
                "x.toml:2: extends: found 3 (whole number), allowed: the path of another TOML file, "
                "from the folder of this one"
            ),
        ),
        ("'x.toml'", "x.toml:2: extends: files extend each other: x.toml -> x.toml; remove one of these"),
        (
            "'loop.toml'",
            ("loop.toml:1: extends: files extend each other: x.toml -> loop.toml -> x.toml; remove one of these"),
        ),
        ("'bad.toml'", "bad.toml:1: no key before the '='; allowed: key = value"),
    ],
)
def test_a_parent_that_cannot_be_had_is_reported_beside_other_problems(here: Path, extends: str, problem: str) -> None:
    write("", "base.toml")
    write("extends = './x.toml'", "loop.toml")
    write("= 1", "bad.toml")
    found = problems(f"# no backend: the parent might have it\nextends = {extends}\n[run]\nsed = 1\n")
    assert sorted(found) == sorted([problem, "x.toml:4: run.sed: unknown key; did you mean seed?"])


def test_a_key_is_found_on_its_line_wherever_toml_allows_it(here: Path) -> None:
    text = '''\
rollouts.wrkers = 1
[run]
name = """\\
  a\\
  """
[run.budget]
stps = 1
[backend]
name = "demo"
[run.notify]
bel = """
"""
[demo]
faults = [
  { process = "a", after = 1, do = "die" },
  { process = "a", aftr = 1, do = "die", after = 1 },
  { process = "a", do = "die" },
]
[a.b.c]
x = 1
["wei.rd"] # comment
'''
    lines = [problem.partition(": ")[0] + " " + problem.split(": ")[1] for problem in problems(text)]
    assert lines == [
        "x.toml:1 rollouts.wrkers",
        "x.toml:7 run.budget.stps",
        "x.toml:11 run.notify.bel",
        "x.toml:16 demo.faults[1].aftr",
        "x.toml:17 demo.faults[2].after",
        "x.toml:19 a",
        'x.toml:21 "wei.rd"',
    ]


def test_problems_as_json_keep_their_parts_apart(here: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read(BACKEND + "[run]\nsed = 1\n")
    assert caught.value.json() == {
        "problems": [{"file": "x.toml", "line": 4, "key": "run.sed", "message": "unknown key", "did_you_mean": "seed"}]
    }


def test_a_damaged_run_toml_is_reported_like_a_config() -> None:
    with pytest.raises(ConfigError) as caught:
        parse('[backend]\nname = "dmo"\n')
    assert str(caught.value) == (
        "run.toml:2: backend.name: found 'dmo' (string), allowed: demo, local, tinker, prime-rl; did you mean demo?"
    )


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        (
            "rollouts.concurrency",
            "0",
            "set: rollouts.concurrency: found 0 (whole number), allowed: a whole number >= 1",
        ),
        ("agent.max_turns", "2.5", "set: agent.max_turns: found 2.5 (number), allowed: a whole number >= 1"),
        ("agent.temperature", "hot", "set: agent.temperature: found 'hot' (string), allowed: a number >= 0 and <= 2"),
        ("demo.rate", "inf", "set: demo.rate: found inf (number), allowed: a number > 0 and <= 100000"),
        ("rollouts.concurency", "1", "set: rollouts.concurency: unknown key; did you mean rollouts.concurrency?"),
        ("temprature", "1", "set: temprature: unknown key; did you mean agent.temperature?"),
        (
            "zebra",
            "1",
            (
                "set: zebra: unknown key; allowed: rollouts.concurrency, agent.max_turns, agent.temperature, "
                "learning.learning_rate, demo.rate"
            ),
        ),
        (
            "rollouts.group_size",
            "1",
            (
                "set: rollouts.group_size: fixed for the life of the run; allowed: "
                "rollouts.concurrency, agent.max_turns, agent.temperature, learning.learning_rate, demo.rate"
            ),
        ),
    ],
)
def test_a_live_value_that_is_not_allowed_is_one_sentence(key: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        live_value(key, text)
    assert str(caught.value) == problem


WHERE = "\n[backend]\nname = 'demo'\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("steps = 100", ["x.toml:1: steps: unknown key; did you mean run.budget.steps or demo.steps?"]),
        (
            "group_size = 4\nseed = 1",
            [
                "x.toml:1: group_size: unknown key; did you mean rollouts.group_size?",
                "x.toml:2: seed: unknown key; did you mean run.seed?",
            ],
        ),
        (
            "name = 'x'",
            ["x.toml:1: name: unknown key; did you mean run.name or backend.name or model.name or agent.name?"],
        ),
        ("[run]\nsteps = 1", ["x.toml:2: run.steps: unknown key; did you mean run.budget.steps?"]),
        ("[budget]\nsteps = 1", ["x.toml:1: budget: unknown key; did you mean run.budget?"]),
        (
            "[run]\nseed = 99999999999999999999\nsed = 1\n[rollouts]\nworkers = 99999999999999999999",
            [
                (
                    "x.toml:2: run.seed: found 99999999999999999999 (whole number), "
                    "allowed: a whole number >= 0 and <= 4294967295"
                ),
                "x.toml:3: run.sed: unknown key; did you mean seed?",
                (
                    "x.toml:5: rollouts.workers: found 99999999999999999999 (whole number), "
                    "allowed: a whole number that fits in 64 bits"
                ),
            ],
        ),
        (
            "[[demo.faults]]\nprocess = 'rollouts-9'\nafter = 1\ndo = 'die'",
            [
                (
                    "x.toml:2: demo.faults[0].process: found 'rollouts-9' (string), "
                    "allowed: server, orchestrator, trainer, rollouts-0, rollouts-1; did you mean rollouts-1?"
                )
            ],
        ),
    ],
)
def test_a_key_in_the_wrong_place_or_out_of_reach_is_told_where_it_goes(
    here: Path, text: str, expected: list[str]
) -> None:
    assert problems(text + WHERE) == expected


def test_extends_below_a_section_is_told_to_move_up_and_nothing_is_called_missing(here: Path) -> None:
    assert problems("[run]\nextends = 'base.toml'\n") == [
        "x.toml:2: run.extends: must stand before the first [section], at the top of the file"
    ]


def test_an_override_that_is_too_large_is_a_number_all_the_same(here: Path) -> None:
    assert problems(BACKEND, "run.seed=99999999999999999999", "prime_rl.x=99999999999999999999") == [
        "--set: run.seed: found 99999999999999999999 (whole number), allowed: a whole number >= 0 and <= 4294967295",
        "--set: prime_rl.x: found 99999999999999999999 (whole number), allowed: a whole number that fits in 64 bits",
    ]
