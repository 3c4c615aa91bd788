"""What is said about a text that is not TOML: which line and key, what was found, the remedy."""

from pathlib import Path

import pytest

from harbortui.config.errors import ConfigError
from harbortui.config.load import load


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[backend]\nname = "demo\n\n[run]\nseed = 1\n',
            'x.toml:2: backend.name: the string is not closed; end it with " on the same line',
        ),
        ("name = 'demo", "x.toml:1: name: the string is not closed; end it with ' on the same line"),
        ('[tasks]\npath = """a\nb', 'x.toml:2: tasks.path: the string is not closed; end it with """'),
        (
            "[learning]\nnormalize_std = True",
            "x.toml:2: learning.normalize_std: found True, allowed: true or false; did you mean true?",
        ),
        (
            "[environment]\nnetwork = yes",
            "x.toml:2: environment.network: found yes, allowed: true or false; did you mean true?",
        ),
        (
            "[run]\nname = True",
            (
                "x.toml:2: run.name: found True without quotes, allowed: 1 to 64 letters, digits, '.', '_' and '-', "
                "first a letter or digit, last not '.'; did you mean \"True\"?"
            ),
        ),
        ("[run]\nname = null", "x.toml:2: run.name: found null, and TOML has no such value; leave the key out"),
        ("[run]\nseed = 1\n\nseed = 2\n", "x.toml:4: run.seed: stands twice, first on line 2; keep one of them"),
        (
            "run.seed = 1\n[rollouts]\n[run]\nseed = 1\n",
            "x.toml:3: run: is there already, as run.seed on line 1; write all of it in one place",
        ),
        (
            '[run]\nseed = 1\n[demo]\n[run]\nname = "a"\n',
            "x.toml:4: the section [run] stands twice, first on line 1; put all its keys under one [run]",
        ),
        (
            "[run]\nbudget.steps = 1\n[run.budget]\n",
            "x.toml:3: run.budget: is there already, as run.budget.steps on line 2; write all of it in one place",
        ),
        (
            "[run.budget]\n[run]\nbudget.steps = 1",
            "x.toml:3: run.budget.steps: is there already, as [run.budget] on line 1; write all of it in one place",
        ),
        (
            "[[demo.faults]]\nafter = 1\n[[demo.faults]]\nafter = 1\nafter = 2",
            "x.toml:5: demo.faults.after: stands twice, first on line 4; keep one of them",
        ),
        ("demo = { rate = 1, rate = 2 }", "x.toml:1: demo: rate stands twice between { and }; keep one of them"),
        (
            "[run]\nseed = # later",
            "x.toml:2: run.seed: no value after the '=', allowed: a whole number >= 0 and <= 4294967295",
        ),
        ("[rollouts]\nworkers", "x.toml:2: rollouts.workers: a key without a value; write workers = ..."),
        ("[rollouts]\nworkers 3", "x.toml:2: rollouts.workers: no '=' after the key; write workers = ..."),
        (
            "[rollouts]\nworkers: 3",
            "x.toml:2: rollouts.workers: found ':' after the key, allowed: '='; write workers = ...",
        ),
        (
            "[rollouts]\ngroup size = 3",
            "x.toml:2: rollouts: found 'group size' before the '=', allowed: one word of letters, digits, '_' and '-'",
        ),
        ("= 1", "x.toml:1: no key before the '='; allowed: key = value"),
        ("a == 1", "x.toml:1: a: a second '='; remove it"),
        (
            "[backend]\nname = demo",
            (
                "x.toml:2: backend.name: found demo without quotes, allowed: demo, local, tinker, prime-rl; "
                'did you mean "demo"?'
            ),
        ),
        ("[demo]\nrate = 10%", "x.toml:2: demo.rate: found 10%, allowed: a number > 0 and <= 100000"),
        ("[run]\nseed = 07", "x.toml:2: run.seed: found 07, allowed: a whole number >= 0 and <= 4294967295"),
        ("[run]\nseed = 7,", "x.toml:2: run.seed: found ',' after the value; remove it"),
        ("[run]\nseed = 7 // lucky", "x.toml:2: run.seed: found '//' after the value; a comment begins with #"),
        (
            "[prime_rl]\nx = 5m",
            'x.toml:2: prime_rl.x: found 5m, allowed: a number such as 7 or 0.5, or a string between " and "',
        ),
        (
            "[server]\napi_key = hunter2",
            'x.toml:2: server.api_key: found a value that is not shown without quotes; a string goes between " and "',
        ),
        (
            '[server]\napi_key = "hunter2',
            'x.toml:2: server.api_key: the string is not closed; end it with " on the same line',
        ),
        ('[tasks]\npath = ["a", "b"\n[run]\nseed = 1', "x.toml:2: tasks.path: the array is not closed; end it with ]"),
        ('[tasks]\npath = ["a" "b"]', "x.toml:2: tasks.path: found \"b\" where ',' or ']' is allowed"),
        (
            "[tasks]\npath = [a]",
            'x.toml:2: tasks.path: found a without quotes; a string goes between " and "; did you mean "a"?',
        ),
        ('[tasks]\npath = ["a",, "b"]', "x.toml:2: tasks.path: a value is missing before ','"),
        (
            "run = { seed = 1\n}",
            "x.toml:1: run: allowed in { }: key = value, with commas between, all on one line, none at the end",
        ),
        ("run = { seed = 1", "x.toml:1: run: the table is not closed; end it with } on the same line"),
        (
            "run = { seed = 1, }",
            "x.toml:1: run: allowed in { }: key = value, with commas between, all on one line, none at the end",
        ),
        ("[run\nseed = 1", "x.toml:1: the [ of a section is not closed; did you mean [run]?"),
        ("[[demo.faults]\n", "x.toml:1: the [[ of a section is not closed; did you mean [[demo.faults]]?"),
        ("[my run]\n", "x.toml:1: not the name of a section, allowed: [name] or [name.name], such as [run.budget]"),
        ("[run] seed = 1", "x.toml:1: text after the ] of [run]; put it on a line of its own"),
        (
            "[backend]\nname = “demo”",
            "x.toml:2: backend.name: found the quote “, allowed: the straight quotes \" and '",
        ),
        (
            '[backend]\nname = "demo”\n',
            'x.toml:2: backend.name: the string is not closed: typographic quotes do not; end it with "',
        ),
        ("“run” = 1", "x.toml:1: found a typographic quote in the key; a key stands without quotes: key = value"),
        ('[tasks]\npath = "C:\\tasks"', "x.toml: backend.name: missing; allowed: demo, local, tinker, prime-rl"),
        (
            "[run]\nname = 'it's'",
            "x.toml:2: run.name: text after the closing '; a string with a ' in it goes between \" and \"",
        ),
        (
            '[run]\nname = "a\tb\x01"',
            'x.toml:2: run.name: the string holds a control character; write it as \\u0001 between " and "',
        ),
        ("// comment", "x.toml:1: found '//'; a comment begins with #"),
        ('{"run": 1}', "x.toml:1: neither a section nor a key; allowed: [section], key = value or # comment"),
    ],
)
def test_a_syntax_error_is_a_sentence_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(Path("x.toml"), environ={})
    assert str(caught.value) == problem
