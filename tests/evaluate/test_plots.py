"""Pictures: what they show, and that they can be drawn."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ngramkit.evaluate.plots import (
    PALETTE,
    colors_of,
    draw_bytes,
    draw_categories,
    draw_learning,
    draw_lines,
    draw_steps,
    draw_together,
    learning_curve,
    replay_pictures,
    saved_figure,
)
from ngramkit.evaluate.recorded_evidence import Misses
from ngramkit.evaluate.replay_figures import Replay, Tally
from ngramkit.evaluate.statistics import Interval


@pytest.fixture
def axes():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(6, 5), layout="constrained")
    yield figure.add_subplot()
    pyplot.close(figure)


def result(drafter, budget, steps, names=(), categories=("all",)):
    """Return a replay that took 10 passes for each question, of so many tokens/step."""
    found = Replay(drafter, budget)
    for i, (step, name) in enumerate(zip(steps, names or map(str, range(99)), strict=False)):
        tally = Tally(tokens=10 * step, passes=10)
        found.asked_before.append(name in found.names)
        found.names.append(name)
        found.by_record.append(tally)
        found.total.add(tally)
        found.by_category.setdefault(categories[i % len(categories)], Tally()).add(tally)
    return found


def test_questions_asked_before_are_a_line_of_their_own():
    names = ["a", "b", "a", "c", "b", "a"]
    found = result("ssd", 8, [1, 2, 5, 3, 6, 7], names)
    first, again = learning_curve(found, again=False), learning_curve(found, again=True)
    assert [column.tolist() for column in first] == [[0, 1, 3], [1, 2, 3]]
    assert [column.tolist() for column in again] == [[2, 4, 5], [5, 6, 7]]


def test_learning_is_the_mean_over_a_tenth_of_the_questions():
    at, steps = learning_curve(result("ssd", 8, range(1, 41)), again=False)
    assert at[:2].tolist() == [1.5, 2.5]
    assert steps[:2].tolist() == [2.5, 3.5]
    assert len(at) == len(steps) == 37


def test_lines_over_a_log_have_marks_and_its_words(axes):
    results = [result(name, 8, range(1, 41)) for name in ("4 tokens", "8 tokens")]
    draw_learning(axes, results, colors_of(["4 tokens", "8 tokens"]), "requests")
    marks = [line.get_marker() for line in axes.get_lines()]
    assert len({*marks[:2]} - {"None"}) == 2
    assert axes.get_xlabel() == "requests answered so far"
    assert axes.get_legend().get_title().get_text() == "tokens/step at the end"


def test_a_line_is_named_with_its_last_figure(axes):
    results = [result(name, b, [b + 1]) for name in ("a", "b") for b in (2, 8)]
    draw_lines(axes, results, {"a": "C0", "b": "C1", "generate": "C2"})
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["a 9.00", "b 9.00"]
    assert legend.get_title().get_text() == "tokens/step with 8 nodes"
    marks = [line.get_marker() for line in axes.get_lines() if line.get_marker() != "None"]
    assert len(set(marks)) == len(marks) == 2  # told apart without colours
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["2", "8"]


def test_figures_that_lack_evidence_are_hollow(axes):
    results = [result("recycling", b, [2, 3], categories="ab") for b in (2, 8)]
    results[1].misses = Misses(100, 50)
    draw_lines(axes, results, {"recycling": "C0"})
    line, hollow, *_ = axes.get_lines()
    assert hollow.get_markerfacecolor() == "white"
    assert hollow.get_ydata().tolist() == line.get_ydata().tolist()[1:]
    assert "hollow: too low" in axes.get_legend().get_title().get_text()
    axes.clear()
    draw_steps(axes, results[1:], {"recycling": "C0"})
    assert axes.get_lines()[0].get_fillstyle() == "none"
    assert "hollow: too low" in axes.get_legend().get_title().get_text()


def test_a_speedup_below_one_stands_beside_the_line_at_one(axes):
    none = {"rest": [Interval()] * 2}
    draw_categories(axes, {"rest": [0.2, 0.3]}, ["x", "y"], {"rest": "C0"}, "speed-up", none)
    assert axes.get_xlim()[1] > 1
    assert [1, 1] in [list(line.get_xdata()) for line in axes.lines]


def test_names_of_any_length_are_whole_in_the_legend(axes):
    names = ["rest:max_match=8,continuation=12,budget=64", "cacheback:leader_length=2,followers=8"]
    draw_lines(axes, [result(name, b, [2]) for name in names for b in (2, 8)], colors_of(names))
    axes.figure.draw_without_rendering()  # constrained layout warns where there is no room
    legend = axes.get_legend().get_window_extent()
    assert 0 <= legend.x0 < legend.x1 <= axes.figure.bbox.width
    shown = axes.get_legend().get_texts()[0].get_text()
    assert shown.replace("\n", "") == f"{names[0]} 2.00"


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_texts_from_a_log_are_plain(suffix, tmp_path):
    """`$` begins no formula, a name that begins with `_` is in the legend."""
    kinds = ("$5 to $9", r"a $\frac{$ b", "50% & _x^2_")
    results = [
        result(name, b, [1, 2, 3], categories=kinds) for name in ("_own", "$a$") for b in (2, 3)
    ]
    path = tmp_path / f"a.{suffix}"
    draw_together(path, replay_pictures(results, learning=True))
    if suffix == "svg":
        drawn = path.read_text()
        for text in ("$5 to $9", "_own", "$a$", "x^2"):
            assert text in drawn
        assert "mathdefault" not in drawn


@pytest.mark.parametrize("count", [1, 4, 8])
def test_the_legend_covers_no_label_and_takes_no_room_of_the_axes(count, tmp_path):
    names = [f"my_company.drafters:LongName{i},max_match=8,continuation=12" for i in range(count)]
    with saved_figure(tmp_path / "a.png", (5, 4.2)) as figure:
        axes = figure.add_subplot()
        draw_lines(axes, [result(name, b, [2]) for name in names for b in (2, 8)], colors_of(names))
    legend, label = axes.get_legend().get_window_extent(), axes.xaxis.label.get_window_extent()
    assert legend.y1 < label.y0
    assert legend.y0 >= 0
    assert axes.get_window_extent().height / figure.dpi > 2.5


def test_as_many_categories_as_there_are_have_room(tmp_path):
    rows = [f"a kind of request {i}" for i in range(40)]
    values = {f"drafter {i}": [1.5] * 40 for i in range(8)}
    with saved_figure(tmp_path / "a.png", (5, 4.2)) as figure:
        axes = figure.add_subplot()
        none = {name: [Interval()] * len(rows) for name in values}
        draw_categories(axes, values, rows, colors_of(values), "tokens/step", none)
    places = [label.get_window_extent() for label in axes.get_yticklabels()]
    assert all(upper.y0 > lower.y1 for upper, lower in itertools.pairwise(places))


# What people see who lack the cones of long, middle or short waves: Machado, Oliveira and Fernandes
# 2009, of linear RGB. Then CIE L*a*b* (1976), in which 2.3 is a just noticeable difference.
SIGHTS = {
    "whole": np.eye(3),
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(color):
    levels = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(levels <= 0.04045, levels / 12.92, ((levels + 0.055) / 1.055) ** 2.4)


def lab(color, sight):
    seen = XYZ @ np.clip(np.array(sight) @ linear(color), 0, 1) / XYZ.sum(1)
    x, y, z = np.where(seen > 0.008856, np.cbrt(seen), 7.787 * seen + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("sight", SIGHTS.values(), ids=SIGHTS)
def test_everyone_can_tell_the_colours_apart(sight):
    for one, other in itertools.combinations(PALETTE, 2):
        assert np.linalg.norm(lab(one, sight) - lab(other, sight)) > 20, (one, other)


def test_every_colour_stands_out_from_white():
    assert all(1.05 / (XYZ[1] @ linear(color) + 0.05) >= 3 for color in PALETTE)


def test_categories_are_rows_of_dots(axes):
    values = {"blend": [3, 2, 2], "rest": [1, 1, 2]}
    none = {name: [Interval()] * 3 for name in values}
    colors = {"blend": "C0", "rest": "C1"}
    draw_categories(axes, values, ["x", "y", "z"], colors, "tokens/step", none)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["x", "y", "z"]
    dots = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() != "None"]
    assert [[x for x, _ in line] for line in dots] == [[3, 2, 2], [1, 1, 2]]
    for blend, rest in zip(*dots, strict=True):
        assert blend[1] < rest[1] < blend[1] + 0.5  # apart, and in one row


def test_the_picture_names_drafters_and_curves_once(axes):
    points = [Replay("rest", 8, Tally(3, 2), bytes=size) for size in (4_000_000, 238_000_000)]
    curves = {"rest": {"pruned": points, "": points[:1]}, "blend": {"pruned": points}}
    draw_bytes(axes, curves)
    axes.figure.draw_without_rendering()
    named = [text.get_text() for text in axes.get_legend().get_texts()]
    assert named == ["rest", "blend", "pruned"]
    lines = [line for line in axes.lines if len(line.get_xdata())]
    assert [list(line.get_xdata()) for line in lines] == [[4, 238], [4], [4, 238]]
    assert [line.get_color() for line in lines] == ["C0", "C0", "C1"]
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert {"5", "10", "50", "100"} <= set(ticks)


def test_a_picture_of_everything_can_be_drawn(tmp_path):
    names = ["a", "b", "c"] * 2
    results = [
        result(drafter, budget, [1, 2, 1, 30, 20, 30], names, ("x", "y", "z"))
        for drafter in ("ssd", "context")
        for budget in (4, 16)
    ]
    draw_together(tmp_path / "p.png", replay_pictures(results, learning=True))
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_with_one_question_and_nothing_asked_twice_can_be_drawn(tmp_path):
    draw_together(tmp_path / "p.svg", replay_pictures([result("ssd", 8, [1])], learning=True))
    assert b"<svg" in (tmp_path / "p.svg").read_bytes()
