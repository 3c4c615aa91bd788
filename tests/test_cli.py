"""The command line without a run: help, versions, bad input, plans that are only shown, text that is printed."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from harbortui.cli import app, launch, text
from harbortui.cli.lines import logfmt
from harbortui.cli.live import Live, _flow
from harbortui.cli.view import View
from harbortui.runs.layout import all_runs, runs_folder
from harbortui.supervisor import client
from harbortui.supervisor.verbs import VERBS

ROOT = Path(__file__).parent.parent
DEMO = str(ROOT / "configs" / "demo.toml")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A command in this process: exit code, standard output, standard error."""

    def command(*argv: str) -> tuple[int, str, str]:
        code = app.main(argv)
        said = capsys.readouterr()
        return code, said.out, said.err

    return command


def program(*argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )


# --- help and imports


def test_the_version_is_answered_at_once() -> None:
    took = []
    for _ in range(5):
        began = time.perf_counter()
        done = program("-m", "harbortui", "--version")
        took.append(time.perf_counter() - began)
        assert re.fullmatch(r"harbortui \d+\.\d+\.\d+\n", done.stdout)
    assert min(took) < 0.25


def loaded(*argv: str) -> set[str]:
    done = program("-X", "importtime", "-m", "harbortui", *argv)
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}


def test_the_version_loads_nothing_and_status_nothing_heavy() -> None:
    assert not loaded("--version") & {"typer", "click", "msgspec", "sqlite3", "rich", "pydantic"}
    status = loaded("status", "--json")
    assert "sqlite3" in status
    assert not status & {"pydantic", "rich", "asyncio", "typer", "tomlkit"}


def test_help_names_every_command_in_a_group_and_every_command_has_an_example(run: Run) -> None:
    code, shown, _ = run("--help")
    assert code == 0
    for commands in app.FAMILIES.values():
        for command in commands:
            assert re.search(rf"^│ {command} ", shown, re.MULTILINE), command
            code, its, _ = run(command, "--help")
            assert code == 0
            assert re.search(rf"Example: harbortui {command}", its), command
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_every_command_has_json(run: Run) -> None:
    families = {"config": ["check", "show", "schema"], "index": ["rebuild"]}
    for command in [command for commands in app.FAMILIES.values() for command in commands]:
        for words in [[command, sub] for sub in families.get(command, [])] or [[command]]:
            assert "--json" in run(*words, "--help")[1], words


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "ping"])
def test_every_verb_of_the_table_is_a_command_with_its_arguments(run: Run, verb: str) -> None:
    code, shown, _ = run(verb, "--help")
    assert code == 0
    wanted = VERBS[verb]
    for argument in wanted.arguments:
        assert argument.name.upper() in shown
    for option in wanted.options:
        assert f"--{option.name}" in shown
    assert ("--run" in shown) == bool(wanted.arguments)
    assert ("--wait" in shown) == wanted.waits
    assert ("--yes" in shown) == bool(wanted.loses)
    assert "--json" in shown


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    assert "Usage: harbortui" in run()[1]


