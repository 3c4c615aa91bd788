"""Plans that cannot be executed are refused whole, with the path of every bad field."""

import json
import socket
from typing import Any

import pytest

from harbortui.supervisor import plan as plans


def a_plan(*processes: dict[str, Any], **more: Any) -> bytes:
    whole = [{"name": f"p{i}", "role": "server", "command": ["sleep", "1"], **p} for i, p in enumerate(processes)]
    return json.dumps({"name": "x", "backend": "demo", "processes": whole, **more}).encode()


def problems(data: bytes, ports: bool = False) -> list[str]:
    with pytest.raises(plans.PlanError) as refusal:
        plans.load(data, ports)
    return refusal.value.problems


HTTP = {"kind": "http", "target": "http://127.0.0.1:9/health"}

BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"name": "Bad Name"},
        "processes[0].name: 'Bad Name'; allowed are lower-case letters, digits, '-', '_', '.', at most 48",
    ),
    ({"name": "supervisor"}, "processes[0].name: 'supervisor' is the supervisor's own"),
    ({"role": "trianer"}, "processes[0].role: unknown role 'trianer'; did you mean 'trainer'?"),
    ({"command": []}, "processes[0].command: empty"),
    ({"command": ["no-such-program"]}, "processes[0].command[0]: 'no-such-program' is no program that can be run here"),
    ({"cwd": "/no/such/folder"}, "processes[0].cwd: '/no/such/folder' is no folder"),
    (
        {"stop": {"signal": "SIGNOTHING"}},
        "processes[0].stop.signal: 'SIGNOTHING' is no signal; SIGTERM and SIGINT are usual",
    ),
    ({"stop": {"deadline": 0}}, "processes[0].stop.deadline: 0.0; must be more than 0 seconds"),
    (
        {"restart": {"budget": 0}},
        "processes[0].restart: budget must be at least 1, backoff more than 0 and at most backoff_max",
    ),
    ({"ports": [70000]}, "processes[0].ports[0]: 70000 is no port; allowed: 1 to 65535"),
    (
        {"ready": {**HTTP, "target": "localhost:80"}},
        "processes[0].ready.target: 'localhost:80' is no http URL",
    ),
    ({"ready": {"kind": "command"}}, "processes[0].ready.command: empty; a command probe needs one"),
    ({"live": {"kind": "file"}}, "processes[0].live.target: empty; a file probe needs one"),
    (
        {"live": {"kind": "log", "target": "("}},
        "processes[0].live.target: '(' is no regular expression: missing ), unterminated subpattern at position 0",
    ),
    (
        {"ready": {**HTTP, "interval": 0}},
        "processes[0].ready.interval: interval, timeout, deadline and failures must be more than 0",
    ),
    (
        {"depends_on": [{"process": "p00"}]},
        "processes[0].depends_on[0].process: no process named 'p00'; did you mean 'p0'?",
    ),
]


@pytest.mark.parametrize(("field", "sentence"), BAD, ids=[sentence.split(":")[0] for _, sentence in BAD])
def test_a_bad_field_is_refused_with_its_path(field: dict[str, Any], sentence: str) -> None:
    assert problems(a_plan(field)) == [sentence]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"{", "plan: not JSON: Input data was truncated"),
        (a_plan(), "processes: empty; a plan needs at least one process"),
        (a_plan({}, version=9), "version: found 9, this program executes 1"),
        (a_plan({"ready": {"kind": "htp"}}), "processes[0].ready.kind: Invalid enum value 'htp'"),
        (a_plan({"comand": []}), "processes[0]: Object contains unknown field `comand`"),
        (
            a_plan({}, {"restart": {"policy": "never", "budget": "x"}}),
            "processes[1].restart.budget: Expected `int`, got `str`",
        ),
        (
            a_plan({"depends_on": [{"process": "p0", "until": "up"}]}),
            "processes[0].depends_on[0].until: Invalid enum value 'up'",
        ),
    ],
)
def test_what_is_no_plan_is_refused_with_the_place(data: bytes, sentence: str) -> None:
    assert problems(data) == [sentence]


def test_a_name_used_twice_is_refused() -> None:
    assert problems(a_plan({"name": "a"}, {"name": "a"})) == ["processes[1].name: 'a' is used twice"]


def test_a_cycle_is_refused_and_drawn() -> None:
    cycle = a_plan(
        {"name": "a", "depends_on": [{"process": "c"}]},
        {"name": "b", "depends_on": [{"process": "a"}]},
        {"name": "c", "depends_on": [{"process": "b"}]},
    )
    assert problems(cycle) == ["processes[0].depends_on: a cycle: a -> c -> b -> a"]


def test_all_problems_are_told_at_once() -> None:
    assert len(problems(a_plan({"role": "x"}, {"command": []}, {"cwd": "/nowhere"}))) == 3


def test_a_port_that_somebody_holds_is_refused_before_anything_starts() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        assert problems(a_plan({"ports": [port]}), ports=True) == [
            f"processes[0].ports[0]: {port} is in use (Address already in use); free it or choose another"
        ]
    plans.load(a_plan({"ports": [port]}), ports=True)


def test_a_port_asked_for_twice_is_refused() -> None:
    assert problems(a_plan({"ports": [81]}, {"ports": [81]})) == ["processes[1].ports[0]: 81 is also asked for by 'p0'"]


def test_nothing_is_started_before_what_it_depends_on() -> None:
    plan = plans.load(a_plan({"depends_on": [{"process": "p2"}]}, {}, {"depends_on": [{"process": "p1"}]}))
    assert [spec.name for spec in plans.order(plan)] == ["p1", "p2", "p0"]


def test_a_plan_survives_being_written_and_read() -> None:
    plan = plans.load(a_plan({"ready": HTTP, "gpus": [0, 1], "secrets": ["KEY"]}, {"depends_on": [{"process": "p0"}]}))
    assert plans.load(plans.encode(plan)) == plan
