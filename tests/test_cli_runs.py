"""The command line on a run that lives: looked at, steered, left by its supervisor, all while it goes on."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_place import FAST, ROOT, Place, on_terminal, supervisor

from harbortui.supervisor import procfs


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One demo that runs while many commands look at it; it has had a few steps."""
    here = Place(tmp_path_factory.mktemp("live") / "runs", Path(tempfile.mkdtemp(prefix="hx-")))
    said = json.loads(here.do("demo", "--detach", "--name", "live", *FAST, "--json"))
    assert (said["run"], said["demo"], said["attempt"]) == ("live", True, 1)
    here.until(lambda: len(json.loads(here.do("metrics", "live", "--json"))["steps"]) > 2, "three steps")
    yield here
    here.end()


# --- looking


def test_status_has_the_documented_shape(live: Place) -> None:
    said = json.loads(live.do("status", "live", "--json"))
    assert (said["run"], said["state"], said["backend"], said["demo"]) == ("live", "running", "demo", True)
    assert said["step"] >= 2
    assert said["supervisor"]["pid"] == supervisor(live.run("live"))
    assert [p["name"] for p in said["processes"]] == [
        "indexer", "server", "orchestrator", "trainer", "rollouts-0", "rollouts-1"
    ]  # fmt: skip
    for process in said["processes"]:
        assert process["state"] in ("ready", "running")
        assert process["restarts"] == 0
        assert procfs.read(process["pid"])
    assert said["alarms"] == []
    assert said["episodes"]["done"] > 0


def test_status_and_ps_say_demo_and_take_little_time(live: Place) -> None:
    shown = live.do("status")
    assert shown.startswith("DEMO: episodes are made up, nothing is trained\nlive  running  step ")
    assert re.search(r"^rollouts-0 +(ready|running) +\d+ ", shown, re.MULTILINE)
    assert re.search(r"^live +running +DEMO +\d+/100000 +\d+s +6/6", live.do("ps"), re.MULTILINE)
    assert json.loads(live.do("ps", "--json"))["runs"][0]["processes"] == {"alive": 6, "all": 6}
    took = []
    for _ in range(5):
        began = time.perf_counter()
        live.do("status", "--json")
        took.append(time.perf_counter() - began)
    assert min(took) < 0.4


def test_metrics_as_table_json_and_csv(live: Place) -> None:
    steps = json.loads(live.do("metrics", "live", "--last", "2", "--json"))["steps"]
    assert len(steps) == 2
    assert steps[1]["step"] == steps[0]["step"] + 1
    assert {"reward", "honest_reward", "loss", "left_out", "time", "attempt"} <= steps[0].keys()
    rows = list(csv.DictReader(io.StringIO(live.do("metrics", "live", "--csv"))))
    assert [int(row["step"]) for row in rows[:3]] == [1, 2, 3]
    assert float(rows[0]["loss"]) > 0
    shown = live.do("metrics", "live", "--last", "2")
    assert shown.startswith("DEMO: these numbers are made up\nstep ")


