"""What an installation promises: what it pulls in, what it imports, and that set-up and CI behave when typed again."""

import importlib.metadata
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
PINS = [Requirement(line) for line in PYPROJECT["tool"]["uv"]["constraint-dependencies"]]


def declared() -> Iterator[Requirement]:
    yield from map(Requirement, PROJECT["dependencies"])
    for lines in (*PROJECT["optional-dependencies"].values(), *PYPROJECT["dependency-groups"].values()):
        yield from map(Requirement, lines)


# --- what is declared


def test_every_direct_dependency_is_pinned_to_one_exact_version_within_its_range() -> None:
    pins = {}
    for pin in PINS:
        assert re.fullmatch(r"==[0-9][0-9a-z.+]*", str(pin.specifier)), f"{pin} is no exact pin"
        pins[canonicalize_name(pin.name)] = str(pin.specifier).removeprefix("==")
    for requirement in declared():
        name = canonicalize_name(requirement.name)
        assert name in pins, f"{name} has no pin"
        assert requirement.specifier.contains(pins[name]), f"{name} {pins[name]} is outside {requirement}"
        assert any(s.operator.startswith("<") for s in requirement.specifier), f"{requirement} has no upper bound"
    assert len(PINS) == len(pins), "a package is pinned twice"


def test_what_is_installed_here_is_what_is_pinned() -> None:
    installed = {canonicalize_name(d.name): d.version for d in importlib.metadata.distributions()}
    for pin in PINS:
        name = canonicalize_name(pin.name)
        if name in installed:
            assert pin.specifier.contains(installed[name]), f"{name} {installed[name]} is not {pin}"


def test_version_and_python_are_said_the_same_everywhere() -> None:
    import harbortui

    assert harbortui.__version__ == PROJECT["version"] == importlib.metadata.version("harbortui")
    chosen = (ROOT / ".python-version").read_text().strip()
    assert PROJECT["requires-python"] == f">={chosen}" == f">={PYPROJECT['tool']['mypy']['python_version']}"


def test_the_base_installation_pulls_in_no_torch() -> None:
    wanted, seen = ["harbortui"], set()
    while wanted:
        name = canonicalize_name(wanted.pop())
        if name not in seen:
            seen.add(name)
            for line in importlib.metadata.requires(name) or []:
                requirement = Requirement(line)
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    wanted.append(requirement.name)
    assert "typer" in seen
    assert not seen & {"torch", "transformers", "peft", "wandb", "tinker", "harbor"}


def test_every_base_dependency_is_imported_by_the_package() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "harbortui").rglob("*.py"))
    for line in PROJECT["dependencies"]:
        name = Requirement(line).name
        assert re.search(rf"^\s*(import|from) {name}\b", sources, re.MULTILINE), f"nothing imports {name}"


# --- what is imported


def test_asking_for_the_version_loads_no_heavy_package() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "harbortui", "--version"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert PROJECT["version"] in done.stdout
    loaded = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "harbortui" in loaded
    assert not loaded & {"torch", "textual", "pydantic", "harbor", "wandb"}