# --- bad input


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["stpo"], "no such command 'stpo'; did you mean 'stop'; `harbortui --help` tells more"),
        (["status", "--jsn"], "status: no such option: --jsn; did you mean --json; `harbortui status --help`"),
        (["status", "nope"], "no run named 'nope' in ... (there are none; set HARBORTUI_RUNS or give a path)"),
        (["status"], "no runs in ...; start one with `harbortui run CONFIG` or set HARBORTUI_RUNS"),
        (["pause", "--level", "all"], "pause: invalid value for '--level': 'all' is not one of 'dispatch', 'generate'"),
        (["restart"], "restart: missing argument 'PROCESS'; `harbortui restart --help` tells more"),
        (["run"], "give a CONFIG, or --resume RUN"),
        (["run", DEMO, "--resume", "x"], "give a CONFIG or --resume RUN, not both"),
        (["run", "--resume", "x", "--set", "a=1"], "--resume goes on with a run as it is; --set, --name and --dry-run"),
        (["run", DEMO, "--detach", "--foreground"], "--detach and --foreground exclude each other"),
        (["run", "nope.toml"], "nope.toml: no such file"),
        (["train", DEMO, "--set", "run.sed=1"], "--set: run.sed: unknown key; did you mean seed?"),
        (["train", DEMO, "--set", "demo.workers=0"], "--set: demo.workers: found 0 (whole number), allowed: a whole"),
        (["train", DEMO, "--set", "backend.name=tinker"], "demo.toml: backend.name: 'tinker' is not there in this"),
        (["run", DEMO, "--name", "a/b"], "--name: found 'a/b', allowed: 1 to 64 letters, digits"),
        (["demo", "--seconds", "0"], "demo: --seconds: found '0', allowed: a number from 0.1; `harbortui demo --help`"),
        (["demo", "--seconds", "abc"], "demo: --seconds: found 'abc', allowed: a number; `harbortui demo --help`"),
        (["logs", "-n", "x"], "logs: --lines: found 'x', allowed: a whole number; `harbortui logs --help`"),
        (["demo", "--resume"], "demo: no such option: --resume; a run that has ended goes on with `harbortui run"),
        (["episode"], "episode: missing argument 'ACTION'; choose from: cancel, requeue; `harbortui episode --help`"),
        (["logs", "--all", "-n", "3"], "logs: --all and --lines exclude each other"),
        (["stop", "", "--yes"], "the name of the run is empty; give a name or a path, or leave it out for the newest"),
        (["clean", " "], "the name of the run is empty; give a name or a path, or leave it out for the newest run"),
        (["status", ""], "the name of the run is empty; give a name or a path, or leave it out for the newest run"),
        (["config", "check", "nope.toml"], "nope.toml: no such file"),
        (["clean", "x", "--all"], "clean: give a RUN or --all, not both"),
        (["metrics", "--csv", "--json"], "metrics: --csv and --json exclude each other"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_exit_code_2(run: Run, argv: list[str], sentence: str) -> None:
    code, out, err = run(*argv)
    assert code == 2
    assert re.search(re.escape(sentence).replace(r"\.\.\.", ".*"), err), err
    assert err.startswith("harbortui: ")
    assert err.count("\n") == 1
    assert out == "" or json.loads(out)["exit"] == 2
    assert not runs_folder().exists()


def test_bad_input_with_json_is_an_object_too(run: Run, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('[backend]\nname = "demo"\n[demo]\nrate = -1.0\nworker = 2\n')
    code, out, err = run("config", "check", str(bad), "--json")
    assert code == 2
    said = json.loads(out)
    assert said["exit"] == 2
    assert [(p["line"], p["key"]) for p in said["problems"]] == [(4, "demo.rate"), (5, "demo.worker")]
    assert said["problems"][1]["did_you_mean"] == "workers"
    assert len(err.splitlines()) == 2


def test_a_variable_that_nobody_set_is_named_before_anything_starts(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "hook.toml"
    config.write_text('[backend]\nname = "demo"\n[run.notify]\nwebhook = "${HOOK_OF_MINE}"\n')
    code, out, _ = run("config", "check", str(config))
    assert code == 0
    assert out.splitlines() == [
        f"{config} is good: run hook, backend demo",
        "not set yet, and needed to start: HOOK_OF_MINE; put them into .env or the environment",
    ]
    code, _, err = run("run", str(config))
    assert (code, err) == (
        2, "harbortui: missing from the environment and .env: HOOK_OF_MINE; set them and try again\n"
    )  # fmt: skip
    assert not runs_folder().exists()


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["stop", "--drain", "--now"], "stop: --drain and --now exclude each other"),
        (["set", "rollouts.concurrency", "eight"], "set: rollouts.concurrency: found 'eight', allowed: a whole number"),
        (["set", "agent.temperatur", "1"], "set: 'agent.temperatur' cannot change while the run goes on; did you mean"),
        (["restart", "nobody"], "restart: demo has no process 'nobody'; there are: indexer, server"),
        (["restart", "supervisor"], "restart: demo has no process 'supervisor'"),
        (["note", " "], "note: the text is empty"),
    ],
)
def test_what_the_plan_of_a_run_forbids_is_bad_input(run: Run, argv: list[str], sentence: str) -> None:
    launch.make(launch.prepare(Path(DEMO)))
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_folder_that_is_somebody_elses_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "/srv/runs")

    monkeypatch.setattr(launch.layout, "create", refuse)
    code, _, err = run("run", DEMO, "--detach")
    assert code == 2
    assert err.endswith("runs cannot be made there (Permission denied); set HARBORTUI_RUNS to a folder of yours\n")


