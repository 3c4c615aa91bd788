"""Where an index lies, and who may write it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from runs_story import make_run, story, write

from harbortui.runs.index import place
from harbortui.runs.index.place import Lock, Place, place_of, remote_kind
from harbortui.runs.index.writer import Index
from harbortui.runs.layout import Run
from harbortui.runs.reading import open_queries


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run")


@contextmanager
def indexed(run: Run, thorough: bool = False) -> Iterator[Index]:
    with Lock(place_of(run)) as lock:
        assert lock.take()
        with Index(run, place_of(run), thorough) as index:
            index.open()
            index.catch_up()
            yield index


def test_the_index_of_a_run_on_a_network_file_system_lies_in_the_cache(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "remote_kind", lambda path: "nfs4")
    write(run, story(1))
    found = place_of(run)
    assert found.folder.is_relative_to(tmp_path / "cache" / "harbortui" / "index")
    assert "network file system (nfs4)" in found.why
    with open_queries(run) as queries:
        assert queries.totals().n > 0
    assert not run.index.exists()
    assert found.index.exists()


def test_mounts_tell_the_kind_of_a_file_system(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:40 / /net rw shared:5 - nfs4 server:/x rw\n"
        "3 2 8:2 / /net/local rw - xfs /dev/sdb rw\n"
        "4 1 0:41 / /mnt/with\\040space rw - fuse.sshfs host: rw\n"
    )
    kinds = {
        p: remote_kind(Path(p), table) for p in ("/home", "/net/a", "/network", "/net/local/a", "/mnt/with space/x")
    }
    assert list(kinds.values()) == ["", "nfs4", "", "", "fuse.sshfs"]
    assert remote_kind(tmp_path, tmp_path / "none") == ""


def test_the_index_of_a_run_that_cannot_be_written_lies_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    base = Path(tempfile.mkdtemp(prefix="htui-ro-"))
    try:
        base.chmod(0o755)
        run = make_run(base / "run")
        write(run, story(1))
        (base / "cache").mkdir()
        (base / "cache").chmod(0o777)
        monkeypatch.setenv("HARBORTUI_CACHE", str(base / "cache"))
        run.path.chmod(0o555)
        with somebody_else():
            assert place_of(run).folder.is_relative_to(base / "cache")
            with open_queries(run) as queries:
                assert queries.totals().n > 0
        assert sorted(path.name for path in run.path.iterdir()) == ["journal"]
    finally:
        shutil.rmtree(base)


@contextmanager
def somebody_else() -> Iterator[None]:
    """Root may write everywhere, so be nobody for a while."""
    if os.getuid() != 0:
        yield
        return
    os.setresuid(65534, 65534, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


def test_where_nothing_can_be_written_the_reason_names_the_variable(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "remote_kind", lambda path: "nfs")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARBORTUI_CACHE", str(tmp_path / "file"))
    with pytest.raises(place.NoPlace, match="HARBORTUI_CACHE"):
        place_of(run)


def test_only_one_holds_the_lock(run: Run) -> None:
    found = Place(run.path)
    with Lock(found) as one, Lock(found) as two:
        assert one.take()
        assert not two.take()
        one.free()
        assert two.take()
