"""What an index says, apart from how it says it: for comparing an index with one built anew.

Guarantees: two indexes of the same events give the same digest, whatever the order in which the events came in, the
journals and batches they stood in, and the numbers that rows happened to get.
"""

import hashlib
import sqlite3
from collections.abc import Iterator

from harbortui.runs.index.attempt import COLUMNS
from harbortui.runs.index.rollups import SPECS

_OF = "JOIN episode USING (e)"
TABLES: dict[str, str] = {
    "episode": f"SELECT {', '.join(c for c in COLUMNS if c != 'e')} FROM episode ORDER BY id, n",
    "turn": "SELECT id, n, turn, t, tie, turn.prompt, turn.completion, context, turn.policy, turn.seconds, logprob, "
    f"commands FROM turn {_OF} ORDER BY id, n, turn, t, tie",
    "phase": f"SELECT id, n, t, phase FROM phase {_OF} ORDER BY id, n, t, phase",
    "held": f"SELECT id, n, t, held, held.seconds FROM held {_OF} ORDER BY id, n, t, held, held.seconds",
    "fact": "SELECT * FROM fact ORDER BY kind, key, t, process, body",
    "alarm": "SELECT * FROM alarm ORDER BY key",
    "grp": "SELECT * FROM grp ORDER BY id",
    "step": "SELECT * FROM step ORDER BY attempt, step, t, tie",
    "cut": "SELECT * FROM cut ORDER BY attempt, m, step, t",
    "metric": "SELECT * FROM metric ORDER BY name, attempt, step, t, value",
    "acknowledged": "SELECT * FROM acknowledged ORDER BY process, sequence",
    "extent": "SELECT * FROM extent",
    "unknown": "SELECT * FROM unknown ORDER BY kind",
    "bad_line": "SELECT * FROM bad_line ORDER BY journal, what",
    **{name: f"SELECT * FROM {name} ORDER BY {', '.join(spec.keys)}" for name, spec in SPECS.items()},
}


def rows(connection: sqlite3.Connection) -> Iterator[tuple[str, tuple[object, ...]]]:
    for name, query in TABLES.items():
        for row in connection.execute(query):
            yield name, row


def digest(connection: sqlite3.Connection) -> str:
    found = hashlib.sha256()
    for name, row in rows(connection):
        found.update(f"{name}{row!r}\n".encode("utf-8", "surrogatepass"))
    return found.hexdigest()