# --- what is shown of a run


def test_a_death_is_one_line_with_the_last_words_below_it(run: Run) -> None:
    made = launch.make(launch.prepare(Path(DEMO)))
    event = {
        "kind": "process", "t": 1795179000.5, "process": "trainer", "role": "trainer", "state": "backoff", "demo": True,
        "code": 1, "died": 1795179000.25, "tail": ["Traceback:", "  boom\x1b[2J \u2028 at 3"],
    }  # fmt: skip
    (made.journals / "supervisor-1-1.jsonl").write_text(json.dumps(event) + "\n")
    code, shown, _ = run("events")
    assert code == 0
    said = "process=trainer role=trainer state=backoff code=1 died=2026-11-20T12:50:00.250Z demo=true"
    assert shown.splitlines() == [
        f"2026-11-20T12:50:00.500Z supervisor    process {said}",
        "    Traceback:",
        "      boom   at 3",
    ]
    told = json.loads(run("events", "--json")[1])
    assert (told["died"], told["tail"], told["demo"]) == (event["died"], event["tail"], True)
    assert (
        logfmt({"big": 1795179000.0, "small": 1.25e-05, "huge": 1e300}) == "big=1795179000 small=1.25e-05 huge=1e+300"
    )


@pytest.mark.parametrize(("wide", "high"), [(80, 24), (24, 8), (10, 3), (200, 5)])
def test_the_live_status_fits_the_screen_and_keeps_the_line_with_the_keys(wide: int, high: int) -> None:
    made = launch.make(launch.prepare(Path(DEMO)))
    face = Live(made, steers=True)
    face.console = Console(width=wide, height=high, file=io.StringIO())
    process = {"state": "running", "restarts": 0}
    view = View(made, "a" * 53, state="running", demo=True, processes=[process | {"name": f"p-{i}"} for i in range(60)])
    view.alarms = [{"text": "x " * 200, "remedy": "y\n" * 200, "severity": "critical"}] * 5
    rows = [row.plain for row in face._status(view)]
    assert len(rows) < high
    assert max(map(text.cells, rows)) <= wide
    assert rows[-1].startswith("Ctrl-C: d")
    assert high < 8 or rows[0].startswith(" DEMO")
    said = []
    for count in (1, 2):
        face.interrupts = count
        said.append(face._status(view)[-1].plain)
    assert high < 8 or ["at once" in line for line in said] == [True, False]


def test_parts_of_a_line_are_never_broken() -> None:
    parts = [Text(part) for part in ("reward 0.412", "loss 0.5", "solved 44%")]
    assert [line.plain for line in _flow(parts, "  ", 24)] == ["reward 0.412  loss 0.5", "solved 44%"]


# --- output that nobody takes


def shell(line: str) -> subprocess.CompletedProcess[str]:
    line = line.replace("harbortui", f"{sys.executable} -m harbortui")
    return subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=60)


