"""A config with `backend.name = "demo"` becomes a plan: real processes, invented episodes."""

import sys
from dataclasses import replace
from typing import Any

import msgspec

from harbortui.backends.common import indexer, live_keys, notify, restart, watch
from harbortui.backends.demo.knobs import STARTS, Knobs
from harbortui.config import explain
from harbortui.config.errors import ConfigError
from harbortui.config.schema import RunConfig
from harbortui.runs.layout import Run
from harbortui.supervisor.plan import Dependency, Plan, Probe, ProcessSpec, Stop


def plan(config: RunConfig, run: Run) -> Plan:
    """On failure: a `ConfigError` where a fault names no process; `load` says it sooner, with the line."""
    if strays := explain.astray(config):
        raise ConfigError(replace(problem, file="run.toml") for _, problem in strays)
    budget = config.run.budget
    knobs = Knobs(
        seed=config.run.seed,
        rate=config.demo.rate,
        workers=config.demo.workers,
        episodes=config.demo.episodes,
        steps=budget.steps or (0 if budget.hours else config.demo.steps),
        seconds=(budget.hours or 0) * 3600,
        step_seconds=config.demo.step_seconds,
        log_lines=config.demo.log_lines_per_second,
        group_size=config.rollouts.group_size,
        groups_per_step=config.rollouts.groups_per_step,
        max_turns=config.agent.max_turns,
        context_limit=config.agent.context_limit,
        checkpoint_every=config.checkpoints.every,
        keep_last=config.checkpoints.keep_last,
        learning_rate=config.learning.learning_rate,
    )
    supervision = config.supervision
    env = {"HARBORTUI_DEMO_KNOBS": msgspec.json.encode(knobs).decode()}

    def process(name: str, role: str, *after: str, **more: Any) -> ProcessSpec:
        faults = [fault.model_dump() for fault in config.demo.faults if fault.process == name]
        return ProcessSpec(
            name=name,
            role=role,
            command=[sys.executable, "-m", f"harbortui.backends.demo.{role}"],
            env={**env, "HARBORTUI_DEMO_FAULTS": msgspec.json.encode(faults).decode()},
            depends_on=[Dependency(process=other) for other in after],
            stop=Stop(deadline=supervision.stop_seconds),
            restart=restart(supervision),
            **more,
        )

    sockets, started = run.runtime, Probe(kind="log", target=STARTS, deadline=30)
    return Plan(
        name=run.name,
        backend="demo",
        demo=True,
        notify=notify(config),
        watch=watch(supervision),
        live=live_keys(),
        processes=[
            indexer(run),
            process(
                "server",
                "server",
                steered=False,
                ready=Probe(kind="unix", target=str(sockets / "server.sock"), deadline=30),
                live=Probe(kind="unix", target=str(sockets / "server.sock"), interval=5, timeout=5),
            ),
            process(
                "orchestrator",
                "orchestrator",
                "server",
                completes=True,
                steered=True,
                ready=Probe(kind="unix", target=str(sockets / "orders.sock"), deadline=30),
            ),
            process("trainer", "trainer", "orchestrator", ready=started),
            *(
                process(f"rollouts-{i}", "rollouts", "server", "orchestrator", steered=True, ready=started)
                for i in range(knobs.workers)
            ),
        ],
    )
