"""From config to plan, by the name of the backend."""

from harbortui.backends.demo import plan as demo
from harbortui.config.schema import RunConfig
from harbortui.runs.layout import Run
from harbortui.supervisor.plan import Plan


class NotThere(Exception):
    """A backend that this version does not have."""


def plan_for(config: RunConfig, run: Run) -> Plan:
    if config.backend.name == "demo":
        return demo.plan(config, run)
    raise NotThere(f"backend.name: {config.backend.name!r} is not there in this version; only 'demo' is")
