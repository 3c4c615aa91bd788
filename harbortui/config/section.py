"""The base of every section: unknown keys are refused, nothing is converted, nothing changes after loading."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """One table of the config. The text under a field is what editors and the docs show."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


@dataclass(frozen=True)
class Allowed:
    """In the annotation of a field whose rule a type cannot say: the rule as a sentence, and words to suggest."""

    sentence: str
    words: tuple[str, ...] = ()


def refuse(message: str, key: str | None = None) -> PydanticCustomError:
    """The error of a rule that types cannot say; `key` is the key of the section that is to blame."""
    context: dict[str, Any] = {"sentence": message}
    if key is not None:
        context["key"] = key
    return PydanticCustomError("harbortui", "{sentence}", context)
