"""What every test gets: its own folder of runs and its own runtime folder, and a look at what it left behind."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("suite", database=None, deadline=None)
settings.register_profile("proof", parent=settings.get_profile("suite"), max_examples=1000)
settings.load_profile("proof" if os.environ.get("HARBORTUI_PROOF") == "1" else "suite")
os.environ |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "off", "OMP_WAIT_POLICY": "passive"}


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The runtime folder is short, since the paths of sockets must be."""
    runtime = tempfile.mkdtemp(prefix="htui-")
    monkeypatch.setenv("HARBORTUI_RUNTIME", runtime)
    monkeypatch.setenv("HARBORTUI_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield
    shutil.rmtree(runtime, ignore_errors=True)


@pytest.fixture(scope="session")
def proof() -> bool:
    """Whether this is the full-size run (`make proof`)."""
    return os.environ.get("HARBORTUI_PROOF") == "1"