def test_logs_are_merged_filtered_and_end_quietly_at_a_closed_pipe(live: Place) -> None:
    lines = [json.loads(line) for line in live.do("logs", "live", "--json").splitlines()]
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert len({line["process"] for line in lines}) > 2
    only = live.do("logs", "live", "-p", "trainer", "-n", "3").splitlines()
    assert only.pop(0) == "DEMO: episodes are made up, nothing is trained"
    assert len(only) == 3
    assert all(" trainer" in line for line in only)
    assert all("INFO" in line for line in live.do("logs", "live", "--grep", "INFO", "-n", "5").splitlines()[1:])
    assert live.do("logs", "live", "--grep", "([", code=2) == (
        "harbortui: --grep: '([' is no regular expression: unterminated character set at position 1\n"
    )
    assert "no process 'rollout-0'; did you mean rollouts-0?" in live.do("logs", "live", "-p", "rollout-0", code=2)
    piped = subprocess.run(
        f"{sys.executable} -m harbortui logs live -f | head -2", shell=True, cwd=ROOT, env=live.env,
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert (len(piped.stdout.splitlines()), piped.stderr) == (2, "")


def test_events_are_json_lines_by_kind_and_time(live: Place) -> None:
    told = [json.loads(line) for line in live.do("events", "live", "--kind", "step", "--json").splitlines()]
    assert [event["step"] for event in told[:3]] == [1, 2, 3]
    assert {event["writer"] for event in told} == {"orchestrator"}
    family = {json.loads(line)["kind"] for line in live.do("events", "-k", "episode", "--json").splitlines()}
    assert family >= {"episode.started", "episode.finished"}
    assert live.do("events", "live", "--kind", "run", "-n", "1").rstrip().split(maxsplit=1)[1].startswith("supervisor ")
    assert live.do("events", "live", "--since", "2040-01-01") == ""
    assert "--kind: no kind of event 'stpe'; did you mean step?" in live.do("events", "--kind", "stpe", code=2)
    assert "--since: found 'yesterday', allowed: 30s, 10m" in live.do("events", "--since", "yesterday", code=2)


# --- verbs


def test_pause_and_resume_are_waited_for_until_they_are_true(live: Place) -> None:
    said = json.loads(live.do("pause", "live", "--wait", "--json"))
    assert (said["ok"], said["state"], said["verb"]) == (True, "true", "pause")
    now = json.loads(live.do("status", "--json"))
    assert (now["state"], now["level"], now["episodes"]["running"]) == ("paused", "dispatch", 0)
    assert live.do("resume", "--wait").splitlines() == ["live (DEMO): going on", "live (DEMO): running"]
    assert json.loads(live.do("status", "--json"))["state"] == "running"


def test_what_is_refused_ends_with_1_and_says_why(live: Place) -> None:
    assert live.do("resume", "live", code=1) == (
        "harbortui: live (DEMO): resume: the run is running, nothing is paused or held\n"
    )
    said = json.loads(live.do("resume", "--json", code=1))
    assert (said["ok"], said["state"]) == (False, "refused")
    said = json.loads(live.do("set", "agent.temperatur", "1", "--json", code=2))
    assert "did you mean 'agent.temperature'?" in said["error"]


def test_checkpoint_set_restart_and_note_do_what_they_say(live: Place) -> None:
    assert re.search(r"step_\d+ is whole\n$", live.do("checkpoint", "--wait"))
    assert list((live.folder / "live" / "checkpoints").glob("step_*/manifest.json"))
    assert live.do("set", "-r", "live", "rollouts.concurrency", "4") == "live (DEMO): rollouts.concurrency becomes 4\n"
    assert re.search("rollouts-1 is (ready|running)", live.do("restart", "rollouts-1", "--wait", "--run", "live"))
    live.do("note", "[bold]looks[/] fine \x1b]0;title\x07")
    shown = live.do("events", "--kind", "note", "--kind", "operator")
    assert "[bold]looks[/] fine" in shown
    assert "\x1b" not in shown
    assert "verb=restart state=true" in shown


def test_clean_never_touches_a_run_with_a_livingsupervisor(live: Place) -> None:
    shown = live.do("clean", "--all")
    assert "live: not touched: its supervisor lives" in shown
    assert json.loads(live.do("status", "--json"))["state"] == "running"


def test_a_killed_supervisor_is_shown_and_the_next_verb_starts_a_new_one(live: Place) -> None:
    before = supervisor(live.run("live"))
    os.kill(before, signal.SIGKILL)
    live.until(lambda: not supervisor(live.run("live")), "the supervisor is gone")
    said = json.loads(live.do("status", "live", "--json"))
    assert (said["state"], said["supervisor"]) == ("running", None)
    assert "its supervisor died, 6 processes go on" in said["hint"]
    assert "no supervisor" in live.do("ps")
    pids = {p["name"]: p["pid"] for p in said["processes"]}
    live.do("note", "still there?")
    assert supervisor(live.run("live")) not in (0, before)
    assert {p["name"]: p["pid"] for p in json.loads(live.do("status", "--json"))["processes"]} == pids
    assert "live has a supervisor already" in live.do("supervise", "live", code=1)


# --- on a terminal


def test_on_a_terminal_the_status_is_live_and_q_leaves_the_run_running(live: Place) -> None:
    face = on_terminal(live, "attach", "live")
    face.until("DEMO  episodes are made up, nothing is trained")
    face.until("q or Ctrl-C: leave it running   end it: harbortui stop live")
    face.press(b"q")
    assert face.process.wait(10) == 0
    face.until("live goes on; see it: `harbortui attach live`")
    assert b"q or Ctrl-C" not in face.seen.rsplit(b"\x1b[2K", 1)[1], "the status is gone, the sentence stands last"
    assert live.state("live") == "running"


def test_a_verb_that_loses_something_asks_on_a_terminal(live: Place) -> None:
    face = on_terminal(live, "stop", "live", "--now")
    face.until(r"Running episodes are cancelled; .*\r\nstop live \(DEMO\)\? \[y/N\]: ")
    face.press(b"n\n")
    assert face.process.wait(10) == 1
    face.until("aborted; nothing was done")
    assert live.state("live") == "running"


def test_on_a_terminal_that_moves_no_cursor_progress_is_lines(live: Place) -> None:
    face = on_terminal(live, "attach", "live", term="dumb")
    face.until("event=state run=live demo=true")
    face.until("event=step ")
    face.press(b"\x03")
    assert face.process.wait(10) == 130
    assert b"\x1b" not in face.seen


def test_after_a_stop_and_fg_a_key_still_needs_no_enter(live: Place) -> None:
    face = on_terminal(live, "attach", "live")
    face.until("leave it running")
    os.kill(face.process.pid, signal.SIGSTOP)
    mode = termios.tcgetattr(face.fd)
    termios.tcsetattr(face.fd, termios.TCSANOW, [*mode[:3], mode[3] | termios.ICANON, *mode[4:]])
    os.kill(face.process.pid, signal.SIGCONT)
    live.until(lambda: not termios.tcgetattr(face.fd)[3] & termios.ICANON, "keys without Enter")
    face.press(b"q")
    assert face.process.wait(10) == 0


def test_a_full_disk_loses_the_lines_and_not_the_run(live: Place) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            live.command("demo", "--seconds", "1", "--name", "df"), cwd=ROOT, env=live.env, stdout=full,
            stderr=subprocess.PIPE, text=True, timeout=60,
        )  # fmt: skip
    sentence = "harbortui: the output could not be written (No space left on device); df goes on without it\n"
    assert (done.returncode, done.stderr) == (0, sentence)
    assert live.state("df") == "finished"
    face = on_terminal(live, "stop", "df")
    assert face.process.wait(10) == 1
    face.until("df is finished; `harbortui run --resume df` goes on with it")
    assert b"[y/N]" not in face.seen
