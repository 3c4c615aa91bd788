"""The command line with real runs: started, watched, steered, killed and cleaned up as a user would."""

import csv
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harbortui.runs.layout import Run
from harbortui.supervisor import ledger, procfs

ROOT = Path(__file__).parent.parent
DEMO = str(ROOT / "configs" / "demo.toml")
FAST = [
    "--set", "demo.rate=400.0", "--set", "demo.step_seconds=0.05", "--set", "rollouts.group_size=2",
    "--set", "rollouts.groups_per_step=2", "--set", "run.budget.steps=100000",
]  # fmt: skip


@dataclass
class Place:
    """A folder of runs and a runtime folder, and the program run in them."""

    folder: Path
    runtime: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def env(self) -> dict[str, str]:
        own = {"HARBORTUI_RUNS": str(self.folder), "HARBORTUI_RUNTIME": str(self.runtime), "TERM": "xterm"}
        return {**os.environ, **own}

    def command(self, *argv: str) -> list[str]:
        return [sys.executable, "-m", "harbortui", *argv]

    def do(self, *argv: str, code: int = 0) -> str:
        """The output of a command that ends with `code`."""
        done = self.ended(*argv)
        assert done.returncode == code, f"{argv}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout if code == 0 or done.stdout else done.stderr

    def ended(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*argv), cwd=ROOT, env=self.env, capture_output=True, text=True, timeout=60)

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """A command that goes on; it is a group of its own, as a shell would make it."""
        process = subprocess.Popen(
            self.command(*argv), cwd=ROOT, env=self.env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0,
        )  # fmt: skip
        self.started.append(process)
        return process

    def run(self, name: str) -> Run:
        return Run(self.folder / name)

    def state(self, name: str) -> str:
        return ledger.read(self.run(name)).state

    def until(self, condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"never within {seconds:g} s: {what}"
            time.sleep(0.02)

    def until_state(self, name: str, *states: str) -> None:
        self.until(lambda: self.state(name) in states, f"{name} is {states} (is {self.state(name)})")

    def end(self) -> None:
        """Nothing may be left, whatever a test has done."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            owner = ledger.read(Run(path)).owner
            if pid := _supervisor(Run(path)):
                os.kill(pid, signal.SIGKILL)
            for proc in procfs.marked(f"{owner}:") if owner else ():
                procfs.kill(proc.pid, proc.start)
        shutil.rmtree(self.runtime, ignore_errors=True)


def _supervisor(run: Run) -> int:
    from harbortui.supervisor.lock import holder, supervised

    return holder(run) if supervised(run) else 0


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    here = Place(tmp_path / "runs", Path(tempfile.mkdtemp(prefix="hx-")))
    yield here
    here.end()


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
    assert said["supervisor"]["pid"] == _supervisor(live.run("live"))
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
    assert re.search(r"^rollouts-0 +running +\d+ ", shown, re.MULTILINE)
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
    assert len(only) == 3
    assert all(" trainer" in line for line in only)
    assert all("INFO" in line for line in live.do("logs", "live", "--grep", "INFO", "-n", "5").splitlines())
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
    assert live.do("resume", "--wait").splitlines() == ["live: going on", "live: running"]
    assert json.loads(live.do("status", "--json"))["state"] == "running"


def test_what_is_refused_ends_with_1_and_says_why(live: Place) -> None:
    assert live.do("resume", "live", code=1) == (
        "harbortui: live: resume: the run is running, nothing is paused or held\n"
    )
    said = json.loads(live.do("set", "agent.temperatur", "1", "--json", code=1))
    assert (said["ok"], said["state"]) == (False, "refused")
    assert "did you mean 'agent.temperature'?" in said["answer"]


def test_checkpoint_set_restart_and_note_do_what_they_say(live: Place) -> None:
    assert re.search(r"step_\d+ is whole\n$", live.do("checkpoint", "--wait"))
    assert list((live.folder / "live" / "checkpoints").glob("step_*/manifest.json"))
    assert live.do("set", "-r", "live", "rollouts.concurrency", "4") == "live: rollouts.concurrency becomes 4\n"
    assert "rollouts-1 is running" in live.do("restart", "rollouts-1", "--wait", "--run", "live")
    live.do("note", "[bold]looks[/] fine \x1b]0;title\x07")
    shown = live.do("events", "--kind", "note", "--kind", "operator")
    assert "[bold]looks[/] fine" in shown
    assert "\x1b" not in shown
    assert "verb=restart state=true" in shown


def test_clean_never_touches_a_run_with_a_living_supervisor(live: Place) -> None:
    shown = live.do("clean", "--all")
    assert "live: not touched: its supervisor lives" in shown
    assert json.loads(live.do("status", "--json"))["state"] == "running"


def test_a_killed_supervisor_is_shown_and_the_next_verb_starts_a_new_one(live: Place) -> None:
    before = _supervisor(live.run("live"))
    os.kill(before, signal.SIGKILL)
    live.until(lambda: not _supervisor(live.run("live")), "the supervisor is gone")
    said = json.loads(live.do("status", "live", "--json"))
    assert (said["state"], said["supervisor"]) == ("running", None)
    assert "its supervisor died, 6 processes go on" in said["hint"]
    assert "no supervisor" in live.do("ps")
    pids = {p["name"]: p["pid"] for p in said["processes"]}
    live.do("note", "still there?")
    assert _supervisor(live.run("live")) not in (0, before)
    assert {p["name"]: p["pid"] for p in json.loads(live.do("status", "--json"))["processes"]} == pids
    assert "live has a supervisor already" in live.do("supervise", "live", code=1)


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


def test_in_the_foreground_the_process_is_the_supervisor(place: Place) -> None:
    process = place.start("train", DEMO, *FAST, "--name", "t", "--foreground")
    place.until_state("t", "running")
    assert _supervisor(place.run("t")) == process.pid
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


# --- on a terminal


@dataclass
class Terminal:
    """A program on a terminal of 80 columns."""

    process: subprocess.Popen[bytes]
    fd: int
    seen: bytes = b""

    def until(self, pattern: str, seconds: float = 15.0) -> None:
        deadline = time.monotonic() + seconds
        while not re.search(pattern.encode(), self.seen):
            assert time.monotonic() < deadline, f"never seen: {pattern}\n{self.seen.decode()}"
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    assert re.search(pattern.encode(), self.seen), self.seen.decode()

    def press(self, key: bytes) -> None:
        os.write(self.fd, key)


def on_terminal(place: Place, *argv: str) -> Terminal:
    outer, inner = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    code = "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *place.command(*argv)], cwd=ROOT, env=place.env,
        stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
    )  # fmt: skip
    os.close(inner)
    place.started.append(process)  # type: ignore[arg-type]
    return Terminal(process, outer)


def test_on_a_terminal_the_status_is_live_and_q_leaves_the_run_running(live: Place) -> None:
    face = on_terminal(live, "attach", "live")
    face.until("DEMO  episodes are made up, nothing is trained")
    face.until("q or Ctrl-C: leave it running   end it: harbortui stop live")
    face.press(b"q")
    assert face.process.wait(10) == 0
    face.until("live goes on; see it: `harbortui attach live`")
    assert live.state("live") == "running"


def test_a_verb_that_loses_something_asks_on_a_terminal(live: Place) -> None:
    face = on_terminal(live, "stop", "live", "--now")
    face.until(r"Running episodes are cancelled; .*\r\nstop live\? \[y/N\]: ")
    face.press(b"n\n")
    assert face.process.wait(10) == 1
    face.until("aborted; nothing was done")
    assert live.state("live") == "running"


# --- cleaning up


def test_clean_removes_what_a_dead_run_left_and_nothing_else(place: Place) -> None:
    place.do("demo", "--detach", "--name", "dead", *FAST)
    place.until_state("dead", "running")
    stranger = subprocess.Popen(["sleep", "60"])
    os.kill(_supervisor(place.run("dead")), signal.SIGKILL)
    place.until(lambda: not _supervisor(place.run("dead")), "the supervisor is gone")
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


def test_text_from_a_run_can_neither_steer_the_terminal_nor_be_taken_for_markup(place: Place) -> None:
    place.do("demo", "--seconds", "0.5", "--rate", "400", "--name", "evil")
    run = place.run("evil")
    hostile = "\x1b]52;c;aGk=\x07\x1b[2J[red]not red[/red] \u202etxt \x9b31m\r\n"
    with open(run.log("trainer"), "a") as log:
        log.write("2040-01-01T00:00:00.000Z " + hostile)
    (journal,) = run.journals.glob("supervisor-*.jsonl")
    event = {
        "kind": "alarm", "t": time.time(), "attempt": 1, "key": "evil", "state": "raised",
        "text": hostile, "remedy": hostile, "severity": "critical",
    }  # fmt: skip
    with open(journal, "a") as lines:
        lines.write(json.dumps(event) + "\n")
    for command in (["logs", "-n", "1"], ["status"], ["events", "-n", "1"], ["attach"], ["ps"]):
        face = on_terminal(place, *command, "evil") if command != ["ps"] else on_terminal(place, "ps")
        assert face.process.wait(15) == 0
        face.until("evil" if command != ["logs", "-n", "1"] else "trainer")
        for sign in (b"\x1b]", b"\x1b[2J", "\u202e".encode(), "\x9b".encode()):
            assert sign not in face.seen, (command, sign)
        assert b"not red[/red]" in face.seen or command == ["ps"]
