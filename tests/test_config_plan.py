"""From a config to a plan: what this version has, and what no process of it could do."""

from pathlib import Path

import pytest

from harbortui.backends import plans
from harbortui.config.errors import ConfigError
from harbortui.config.schema import RunConfig
from harbortui.runs.layout import Run


def config(process: str, workers: int = 2) -> RunConfig:
    fault = {"process": process, "after": 1.0, "do": "die"}
    return RunConfig.model_validate({"backend": {"name": "demo"}, "demo": {"workers": workers, "faults": [fault]}})


def test_what_is_available_is_not_missing() -> None:
    assert plans.available() == ("demo",)
    assert plans.missing_backend("demo") == ""
    sentence = "backend.name: 'local' is not there in this version; only 'demo' is"
    assert plans.missing_backend("local") == sentence
    with pytest.raises(plans.NotThere) as caught:
        plans.plan_for(RunConfig.model_validate({"backend": {"name": "local"}}), Run(Path("r")))
    assert str(caught.value) == sentence


def test_a_fault_can_happen_to_every_process_of_the_demo_and_to_no_other() -> None:
    plan = plans.plan_for(config("rollouts-2", workers=3), Run(Path("r")))
    assert [spec.name for spec in plan.processes if not spec.auxiliary] == config("x", workers=3).demo.processes()
    with pytest.raises(ConfigError) as caught:
        plans.plan_for(config("rollouts-9"), Run(Path("r")))
    assert str(caught.value) == (
        "run.toml: demo.faults[0].process: found 'rollouts-9' (string), "
        "allowed: server, orchestrator, trainer, rollouts-0, rollouts-1; did you mean rollouts-1?"
    )
