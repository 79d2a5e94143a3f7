"""The table of attacks counts what every process has tried."""

from __future__ import annotations

import json

from attacks import gather
from attacks.__main__ import PAGE, table, written


def test_processes_are_added_up_and_the_commonest_outcome_comes_first(tmp_path):
    (tmp_path / "1.json").write_text(json.dumps([["b", "refused", 2], ["a", "whole", 1]]))
    (tmp_path / "2.json").write_text(json.dumps([["b", "drafted", 1000], ["b", "refused", 1]]))
    rows = table(gather(tmp_path)).splitlines()[2:]
    assert rows == ["| a | 1 | 1 whole |", "| b | 1,003 | 1,000 drafted, 3 refused |"]


def test_the_table_takes_the_place_of_the_old_one_and_of_nothing_else():
    page = PAGE.read_text(encoding="utf-8")
    fresh = written(page, "| a | 1 | whole |")
    assert "\n| a | 1 | whole |\n" in fresh
    assert fresh.count("| tries |") == 0
    assert written(fresh, "x").splitlines()[:10] == page.splitlines()[:10]
    assert fresh.endswith(page[-40:])
