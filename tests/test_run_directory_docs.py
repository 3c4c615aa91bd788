"""What docs/run-directory.md says of events is what they are."""

from pathlib import Path

import msgspec

from harbortui.runs.events import KINDS, Event

PAGE = Path(__file__).parent.parent / "docs" / "run-directory.md"


def test_the_table_of_events_names_every_kind_and_field() -> None:
    common = {field.name for field in msgspec.structs.fields(Event)}
    told = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[0].strip("`") in KINDS:
            told[cells[0].strip("`")] = [field.strip("`") for field in cells[1].split(", ")]
    assert told == {
        kind: [field.name for field in msgspec.structs.fields(event) if field.name not in common]
        for kind, event in KINDS.items()
    }
