"""Pictures: what they say, that nothing in them overlaps, and that they can be drawn."""

from __future__ import annotations

import pytest

from ngramkit.evaluate.plots import draw_categories, draw_learning, draw_lines, learning, plot
from ngramkit.evaluate.simulation import Replay, Tally


@pytest.fixture
def axes(request):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(6, 5), layout="constrained")
    yield figure.add_subplot(projection=getattr(request, "param", None))
    pyplot.close(figure)


def result(drafter, budget, steps, names=(), categories=("all",)):
    """A replay that took 10 passes for each question, of so many tokens/step."""
    found = Replay(drafter, budget)
    for i, (step, name) in enumerate(zip(steps, names or map(str, range(99)), strict=False)):
        tally = Tally(tokens=10 * step, passes=10)
        found.names.append(name)
        found.by_record.append(tally)
        found.total.add(tally)
        found.by_category.setdefault(categories[i % len(categories)], Tally()).add(tally)
    return found


def boxes(axes, artists):
    axes.figure.draw_without_rendering()
    return [artist.get_window_extent() for artist in artists]


def overlapping(found):
    return [(a, b) for i, a in enumerate(found) for b in found[:i] if a.overlaps(b)]


def test_questions_asked_before_are_a_line_of_their_own():
    names = ["a", "b", "a", "c", "b", "a"]
    found = result("ssd", 8, [1, 2, 5, 3, 6, 7], names)
    first, again = learning(found, again=False), learning(found, again=True)
    assert [column.tolist() for column in first] == [[0, 1, 3], [1, 2, 3]]
    assert [column.tolist() for column in again] == [[2, 4, 5], [5, 6, 7]]


def test_learning_is_the_mean_over_a_tenth_of_the_questions():
    at, steps = learning(result("ssd", 8, range(1, 41)), again=False)
    assert at[:2].tolist() == [1.5, 2.5]
    assert steps[:2].tolist() == [2.5, 3.5]
    assert len(at) == len(steps) == 37


def test_learning_of_a_drafter_that_was_asked_nothing_twice_has_one_line(axes):
    draw_learning(axes, [result("ssd", 8, [1, 2, 3])], {"ssd": "C0"})
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["new questions"]


def test_ten_drafters_that_learn_are_named_beside_their_lines_not_over_them(axes):
    names = [f"drafter-{i}" for i in range(10)]
    results = [result(name, 8, [2 + 0.01 * i] * 20) for i, name in enumerate(names)]
    draw_learning(axes, results, {name: f"C{i}" for i, name in enumerate(names)})
    labels = [text for text in axes.texts if text.get_text().startswith("drafter-")]
    found = boxes(axes, labels)
    assert len(found) == 10
    assert not overlapping(found)
    end = axes.transData.transform((19, 2))[0]
    assert all(box.x0 > end and box.y0 >= axes.bbox.y0 - box.height for box in found)
    legend = boxes(axes, [axes.get_legend()])[0]
    assert legend.y1 < axes.bbox.y0


def test_a_name_stands_at_the_height_of_its_line(axes):
    draw_lines(axes, [result("a", b, [b]) for b in (2, 8)], {"a": "C0"})
    (label,) = [text for text in axes.texts if text.get_text() == "a 8.00"]
    box = boxes(axes, [label])[0]
    assert box.y0 < axes.transData.transform((8, 8))[1] < box.y1


def test_lines_that_end_alike_have_names_that_do_not_overlap(axes):
    names = [f"drafter-{i}" for i in range(6)]
    results = [result(name, b, [b + 1]) for name in names for b in (2, 8)]
    draw_lines(axes, results, {name: f"C{i}" for i, name in enumerate(names)})
    labels = [text for text in axes.texts if text.get_text().startswith("drafter-")]
    assert [text.get_text() for text in labels] == [f"{name} 9.00" for name in names]
    found = boxes(axes, labels)
    assert not overlapping(found)
    assert all(axes.bbox.y0 < box.y0 < box.y1 < axes.bbox.y1 + box.height for box in found)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["2", "8"]


@pytest.mark.parametrize("axes", ["polar"], indirect=True)
def test_a_radar_names_its_spokes_and_lines_apart(axes):
    spokes = [
        "multi-turn_conversation", "translation", "summarization", "question answering",
        "math_reasoning", "retrieval-augmented generation",
    ]  # fmt: skip
    values = {"blend": [3, 2, 2, 4, 1, 2], "rest": [1, 1, 2, 2, 1, 3]}
    axes.set_title("by category", pad=18)
    draw_categories(axes, values, spokes, {"blend": "C0", "rest": "C1"}, "tokens/step")
    labels = axes.get_xticklabels()
    assert labels[0].get_text() == "multi-turn\nconversation"
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["blend", "rest"]
    assert not overlapping(boxes(axes, [*labels, legend, axes.title]))


def test_three_categories_are_rows_of_dots_not_a_triangle(axes):
    values = {"blend": [3, 2, 2], "rest": [1, 1, 2]}
    draw_categories(axes, values, ["x", "y", "z"], {"blend": "C0", "rest": "C1"}, "tokens/step")
    assert axes.name == "rectilinear"
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["x", "y", "z"]
    dots = [line.get_xydata().tolist() for line in axes.lines if line.get_marker() == "o"]
    assert [[x for x, _ in line] for line in dots] == [[3, 2, 2], [1, 1, 2]]
    for blend, rest in zip(*dots, strict=True):
        assert blend[1] < rest[1] < blend[1] + 0.5  # apart, and in one row


def test_a_picture_of_everything_can_be_drawn(tmp_path):
    names = ["a", "b", "c"] * 2
    results = [
        result(drafter, budget, [1, 2, 1, 30, 20, 30], names, ("x", "y", "z"))
        for drafter in ("ssd", "context")
        for budget in (4, 16)
    ]
    plot(results, tmp_path / "p.png", learning=True)
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
