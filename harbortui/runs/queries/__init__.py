"""Every question that a screen, a `--json` answer or the supervisor asks about a run, answered from its index.

Guarantees: answers are frozen structs that msgspec turns into JSON as they are. `at=` answers as of a past moment.
"""

from harbortui.runs.queries.base import IndexUnusable
from harbortui.runs.queries.book import BookQueries
from harbortui.runs.queries.episodes import EpisodeQueries
from harbortui.runs.queries.finding import EpisodeFilter
from harbortui.runs.queries.metrics import MetricQueries
from harbortui.runs.queries.mission import MissionQueries
from harbortui.runs.queries.system import SystemQueries
from harbortui.runs.queries.tasks import TaskQueries

__all__ = ["EpisodeFilter", "IndexUnusable", "Queries"]


class Queries(MissionQueries, EpisodeQueries, MetricQueries, TaskQueries, SystemQueries, BookQueries):
    """One reader of one run's index."""
