"""The dashboards are what the script beside them writes; what they ask for is tried in test_prometheus."""

import json
import runpy
from typing import Any, Final

import pytest

from tests.deploy.tools import ROOT

GRAFANA: Final = ROOT / "deploy" / "grafana"
FILES: Final = sorted(GRAFANA.glob("*.json"))


def test_the_files_are_what_the_script_writes() -> None:
    written = runpy.run_path(str(GRAFANA / "make.py"))["boards"]()
    assert {file.name: file.read_text() for file in FILES} == written, "write them anew: python deploy/grafana/make.py"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_panels_have_places_of_their_own_and_say_what_they_show(file: Any) -> None:
    board = json.loads(file.read_text())
    places = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        places.add((place["x"], place["y"]))
        assert panel["description"].endswith(".")
        assert panel["targets"]
        assert all(target["legendFormat"] for target in panel["targets"])
    assert len(places) == len(board["panels"])
    variables = {each["name"] for each in board["templating"]["list"]}
    text = file.read_text()
    assert {name for name in ("source", "tenant") if f"${name}" in text or f"${{{name}}}" in text} <= variables