def test_a_disk_that_is_full_is_said_in_one_sentence() -> None:
    launch.make(launch.prepare(Path(DEMO)))
    for line in ("status --json", "ps", "config schema", "--help", "logs"):
        done = shell(f"harbortui {line} > /dev/full")
        sentence = "harbortui: the output could not be written (No space left on device); what was done stays done\n"
        assert (done.returncode, done.stderr) == (1, sentence), line
    done = shell("harbortui status nope --json > /dev/full")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_a_reader_that_goes_away_ends_every_command_with_0() -> None:
    made = launch.make(launch.prepare(Path(DEMO)))
    event = {"kind": "note", "t": 1.0, "text": "x" * 1000}
    (made.journals / "supervisor-1-1.jsonl").write_text((json.dumps(event) + "\n") * 500)
    made.log("trainer").write_text(f"2026-01-01T00:00:00.000Z {'x' * 1000}\n" * 500)
    for line in ("logs --all", "events", "events --json", "config schema", "--help"):
        done = shell(f"set -o pipefail; harbortui {line} | head -1")
        assert (done.returncode, done.stderr) == (0, ""), line


# --- configs and plans


def test_a_config_is_shown_whole_and_its_schema_is_json(run: Run) -> None:
    code, shown, _ = run("config", "show", DEMO, "--set", "demo.rate=7.5")
    assert code == 0
    assert "rate = 7.5" in shown
    code, shown, _ = run("config", "show", DEMO, "--json")
    assert json.loads(shown)["demo"]["rate"] == 50.0
    assert json.loads(run("config", "schema")[1])["title"] == "HarborTUI run config"


def test_a_dry_run_shows_the_plan_says_demo_and_makes_nothing(run: Run) -> None:
    code, shown, _ = run("run", DEMO, "--dry-run")
    assert code == 0
    assert "DEMO" in shown
    assert "nothing was started" in shown
    assert re.search(r"^rollouts-1 +rollouts +server, orchestrator", shown, re.MULTILINE)
    code, shown, _ = run("demo", "--dry-run", "--workers", "3", "--json")
    said = json.loads(shown)
    assert (said["demo"], said["started"]) == (True, False)
    assert [p["name"] for p in said["plan"]["processes"]][-1] == "rollouts-2"
    assert not runs_folder().exists()


def test_a_refused_launch_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    def refuse(*_: object) -> None:
        raise client.LaunchFailed("no room on this machine")

    monkeypatch.setattr(launch.client, "launch", refuse)
    code, _, err = run("run", DEMO, "--detach")
    assert (code, err) == (1, "harbortui: demo was not started: no room on this machine\n")
    assert list(runs_folder().iterdir()) == []
    assert list((Path(os.environ["HARBORTUI_RUNTIME"]) / "harbortui").iterdir()) == []


def test_the_name_of_a_config_is_counted_up_and_one_given_by_hand_is_refused(run: Run) -> None:
    made = [launch.make(launch.prepare(Path(DEMO))).name for _ in range(3)]
    assert made == ["demo", "demo-2", "demo-3"]
    assert launch.make(launch.prepare(Path(DEMO), name="mine")).name == "mine"
    code, _, err = run("run", DEMO, "--name", "mine")
    assert code == 2
    assert "mine exists; choose another name, or go on with that run: `harbortui run --resume mine`" in err
    both = [launch.prepare(Path(DEMO)) for _ in range(2)]
    assert [launch.make(one).name for one in both] == ["demo-4", "demo-5"]
    assert {run.name for run in all_runs()} == {*made, "mine", "demo-4", "demo-5"}


def test_a_run_that_was_never_launched_is_lost_and_cannot_be_controlled(run: Run) -> None:
    launch.make(launch.prepare(Path(DEMO)))
    said = json.loads(run("status", "--json")[1])
    assert (said["state"], said["supervisor"], said["demo"]) == ("lost", None, True)
    assert run("ps")[1].splitlines()[1].split()[:3] == ["demo", "lost", "DEMO"]
    assert "episodes when last heard of: 0 running" in run("status")[1]
    code, _, err = run("pause", "demo")
    assert (code, err) == (1, "harbortui: demo was never launched\n")


# --- machine and completion


def test_the_doctor_says_ok_warn_or_fail_with_a_remedy(run: Run) -> None:
    code, shown, _ = run("doctor", "--json")
    said = json.loads(shown)
    assert code == 0 if said["ok"] else code == 1
    checks = {check["name"]: check for check in said["checks"]}
    assert {"python", "uv", "tmux", "bwrap", "docker", "runs", "runtime", "open files", "leftovers"} <= set(checks)
    for check in said["checks"]:
        assert check["state"] in ("ok", "warn", "fail")
        assert check["remedy"] or check["state"] == "ok", check
    assert not runs_folder().exists()


