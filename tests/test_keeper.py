"""Keepers with real children: what dies is told, what is left is ended, what is said is drained."""

import asyncio
import os
import random
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbortui.supervisor import procfs
from harbortui.supervisor.drain import LONGEST, Log
from harbortui.supervisor.kept import Kept, Order

MARK = f"test-{os.getpid()}:x:"
Spawn = Callable[..., Coroutine[Any, Any, Kept]]


@pytest.fixture
def spawn(tmp_path: Path) -> Spawn:
    short = Path(os.environ["HARBORTUI_RUNTIME"])

    def shell(script: str, log_bytes: int = 1 << 20, log_files: int = 3, redact: tuple[str, ...] = ()) -> Any:
        env = {"PATH": os.environ["PATH"], procfs.MARK: MARK}
        order = Order(
            ["bash", "-c", script], env, "", tmp_path / "x.log", log_bytes, log_files, list(redact),
            short / "x.sock", short / "x.exit", 5.0,
        )  # fmt: skip
        return Kept.spawn(order, MARK, lambda kept: None)

    return shell


def until(condition: Callable[[], Any], what: str, seconds: float = 10.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.005)
    return found


async def end_of(kept: Kept) -> int | None:
    ending = await asyncio.wait_for(kept.exited, 20)
    await asyncio.wait_for(kept.gone, 20)
    return ending.code


def test_the_end_of_a_child_is_told_with_its_code_and_its_last_words_are_in_the_log(
    spawn: Spawn, tmp_path: Path
) -> None:
    async def story() -> int | None:
        return await end_of(await spawn("echo one; echo two >&2; printf three; exit 7"))

    assert asyncio.run(story()) == 7
    assert [line.split(" ", 1)[1] for line in (tmp_path / "x.log").read_text().splitlines()] == ["one", "two", "three"]


def test_a_death_by_signal_is_noticed_within_milliseconds(spawn: Spawn) -> None:
    async def story() -> list[float]:
        delays = []
        for _ in range(15):
            kept = await spawn("sleep 100")
            await kept.started
            at = time.monotonic()
            os.kill(kept.pid, signal.SIGKILL)
            ending = await kept.exited
            delays.append(time.monotonic() - at)
            assert ending.code == -signal.SIGKILL
            await kept.gone
        return delays

    assert statistics.median(asyncio.run(story())) < 0.010


def test_a_command_that_cannot_be_started_ends_with_127_and_the_reason_in_the_log(spawn: Spawn, tmp_path: Path) -> None:
    async def story() -> int | None:
        return await end_of(await spawn("exec /no/such/program"))

    assert asyncio.run(story()) == 127
    assert "/no/such/program" in (tmp_path / "x.log").read_text()


def test_a_child_that_ignores_sigterm_is_killed_at_the_deadline(spawn: Spawn) -> None:
    async def story() -> tuple[int | None, float]:
        kept = await spawn("trap '' TERM; echo ready; while :; do sleep 1; done")
        await asyncio.sleep(0.2)
        at = time.monotonic()
        kept.stop(signal.SIGTERM, 0.5)
        return await end_of(kept), time.monotonic() - at

    code, took = asyncio.run(story())
    assert code == -signal.SIGKILL
    assert 0.4 < took < 3


def test_grandchildren_that_left_the_session_end_with_the_child(spawn: Spawn, tmp_path: Path) -> None:
    script = "for i in 1 2 3; do (trap '' TERM; setsid setsid sleep 500 & echo $! >> pids) & done; sleep 0.3; exit 3"

    async def story() -> int | None:
        return await end_of(await spawn(f"cd {tmp_path}; {script}"))

    assert asyncio.run(story()) == 3
    assert len((tmp_path / "pids").read_text().split()) == 3
    assert procfs.marked(MARK) == []
    assert "outlived their parent" in (tmp_path / "x.log").read_text()


def test_when_the_keeper_is_killed_its_child_and_the_strays_die_too(spawn: Spawn) -> None:
    async def story() -> int | None:
        kept = await spawn("(setsid sleep 500 &) ; sleep 500; true")
        await kept.started
        until(lambda: len(procfs.marked(MARK)) >= 2, "child and stray")
        os.kill(kept.keeper, signal.SIGKILL)
        return await end_of(kept)

    assert asyncio.run(story()) == -signal.SIGKILL
    assert procfs.marked(MARK) == []


def test_a_child_outlives_its_supervisor_and_a_new_one_hears_how_it_ended(spawn: Spawn) -> None:
    short = Path(os.environ["HARBORTUI_RUNTIME"])

    async def first() -> Kept:
        kept = await spawn("sleep 0.6; exit 5")
        await kept.started
        kept.detach()
        return kept

    kept = asyncio.run(first())
    assert procfs.alive(kept.pid, kept.start)

    async def second() -> int | None:
        adopted = await Kept.adopt(short / "x.sock", short / "x.exit", MARK, (kept.keeper, kept.keeper_start), True)
        assert adopted is not None
        assert (await adopted.started, adopted.pid) == (None, kept.pid)
        return await end_of(adopted)

    assert asyncio.run(second()) == 5


def test_an_end_that_nobody_saw_is_read_from_the_record(spawn: Spawn) -> None:
    short = Path(os.environ["HARBORTUI_RUNTIME"])

    async def first() -> Kept:
        kept = await spawn("sleep 0.1; exit 6")
        await kept.started
        kept.detach()
        return kept

    kept = asyncio.run(first())
    until(lambda: not procfs.alive(kept.keeper, kept.keeper_start), "the keeper has left")

    async def second() -> int | None:
        adopted = await Kept.adopt(short / "x.sock", short / "x.exit", MARK, (kept.keeper, kept.keeper_start), True)
        assert adopted is not None
        return await end_of(adopted)

    assert asyncio.run(second()) == 6


