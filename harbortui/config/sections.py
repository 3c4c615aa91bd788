"""The sections of a config that say what is trained, on what and how.

Guarantees: every field has a default that runs, but for `backend.name`; the text under a field is its description in
editors. Sections of backends that are not there yet hold what the design names and no more.
"""

import re
import shlex
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from harbortui.config.section import Allowed, Section, refuse

NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?")

# fmt: off
HARBOR_ENVIRONMENTS = [
    "docker", "podman", "daytona", "e2b", "modal", "runloop", "langsmith", "ec2", "gke", "ack", "openshift",
    "novita", "apple-container", "singularity", "islo", "tensorlake", "cwsandbox", "use-computer", "cua-cloud",
    "blaxel", "opensandbox", "beam", "skypilot", "hf-sandbox", "hyperbrowser", "vercel", "runta", "prime", "kata",
    "mosaic", "smol",
]
# fmt: on
ENVIRONMENTS = ["auto", "sandbox", *HARBOR_ENVIRONMENTS]
CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError("a run is a directory")
    return value


def _environment(value: str) -> str:
    if value not in ENVIRONMENTS and not CLASS.fullmatch(value):
        raise ValueError("unknown environment")
    return value


def _command(value: str) -> str:
    if not shlex.split(value):
        raise ValueError("no command")
    return value


def _url(value: str) -> str:
    if "${" in value:
        return value
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError("not a URL")
    return value


Text = Annotated[str, Field(min_length=1)]
Name = Annotated[
    str,
    AfterValidator(_name),
    Allowed("1 to 64 letters, digits, '.', '_' and '-', first a letter or digit, last not '.'"),
    Field(json_schema_extra={"pattern": f"^{NAME.pattern}$"}),
]
EnvironmentType = Annotated[
    str,
    AfterValidator(_environment),
    Allowed(f"{', '.join(ENVIRONMENTS)}, or module:Class", tuple(ENVIRONMENTS)),
    Field(json_schema_extra={"anyOf": [{"enum": [*ENVIRONMENTS]}, {"pattern": f"^{CLASS.pattern}$"}]}),
]
Command = Annotated[str, AfterValidator(_command), Allowed("a command with its quotes closed")]
Url = Annotated[str, AfterValidator(_url), Allowed("a URL that starts with http:// or https://, or ${NAME}")]


class Budget(Section):
    """When the run is done: at the first of these that is reached. None of them: when it is stopped."""

    steps: int | None = Field(default=None, ge=1)
    """Optimizer steps."""
    epochs: int | None = Field(default=None, ge=1)
    """Passes over the tasks that are not held out."""
    episodes: int | None = Field(default=None, ge=1)
    """Episodes that ended, whatever their cause."""
    tokens: int | None = Field(default=None, ge=1)
    """Tokens that the policy sampled."""
    hours: float | None = Field(default=None, gt=0)
    """Hours of running; time paused or suspended is not counted."""


class Notify(Section):
    """How you learn that a run has ended, has failed or is held by a guard."""

    bell: bool = True
    """Ring the bell of attached terminals."""
    command: Command | None = None
    """A command, split into words as a shell would and run without one; the event is JSON on its standard input."""
    webhook: Url | None = None
    """A URL that the event is posted to as JSON. If the URL is itself a secret, name its variable: `${NAME}`."""


class Run(Section):
    """The run: its name, its seed, its end."""

    name: Name = "run"
    """The name of the run's directory. Absent: the name of the config file."""
    seed: int = Field(default=0, ge=0, le=2**32 - 1)
    """Every random choice follows from it."""
    budget: Budget = Budget()
    """When the run is done."""
    notify: Notify = Notify()
    """How you learn of its end."""


class Backend(Section):
    """Who trains."""

    name: Literal["demo", "local", "tinker", "prime-rl"]
    """`demo` invents everything and trains nothing; `local` trains on this machine."""


