"""The tables of an index, and what of them is content.

Guarantees: every index carries a version (`user_version`) that changes by itself with the tables, and with FILLING,
which is raised when the same tables are filled in another way; an index of another version is never read or written,
it is built anew. Episode numbers (`e`) and everything in BOOKKEEPING are an index's own affair;
all else is content: a function of the events, the same after a rebuild (`harbortui.runs.index.content` compares it).
Room for full-text search: it will be one more table over `turn.commands` and `fact.body`, by their keys.
"""

import sqlite3
import zlib

from harbortui.runs.index.rollups import SPECS, ddl

FILLING = 1
APPLICATION = 0x48425449
BOOKKEEPING = ("meta", "journal")

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE journal (
    name TEXT PRIMARY KEY, process TEXT NOT NULL, offset INTEGER NOT NULL, crc INTEGER NOT NULL,
    inode INTEGER NOT NULL, changed INTEGER NOT NULL, pending INTEGER NOT NULL, state TEXT NOT NULL,
    reason TEXT NOT NULL, last REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE bad_line (
    journal TEXT, what TEXT, count INTEGER NOT NULL, first INTEGER NOT NULL, PRIMARY KEY (journal, what)
) WITHOUT ROWID;
CREATE TABLE unknown (kind TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE extent (key INTEGER PRIMARY KEY, first REAL NOT NULL, last REAL NOT NULL);
CREATE TABLE fact (
    kind TEXT, key TEXT, t REAL, process TEXT, body TEXT, attempt INTEGER NOT NULL, m REAL NOT NULL,
    PRIMARY KEY (kind, key, t, process, body)
) WITHOUT ROWID;
CREATE TABLE alarm (
    key TEXT PRIMARY KEY, attempt INTEGER, m REAL, t REAL, state TEXT, body TEXT
) WITHOUT ROWID;
CREATE TABLE episode (
    e INTEGER PRIMARY KEY, id TEXT NOT NULL, n INTEGER NOT NULL, attempt INTEGER NOT NULL,
    first REAL NOT NULL, superseded REAL,
    queued REAL, queued_tie INTEGER, queued_task TEXT, queued_step INTEGER, grp TEXT, policy INTEGER, eval INTEGER,
    started REAL, started_tie INTEGER, started_task TEXT, worker TEXT, trial TEXT, agent TEXT, model TEXT,
    finished REAL, finished_tie INTEGER, cause TEXT, reward REAL, turns INTEGER, prompt INTEGER, completion INTEGER,
    seconds REAL, end_policy INTEGER, cost REAL, error TEXT, path TEXT, flags TEXT,
    task TEXT NOT NULL, step INTEGER, moment REAL NOT NULL, tokens INTEGER
);
CREATE TABLE turn (
    e INTEGER, turn INTEGER, t REAL, tie INTEGER, prompt INTEGER, completion INTEGER, context REAL, policy INTEGER,
    seconds REAL, logprob REAL, commands TEXT, PRIMARY KEY (e, turn, t, tie)
) WITHOUT ROWID;
CREATE TABLE phase (e INTEGER, t REAL, phase TEXT, PRIMARY KEY (e, t, phase)) WITHOUT ROWID;
CREATE TABLE held (
    e INTEGER, t REAL, held INTEGER, seconds REAL, PRIMARY KEY (e, t, held, seconds)
) WITHOUT ROWID;
CREATE TABLE grp (
    id TEXT PRIMARY KEY, task TEXT, state TEXT, attempt INTEGER, opened REAL, t REAL, size INTEGER, policy INTEGER,
    step INTEGER, reason TEXT
) WITHOUT ROWID;
CREATE TABLE step (
    attempt INTEGER, step INTEGER, t REAL, m REAL, tie INTEGER, superseded REAL, body TEXT,
    PRIMARY KEY (attempt, step, t, tie)
) WITHOUT ROWID;
CREATE TABLE cut (
    attempt INTEGER, m REAL, step INTEGER, t REAL, PRIMARY KEY (attempt, m, step, t)
) WITHOUT ROWID;
CREATE TABLE metric (
    name TEXT, attempt INTEGER, step INTEGER, t REAL, value REAL, PRIMARY KEY (name, attempt, step, t, value)
) WITHOUT ROWID;
CREATE TABLE acknowledged (
    process TEXT, sequence INTEGER, t REAL NOT NULL, PRIMARY KEY (process, sequence)
) WITHOUT ROWID;
"""

INDEXES = """
CREATE INDEX fact_alarm ON fact (t) WHERE kind = 'alarm';
CREATE INDEX fact_operator ON fact (t) WHERE kind = 'operator';
CREATE INDEX fact_note ON fact (t) WHERE kind = 'note';
CREATE INDEX alarm_raised ON alarm (t) WHERE state = 'raised';
CREATE INDEX fact_newest ON fact (kind, key, attempt, m);
CREATE UNIQUE INDEX episode_id ON episode (id, n);
CREATE INDEX episode_open ON episode (attempt, started) WHERE finished IS NULL AND superseded IS NULL;
CREATE INDEX episode_span ON episode (first, moment, superseded, queued, started, finished, attempt);
CREATE INDEX episode_finished ON episode (finished);
CREATE INDEX episode_superseded ON episode (superseded) WHERE superseded IS NOT NULL;
CREATE INDEX episode_grp ON episode (grp);
CREATE INDEX episode_moment ON episode (moment);
CREATE INDEX episode_task ON episode (task, moment);
CREATE INDEX episode_step ON episode (step, moment);
CREATE INDEX episode_worker ON episode (worker, moment);
CREATE INDEX episode_cause ON episode (cause, moment);
CREATE INDEX episode_cause_reward ON episode (cause, reward, id, n);
CREATE INDEX episode_reward ON episode (reward, id, n);
CREATE INDEX episode_turns ON episode (turns, id, n);
CREATE INDEX episode_tokens ON episode (tokens, id, n);
CREATE INDEX episode_seconds ON episode (seconds, id, n);
CREATE INDEX grp_step ON grp (step);
CREATE INDEX grp_t ON grp (t);
CREATE INDEX step_number ON step (step);
CREATE INDEX step_t ON step (t);
CREATE INDEX step_superseded ON step (superseded) WHERE superseded IS NOT NULL;
CREATE INDEX cut_t ON cut (t);
"""


ROLLUPS = [ddl(name, spec) for name, spec in SPECS.items()]
VERSION = zlib.crc32(repr((FILLING, TABLES, INDEXES, ROLLUPS)).encode()) & 0x7FFFFFFF


def create(connection: sqlite3.Connection) -> None:
    for script in (TABLES, INDEXES):
        for statement in filter(str.strip, script.split(";")):
            connection.execute(statement)
    for statement in ROLLUPS:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def version(connection: sqlite3.Connection) -> int:
    """The version of an index; -1 for a database that is none."""
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        return -1
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
