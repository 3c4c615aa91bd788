"""Logs are read back in the order in which they were written, clean of control sequences, whatever their size."""

from pathlib import Path

import pytest

from harbortui.runs.layout import Run
from harbortui.supervisor import logtail

STAMP = "2026-01-01T00:00:0{}.000Z "
TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "a.py", line 3',
    "    step()",
    "",
    "RuntimeError: out of memory",
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    (tmp_path / "logs").mkdir()
    return Run(tmp_path)


def write(run: Run, process: str, second: int, lines: list[str], name: str = "") -> None:
    with open(run.logs / (name or f"{process}.log"), "a") as file:
        file.writelines(f"{STAMP.format(second)}{line}\n" for line in lines)


def texts(lines: object) -> list[str]:
    return [line.text for line in lines]  # type: ignore[attr-defined]


def test_lines_of_one_moment_keep_their_order(run: Run) -> None:
    write(run, "trainer", 2, TRACEBACK)
    write(run, "server", 1, ["ready"])
    write(run, "server", 3, ["gone"])
    assert texts(logtail.read(run)) == ["ready", *TRACEBACK, "gone"]
    assert texts(logtail.read(run, last=6)) == [*TRACEBACK, "gone"]
    assert texts(logtail.read(run, ["trainer"], last=100)) == TRACEBACK


def test_as_many_lines_as_asked_for_come_back_however_long_they_are(run: Run) -> None:
    write(run, "trainer", 1, [f"{i} " + "x" * 90_000 for i in range(10)])
    found = texts(logtail.read(run, last=3))
    assert [text.split()[0] for text in found] == ["7", "8", "9"]
    assert found[0].endswith("x ... (85906 more characters)")
    assert logtail.tail(run.log("trainer"), 1).startswith(STAMP.format(1) + "9 ")


def test_the_last_lines_reach_back_over_a_rotation(run: Run) -> None:
    write(run, "trainer", 1, ["old 1", "old 2"], "trainer.log.1")
    write(run, "trainer", 2, ["new"])
    assert texts(logtail.read(run, last=2)) == ["old 2", "new"]
    assert texts(logtail.read(run)) == ["old 1", "old 2", "new"]


def test_what_follows_comes_in_order_and_survives_a_rotation(run: Run) -> None:
    write(run, "trainer", 1, ["before"])
    following = logtail.follow(run, pause=0.0)
    assert next(following) is None
    write(run, "trainer", 2, TRACEBACK)
    assert [next(following).text for _ in TRACEBACK] == TRACEBACK  # type: ignore[union-attr]
    run.log("trainer").rename(run.logs / "trainer.log.1")
    write(run, "trainer", 3, ["after"])
    found = next(line for line in following if line)
    assert (found.process, found.text) == ("trainer", "after")


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]52;c;aGk=\x1b\\text", "text"),
        ("\x1bP1;2|data\x1b\\text", "text"),
        ("\x9b31mred", "31mred"),
        ("a\u202eb\u2028c", "abc"),
        ("nul\x00bell\x07", "nulbell"),
        ("[bold]brackets[/bold]", "[bold]brackets[/bold]"),
    ],
)
def test_nothing_that_acts_on_a_terminal_is_left(hostile: str, harmless: str) -> None:
    assert logtail.clean(hostile) == harmless