class Model(Section):
    """The policy that is trained."""

    name: str = Field(default="tiny", min_length=1)
    """A hub id, a local path, or `tiny`: the built-in model of a few million parameters."""
    lora_rank: int = Field(default=32, ge=0)
    """Rank of the LoRA adapter; 0 trains all weights."""


class Tasks(Section):
    """What the policy is trained on."""

    path: Text | list[Text] = Field(default="datasets/harbor_tasks", min_length=1)
    """A folder of Harbor tasks, a Harbor dataset (`terminal-bench@2.0`), a git URL, or an array of these."""
    holdout: float = Field(default=0.0, ge=0, lt=1)
    """The share of tasks that is kept out of training and evaluated."""


class Environment(Section):
    """Where an episode's commands run."""

    type: EnvironmentType = "auto"
    """`auto` is docker where an engine answers, else sandbox; any environment of Harbor's; or `module:Class`."""
    network: bool = False
    """Whether a task that asks for the network gets it in the sandbox."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Passed to the environment untouched."""


class Agent(Section):
    """Who plays the episodes."""

    name: str = Field(default="terminus-2", min_length=1)
    """An agent of Harbor's, or `module:Class`."""
    max_turns: int = Field(default=20, ge=1)
    """Turns after which an episode ends. Can change while the run is live."""
    max_tokens: int = Field(default=4096, ge=1)
    """Tokens of one answer."""
    temperature: float = Field(default=0.7, ge=0, le=2)
    """Sampling temperature. Can change while the run is live."""
    context_limit: int = Field(default=32000, ge=1)
    """Tokens of prompt and answer together."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """Passed to the agent untouched."""

    @model_validator(mode="after")
    def _answer_fits(self) -> Self:
        if self.max_tokens >= self.context_limit:
            raise refuse(
                f"found {self.max_tokens}, allowed: less than agent.context_limit, which is {self.context_limit}",
                "max_tokens",
            )
        return self


class Rollouts(Section):
    """How many episodes, and how far ahead of the trainer. A step trains on groups_per_step x group_size episodes."""

    group_size: int = Field(default=8, ge=1)
    """Episodes of one task that are compared with each other."""
    groups_per_step: int = Field(default=8, ge=1)
    """Groups that one step trains on."""
    concurrency: int = Field(default=16, ge=1)
    """Episodes that run at once. Can change while the run is live."""
    workers: int = Field(default=2, ge=1)
    """Processes that run episodes."""
    max_staleness: int = Field(default=2, ge=0)
    """Policy versions by which an episode may be behind when it is trained on."""


class Learning(Section):
    """How a step learns."""

    loss: Literal["ppo", "importance_sampling", "cispo", "gspo"] = "ppo"
    """The loss."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """Can change while the run is live."""
    substeps: int = Field(default=1, ge=1)
    """Optimizer steps per batch, each a real one."""
    normalize_std: bool = True
    """Divide advantages by the standard deviation of their group."""


class Server(Section):
    """What answers the policy's calls."""

    engine: Literal["torch", "vllm", "external"] = "torch"
    """`torch` is built in, `vllm` is started by the run, `external` is a vLLM that runs already, at `url`."""
    url: Url | None = None
    """Where the external engine answers."""
    api_key: str | None = Field(default=None, min_length=1)
    """The external engine's key, by the name of its variable: `${NAME}`."""

    @model_validator(mode="after")
    def _url_goes_with_external(self) -> Self:
        if self.engine == "external" and self.url is None:
            raise refuse('missing; engine = "external" needs the URL at which it answers', "url")
        for key in ("url", "api_key"):
            if self.engine != "external" and getattr(self, key) is not None:
                raise refuse(f'only engine = "external" has one, and engine is "{self.engine}"; remove it', key)
        return self


class Checkpoints(Section):
    """What is kept, to resume from."""

    every: int = Field(default=10, ge=1)
    """Steps between checkpoints."""
    keep_last: int = Field(default=3, ge=1)
    """Whole checkpoints that are kept."""


class Wandb(Section):
    """Weights & Biases. Without this section nothing is sent there."""

    project: str = Field(min_length=1)
    """The project that the run appears in."""