def test_the_doctor_names_sockets_and_secrets_of_ended_runs_and_clean_removes_them(run: Run) -> None:
    made = launch.make(launch.prepare(Path(DEMO)))
    checks = {check["name"]: check for check in json.loads(run("doctor", "--json")[1])["checks"]}
    assert checks["leftovers"]["state"] == "warn"
    assert f"sockets and secrets of runs that are over: demo ({made.runtime})" in checks["leftovers"]["text"]
    assert checks["leftovers"]["remedy"] == "`harbortui clean --all` removes them"
    assert json.loads(run("clean", "--dry-run", "--json")[1])["runs"][0]["stuck"] == []
    shutil.rmtree(made.path)
    assert f"sockets and secrets of runs that are over: demo ({made.runtime})" in run("doctor")[1]
    assert f"demo: removing {made.runtime} (sockets and secrets)\ndemo: removed\n" == run("clean", "--all")[1]
    assert not made.runtime.exists()
    assert "no run has left" in run("doctor")[1]


def complete(words: str) -> list[str]:
    count = len(words.split()) - (not words.endswith(" "))
    done = program("-m", "harbortui", _HARBORTUI_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(count))
    return done.stdout.split()


def test_the_shell_completes_runs_processes_and_live_keys() -> None:
    launch.make(launch.prepare(Path(DEMO)))
    assert complete("harbortui status ") == ["demo"]
    assert complete("harbortui logs demo --process roll") == ["rollouts-0", "rollouts-1"]
    assert "agent.temperature" in complete("harbortui set --run demo ")
    (all_runs()[0].logs / "supervisor.log").touch()
    assert complete("harbortui logs demo --process super") == ["supervisor"]
    assert complete("harbortui restart super") == []


# --- text


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text() | st.floats() | st.booleans()))
def test_a_progress_line_is_one_line_without_control_characters(pairs: dict[str, object]) -> None:
    line = logfmt(pairs)
    assert len(line.splitlines()) <= 1
    assert "\x1b" not in line
    assert line.isprintable() or not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in line)


def test_columns_count_what_a_terminal_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert text.cells("日本é") == 6 - 1
    assert text.cut("日本語日本語", 5) == "日本…"
    lines = text.table(["run", "state", "what"], [["日本", "running", "x" * 50], ["a", "failed", "y"]])
    assert [line.index(word) for line, word in zip(lines, ("state", "running", "failed"), strict=True)] == [6, 4, 6]
    monkeypatch.setattr(text, "width", lambda: 30)
    assert max(map(text.cells, text.table(["run", "what"], [["a", "x" * 50]]))) == 30


def test_a_row_of_a_table_is_one_line_however_narrow_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    head, rows = ["run", "state", "step", "age", ""], [["r" * 53, "running", "7/10", "4m", "no supervisor"]]
    for wide in range(1, 100):
        monkeypatch.setattr(text, "width", lambda wide=wide: wide)
        for line in text.table(head, rows, right=(2, 3), spare=(3, 2)):
            assert text.cells(line) <= wide
    monkeypatch.setattr(text, "width", lambda: 60)
    assert re.match(r"r+…  running  7/10 ", text.table(head, rows, right=(2, 3), spare=(3, 2))[1])


@given(st.text())
def test_what_is_shown_on_a_line_and_what_is_json_can_steer_no_terminal(said: str) -> None:
    for shown in (text.plain(said), text.dumps({"text": said})):
        assert len(shown.splitlines()) <= 1
        assert not re.search("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
        shown.encode()
    assert json.loads(text.dumps(said)) == said


def test_ages_are_short() -> None:
    assert [text.age(s) for s in (0, 59, 61, 700, 3600, 90000)] == ["0s", "59s", "1m01s", "11m", "1h00m", "1d1h"]
