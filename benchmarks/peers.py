"""How long two peers take to notice the death of a child: honcho and circus, installed aside for this purpose only.

honcho tells it on its output and then stops everything; circus starts the child again, which is what is waited for.
Where they cannot be installed (no network) the rows are left out, with a word.
"""

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.figure import Figure
from harbortui.supervisor import procfs

PATIENCE = 15.0
CIRCUS = """[circus]
endpoint = tcp://127.0.0.1:15655
pubsub_endpoint = tcp://127.0.0.1:15656
[watcher:a]
cmd = sleep 99999
numprocesses = 1
"""


def install(folder: Path) -> Path | None:
    uv = shutil.which("uv") or next(iter(Path(".tools").glob("**/uv")), None)
    if not uv:
        return None
    place = folder / "venv"
    made = subprocess.run([str(uv), "venv", "-q", "-p", sys.executable, str(place)], capture_output=True)
    python = place / "bin" / "python"
    command = [str(uv), "pip", "install", "-q", "-p", str(python), "honcho", "circus"]
    try:
        added = subprocess.run(command, capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return None
    return place / "bin" if not (made.returncode or added.returncode) else None


def honcho(bin_folder: Path, folder: Path) -> float:
    (folder / "Procfile").write_text("a: exec sleep 99999\nb: exec sleep 99998\n")
    child = subprocess.Popen(
        [str(bin_folder / "honcho"), "start"], cwd=folder, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert child.stdout
    pids = {}
    while len(pids) < 2:
        if found := re.search(r"(\w)\.1 started \(pid=(\d+)\)", child.stdout.readline()):
            pids[found[1]] = int(found[2])
    time.sleep(0.5)
    at = time.monotonic()
    os.kill(pids["a"], signal.SIGKILL)
    while "a.1 stopped" not in child.stdout.readline():
        pass
    took = time.monotonic() - at
    child.wait()
    return took * 1000


def circus(bin_folder: Path, folder: Path, kills: int) -> list[float]:
    (folder / "circus.ini").write_text(CIRCUS)
    daemon = subprocess.Popen(
        [str(bin_folder / "circusd"), str(folder / "circus.ini")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def child() -> int:
        return next((p.pid for p in procfs.everything().values() if p.parent == daemon.pid and p.state not in "ZX"), 0)

    delays = []
    try:
        for _ in range(kills):
            end = time.monotonic() + PATIENCE
            while not (pid := child()) and time.monotonic() < end:
                time.sleep(0.01)
            if not pid:
                break
            time.sleep(0.7)
            at = time.monotonic()
            os.kill(pid, signal.SIGKILL)
            while child() in (0, pid) and time.monotonic() < end:
                time.sleep(0.002)
            if child() in (0, pid):
                break
            delays.append((time.monotonic() - at) * 1000)
    finally:
        left = child()
        daemon.kill()
        daemon.wait()
        if left:
            os.kill(left, signal.SIGKILL)
    return delays


def figures(ours: float, quick: bool = False) -> list[Figure]:
    """`ours`: our median, measured in the same run. A peer that does not answer in time is left out."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        bin_folder = install(folder)
        if not bin_folder:
            print("peers: honcho and circus could not be installed here; their rows are left out", file=sys.stderr)
            return []
        theirs = {"honcho": statistics.median(honcho(bin_folder, folder) for _ in range(3 if quick else 9))}
        if delays := circus(bin_folder, folder, 3 if quick else 7):
            theirs["circus"] = statistics.median(delays)
    rows = [Figure(f"death noticed by {name}, median", value, "ms") for name, value in theirs.items()]
    return rows + [Figure(f"{name} / ours", value / ours, "x") for name, value in theirs.items()]


if __name__ == "__main__":
    for figure in figures(1.0, quick=True):
        print(figure.line())
