"""The command line through the life of a run: started, seen through, interrupted, suspended, lost, cleaned up."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_place import DEMO, FAST, ROOT, Place, on_terminal, supervisor

from harbortui.supervisor import ledger, procfs


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    here = Place(tmp_path / "runs", Path(tempfile.mkdtemp(prefix="hx-")))
    yield here
    here.end()


# --- seeing a run through


def test_a_demo_of_some_seconds_says_that_it_is_one_and_ends_well(place: Place) -> None:
    shown = place.do("demo", "--seconds", "1.5", "--rate", "400", "--workers", "1").splitlines()
    assert all(" run=demo demo=true " in line for line in shown)
    assert "event=state" in shown[0]
    assert any(" event=step " in line and " step=1 " in line and " honest=" in line for line in shown)
    assert " state=finished " in shown[-1]
    assert place.state("demo") == "finished"
    said = json.loads(place.do("status", "--json"))
    assert (said["state"], said["supervisor"], said["hint"]) == ("finished", None, None)
    assert {p["state"] for p in said["processes"]} == {"exited"}
    now = json.loads(place.do("attach", "demo", "--json"))
    assert (now["event"], now["state"], now["demo"], now["step"]) == ("state", "finished", True, said["step"])


def test_train_drains_on_ctrl_c_suspends_on_sigterm_and_goes_on_later(place: Place) -> None:
    train = place.start("train", "--no-ui", DEMO, *FAST, "--name", "t")
    place.until_state("t", "running")
    train.send_signal(signal.SIGTERM)
    out, err = train.communicate(timeout=20)
    assert train.returncode == 143
    assert "state=suspended" in out.splitlines()[-2] + out.splitlines()[-1]
    assert "harbortui: suspend: taking a checkpoint, then freeing everything" in err
    train = place.start("train", "--resume", "t")
    place.until_state("t", "running")
    assert ledger.read(place.run("t")).attempt == 2
    train.send_signal(signal.SIGINT)
    out, err = train.communicate(timeout=20)
    assert train.returncode == 130
    assert "Ctrl-C again stops it at once" in err
    assert "event=checkpoint" in out
    assert place.state("t") == "finished"


def test_a_second_ctrl_c_stops_at_once(place: Place) -> None:
    train = place.start("train", DEMO, *FAST, "--name", "t", "--set", "demo.rate=2.0", "--json")
    place.until_state("t", "running")
    train.send_signal(signal.SIGINT)
    place.until_state("t", "stopping")
    train.send_signal(signal.SIGINT)
    out, err = train.communicate(timeout=20)
    assert train.returncode == 130
    assert "stopping at once, without a checkpoint" in err
    assert json.loads(out.splitlines()[0])["demo"] is True


def test_a_lost_terminal_leaves_the_run_running_and_stop_ends_it(place: Place) -> None:
    train = place.start("train", DEMO, *FAST, "--name", "t")
    place.until_state("t", "running")
    train.send_signal(signal.SIGHUP)
    _, err = train.communicate(timeout=20)
    assert train.returncode == 129
    assert "t goes on; see it: `harbortui attach t`, end it: `harbortui stop t`" in err
    assert place.state("t") == "running"
    followers = [place.start("logs", "-f", "t"), place.start("events", "-f", "-k", "run", "t", "--json")]
    assert json.loads(place.do("stop", "t", "--wait", "--json"))["state"] == "true"
    _, told = [follower.communicate(timeout=20)[0] for follower in followers]
    assert [follower.returncode for follower in followers] == [0, 0]
    assert [json.loads(line)["state"] for line in told.splitlines()] == ["preparing", "running", "stopping", "finished"]
    assert place.state("t") == "finished"
    assert "t is finished; `harbortui run --resume t` goes on with it" in place.do("pause", "t", code=1)


def test_a_run_that_fails_ends_with_1_and_says_why(place: Place) -> None:
    fault = 'demo.faults=[{process="trainer", after=0.1, do="exit", amount=3.0}]'
    done = place.ended("train", DEMO, *FAST, "--set", fault, "--set", "supervision.failures=1", "--name", "t")
    assert done.returncode == 1
    assert re.search(r"event=state .* state=failed .*trainer", done.stdout)
    assert re.search(r"event=process .* process=trainer state=failed", done.stdout)
    assert place.do("status", "t").splitlines()[1].startswith("t  failed")


def test_in_the_foreground_the_process_is_thesupervisor(place: Place) -> None:
    process = place.start("train", DEMO, *FAST, "--name", "t", "--foreground")
    place.until_state("t", "running")
    assert supervisor(place.run("t")) == process.pid
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "event=state run=t demo=true state=running" in out
    assert place.state("t") == "suspended"


def test_every_line_of_the_tour_in_the_readme_runs_as_it_is_written(place: Place) -> None:
    text = (ROOT / "README.md").read_text().split("## A short tour")[1]
    lines = [line for line in text.split("```")[1].splitlines() if line.startswith("harbortui ")]
    assert len(lines) > 12
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for line in lines:
        if " attach " not in line:  # it stays until somebody leaves it
            done = subprocess.run(
                line, shell=True, cwd=ROOT, env={**place.env, "PATH": path}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert place.state("tour") == "finished"


# --- cleaning up


def test_clean_removes_what_a_dead_run_left_and_nothing_else(place: Place) -> None:
    place.do("demo", "--detach", "--name", "dead", *FAST)
    place.until_state("dead", "running")
    stranger = subprocess.Popen(["sleep", "60"])
    os.kill(supervisor(place.run("dead")), signal.SIGKILL)
    place.until(lambda: not supervisor(place.run("dead")), "the supervisor is gone")
    owned = [pid for pairs in ledger.read(place.run("dead")).living().values() for pid, _ in pairs]
    assert len(owned) == 12
    assert "processes without a supervisor: dead" in place.do("doctor")
    listed = place.do("clean", "dead", "--dry-run")
    assert all(f"would remove process {pid} " in listed for pid in owned)
    assert all(procfs.read(pid) for pid in owned)
    said = json.loads(place.do("clean", "--all", "--json"))["runs"]
    assert [(one["run"], one["removed"], one["stuck"]) for one in said] == [("dead", True, [])]
    assert {p["pid"] for p in said[0]["processes"]} == set(owned)
    assert not procfs.marked(f"{ledger.read(place.run('dead')).owner}:")
    assert not place.run("dead").runtime.exists()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()
    now = json.loads(place.do("status", "dead", "--json"))
    assert (now["state"], {p["state"] for p in now["processes"]}) == ("lost", {"lost"})
    assert place.do("clean", "dead") == "dead: nothing to remove\n"
    assert json.loads(place.do("index", "rebuild", "dead", "--json"))["bytes"] > 0


def test_clean_finds_keepers_without_a_ledger(place: Place) -> None:
    place.do("demo", "--detach", "--name", "torn", *FAST)
    place.until_state("torn", "running")
    owned = [pid for pairs in ledger.read(place.run("torn")).living().values() for pid, _ in pairs]
    os.kill(supervisor(place.run("torn")), signal.SIGKILL)
    place.until(lambda: not supervisor(place.run("torn")), "the supervisor is gone")
    place.run("torn").ledger.write_text("{")
    assert place.do("clean", "torn").endswith("torn: removed\n")
    assert not any((proc := procfs.read(pid)) and proc.state not in "ZX" for pid in owned)


def test_text_from_a_run_can_neither_steer_the_terminal_nor_be_taken_for_markup(place: Place) -> None:
    place.do("demo", "--seconds", "0.5", "--rate", "400", "--name", "evil")
    run = place.run("evil")
    hostile = "\x1b]52;c;aGk=\x07\x1b[2J[red]not red[/red] \u202etxt \x9b31m\r\n"
    with open(run.log("trainer"), "a") as log:
        log.write("2040-01-01T00:00:00.000Z " + hostile)
    (journal,) = run.journals.glob("supervisor-*.jsonl")
    event = {
        "kind": "alarm", "t": time.time(), "attempt": 1, "key": "evil", "state": "raised",
        "text": hostile, "remedy": hostile + "\nforged: line", "severity": "critical",
    }  # fmt: skip
    with open(journal, "a") as lines:
        lines.write(json.dumps(event) + "\n")
    (run.journals / "\x1b]0;owned\x07\x9b2J-1-1.jsonl").write_text(json.dumps({**event, "t": event["t"] + 1}) + "\n")
    shutil.copytree(run.path, place.folder / "zz\x1b[2J\u202e\nforged: line")
    plain = ["logs", "-n", "1"], ["status"], ["events", "-n", "2"], ["attach"]
    for command in (*plain, *([*words, "--json"] for words in plain), ["ps"], ["ps", "--json"]):
        face = on_terminal(place, *command, *([] if command[0] == "ps" else ["evil"]))
        assert face.process.wait(15) == 0
        face.until("evil" if command[0] != "logs" else "trainer")
        for sign in (b"\x1b]", b"\x1b[2J", "\u202e".encode(), "\x9b".encode(), b"\nforged"):
            assert sign not in face.seen, (command, sign)
        assert b"not red[/red]" in face.seen or command[0] == "ps" or command == ["attach", "--json"]