def test_importing_the_headless_modules_loads_no_textual_torch_wandb_or_agent() -> None:
    """Imports every module but those that may, one by one, so that a failure names the one that broke the rule."""
    code = """
import importlib, pkgutil, sys
import harbortui

def at_home(name):
    package, last = name.split(".")[1], name.split(".")[-1]
    return package in ("ui", "serving", "learning", "rollouts") or last in ("__main__", "wandb_sink")

for module in pkgutil.walk_packages(harbortui.__path__, "harbortui."):
    if not at_home(module.name):
        importlib.import_module(module.name)
        for heavy in ("textual", "torch", "transformers", "peft", "wandb", "harbor.agents", "litellm"):
            assert heavy not in sys.modules, f"{module.name} loads {heavy}"
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


# --- what is in git


def test_no_file_in_git_names_a_package_registry() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    registries = "pythonhosted[.]org|://[^ ]*/simple\\b|download[.]pytorch|(extra-)?index-url|find-links"
    found = subprocess.run(
        ["git", "grep", "-lIiE", registries, "--", ".", ":!tests/test_packaging.py"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert (found.returncode, found.stdout) == (1, "")
    locks = subprocess.run(["git", "ls-files", "*.lock", "*lock.json"], cwd=ROOT, capture_output=True, text=True)
    assert locks.stdout == ""


# --- make, typed again


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The set-up's files, and a folder `bin` that is all of PATH: core tools and a uv that notes its calls."""
    for name in ("pyproject.toml", ".python-version", "scripts/setup.sh", ".ci/run"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    tools = ("bash", "cat", "chmod", "cut", "dirname", "env", "id", "ln", "ls", "mkdir", "sed", "sha256sum", "sort")
    for tool in tools:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
    fake(tmp_path, "uv", """
        echo "$@" >>calls
        case $1 in
            --version) echo "uv 0.99.0" ;;
            python) echo /some/python3.12 ;;
            sync) mkdir -p .venv/bin
                  for name in harbortui pytest ruff mypy lint-imports python; do
                      printf '#!/bin/sh\\n' >.venv/bin/$name; chmod +x .venv/bin/$name
                  done ;;
        esac""")  # fmt: skip
    return tmp_path


def fake(checkout: Path, name: str, script: str) -> None:
    path = checkout / "bin" / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!/bin/bash\n{script}\n")
    path.chmod(0o755)


def start(checkout: Path, *command: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(checkout / "bin"), "HOME": str(checkout)}
    return subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=60)


def syncs(checkout: Path) -> list[str]:
    return [line for line in (checkout / "calls").read_text().splitlines() if line.startswith("sync")]


def test_setup_syncs_once_and_again_only_when_the_project_changed(checkout: Path) -> None:
    fake(checkout, "tmux", "")
    fake(checkout, "bwrap", "")
    first, second = (start(checkout, "scripts/setup.sh", "base") for _ in range(2))
    assert (first.returncode, second.returncode, second.stdout, second.stderr) == (0, 0, "", "")
    assert syncs(checkout) == ["sync --inexact --python /some/python3.12"]
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert start(checkout, "scripts/setup.sh", "base").returncode == 0
    assert len(syncs(checkout)) == 2


def test_setup_for_training_adds_the_extra_and_the_tests_never_take_it_away(checkout: Path) -> None:
    start(checkout, "scripts/setup.sh", "local")
    start(checkout, "scripts/setup.sh", "base")
    assert [line.split(" --python ")[0] for line in syncs(checkout)] == ["sync --inexact", "sync --inexact"]
    assert "--extra local" in syncs(checkout)[0]
    # Packages that somebody removed by hand come back, though the stamp still stands.
    start(checkout, "scripts/setup.sh", "local")
    assert len(syncs(checkout)) == 3


def test_setup_without_the_right_to_install_names_one_command_and_goes_on(checkout: Path) -> None:
    fake(checkout, "id", "echo 1000")
    fake(checkout, "sudo", "exit 1")
    fake(checkout, "apt-get", "echo called >>apt-calls")
    done = start(checkout, "scripts/setup.sh", "base")
    assert done.returncode == 0
    assert "sudo apt-get update && sudo apt-get install -y tmux bubblewrap" in done.stderr
    assert not (checkout / "apt-calls").exists()
    assert len(syncs(checkout)) == 1


def test_ci_closes_on_the_summary_of_pytest_and_fails_when_make_fails(checkout: Path) -> None:
    fake(checkout, "make", 'echo "== 1 failed in 0.10s =="; echo "make: *** [Makefile:30: test] Error 1" >&2; exit 2')
    done = start(checkout, ".ci/run")
    assert done.returncode == 2
    assert (done.stdout + done.stderr).splitlines()[-1] == "== 1 failed in 0.10s =="
