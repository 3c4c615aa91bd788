"""How a run is called in sentences: by its name, and as a DEMO where it is one.

Guarantees: costs one read of the plan; a run without one that can be read is called by its name alone.
"""

import os

import msgspec

from harbortui.cli import text
from harbortui.runs.layout import Run

BANNER = "DEMO: episodes are made up, nothing is trained"


class _Plan(msgspec.Struct):
    demo: bool = False


def is_demo(run: Run) -> bool:
    try:
        return msgspec.json.decode(run.plan.read_bytes(), type=_Plan).demo
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return False


def label(run: Run) -> str:
    return text.plain(run.name) + (" (DEMO)" if is_demo(run) else "")


def is_ours(run: Run) -> bool:
    """Whether this user may control it."""
    try:
        return run.path.stat().st_uid == os.getuid()
    except OSError:
        return False
