"""One measured figure and what was promised of it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """`relation` is how the value has to stand to its target; a figure without one only informs."""

    name: str
    value: float
    unit: str
    relation: str = ""
    target: float | None = None

    @property
    def holds(self) -> bool:
        if self.target is None:
            return True
        return self.value <= self.target if self.relation == "<=" else self.value >= self.target

    def line(self) -> str:
        value = f"{self.value:,.0f}" if abs(self.value) >= 1000 else f"{self.value:.3g}"
        promised = "" if self.target is None else f"{self.relation} {self.target:g}"
        verdict = "" if self.target is None else ("holds" if self.holds else "MISSED")
        return f"{self.name:<52} {value:>10} {self.unit:<14} {promised:<12} {verdict}"


def percentile(values: list[float], share: float) -> float:
    """Of values that are sorted."""
    return values[min(len(values) - 1, round(len(values) * share / 100))]