def test_a_keeper_whose_folder_is_gone_leaves_with_its_child(spawn: Spawn) -> None:
    async def story() -> Kept:
        kept = await spawn("sleep 0.3")
        await kept.started
        kept.detach()
        return kept

    kept = asyncio.run(story())
    shutil.rmtree(os.environ["HARBORTUI_RUNTIME"])
    until(lambda: not procfs.alive(kept.keeper, kept.keeper_start), "the keeper has left")


def test_a_flood_is_drained_within_the_rotation_limit(spawn: Spawn, tmp_path: Path, proof: bool) -> None:
    total = 1 << 30
    flood = f"""exec {sys.executable} -c "
import os
block = (b'a line of a flood that nobody reads' * 3 + b'\\n') * 600
for _ in range({total} // len(block) + 1): os.write(1, block)
print('the last line')
" """

    async def story() -> tuple[int | None, int]:
        kept = await spawn(flood, log_bytes=8 << 20, log_files=3)
        code = await asyncio.wait_for(kept.exited, 110)
        with open(f"/proc/{kept.keeper}/status") as file:
            rss = next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        await kept.gone
        return code.code, rss

    code, peak = asyncio.run(story())
    assert code == 0
    logs = list(tmp_path.glob("x.log*"))
    assert sum(log.stat().st_size for log in logs) < 25 << 20
    assert len(logs) == 3
    assert (tmp_path / "x.log").read_bytes().endswith(b"the last line\n")
    assert peak < 16 << 10, f"the keeper grew to {peak} KiB"


def test_secrets_do_not_reach_the_log(spawn: Spawn, tmp_path: Path) -> None:
    async def story() -> int | None:
        return await end_of(
            await spawn("echo key=hunter22hunter; printf hunter22; sleep 0.1; echo hunter", redact=("hunter22hunter",))
        )

    asyncio.run(story())
    text = (tmp_path / "x.log").read_text()
    assert "hunter22hunter" not in text
    assert "key=[redacted]" in text


@given(
    st.lists(st.sampled_from([b"s3cr3t-value", b"plain ", b"\n", b"x" * 700, b"s3cr3t", b"-value"]), max_size=60),
    st.integers(0, 2**32),
)
def test_no_cut_of_the_output_lets_a_secret_through_and_no_byte_is_lost(parts: list[bytes], seed: int) -> None:
    written: list[bytes] = []
    log = Log("/nonexistent/x.log", 1 << 20, 2, [b"s3cr3t-value"])
    log.stamp = lambda: b""  # type: ignore[method-assign]
    log.write = written.append  # type: ignore[assignment,method-assign]
    whole, at, chance = b"".join(parts), 0, random.Random(seed)
    while at < len(whole):
        step = chance.randint(1, 200)
        log.feed(whole[at : at + step])
        at += step
    log.close_line()
    expected = whole.replace(b"s3cr3t-value", b"[redacted]")
    assert b"".join(written) == expected + (b"\n" if expected and not expected.endswith(b"\n") else b"")


def test_a_line_without_end_is_written_in_parts_and_hides_secrets_at_the_seams() -> None:
    written: list[bytes] = []
    log = Log("/nonexistent/x.log", 1 << 20, 2, [b"s3cr3t-value"])
    log.write = written.append  # type: ignore[assignment,method-assign]
    for shift in range(40):
        log.feed(b"y" * (LONGEST - shift) + b"s3cr3t-value" + b"z" * 50)
    assert b"s3cr3t-value" not in b"".join(written)
    assert len(log.rest) <= LONGEST + 1000


def test_a_log_on_a_full_disk_is_skipped_counted_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    log = Log(str(tmp_path / "missing" / "x.log"), 1 << 20, 2, [])
    log.feed(b"lost line\n")
    assert log.dropped > 0
    (tmp_path / "missing").mkdir()
    log.feed(b"kept line\n")
    text = (tmp_path / "missing" / "x.log").read_text()
    assert "bytes of output dropped" in text
    assert text.endswith("kept line\n")


def test_a_progress_bar_shows_its_last_state_and_not_all_of_them(spawn: Spawn, tmp_path: Path) -> None:
    bar = (
        "for i in 1 2 3; do printf '\\rLoading %d0%%' $i; done; echo; printf 'dos line\\r\\n'; printf '\\rhalf %d' 5; "
    )

    async def story() -> None:
        kept = await spawn(bar + "sleep 100")
        await kept.started
        log = tmp_path / "x.log"
        while "half 5" not in (log.read_text() if log.exists() else ""):
            await asyncio.sleep(0.02)
        kept.stop(signal.SIGKILL, 0.1)
        await end_of(kept)

    asyncio.run(story())
    lines = [line.split(" ", 1)[1] for line in (tmp_path / "x.log").read_text().splitlines()]
    assert lines == ["Loading 30%", "dos line", "half 5"]


def test_a_keeper_stays_small(spawn: Spawn) -> None:
    async def story() -> int:
        kept = await spawn("for i in $(seq 2000); do echo line $i; done; sleep 100")
        await kept.started
        await asyncio.sleep(0.3)
        with open(f"/proc/{kept.keeper}/status") as file:
            rss = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
        kept.stop(signal.SIGKILL, 0.1)
        await end_of(kept)
        return rss

    assert asyncio.run(story()) * 1024 <= 12_000_000


def test_a_pid_that_was_given_to_another_process_is_never_killed() -> None:
    mine = procfs.read(os.getpid())
    assert mine is not None
    assert procfs.alive(mine.pid, mine.start)
    assert not procfs.alive(mine.pid, mine.start - 1)
    assert not procfs.kill(mine.pid, mine.start - 1, signal.SIGKILL)
