"""The page of drafters side by side says where blend does not lead."""

from __future__ import annotations

from benchmarks._evidence_figures import behind, page


def figures(**changed):
    """blend has 3 tokens/step everywhere, recycling 2 but for what is `changed`."""

    def steps(all_, code):
        return {str(budget): {"all": all_, "code": code, "chat": all_} for budget in (8, 16, 64)}

    theirs = steps(2.0, 2.0)
    for budget, reached in changed.items():
        theirs[budget.removeprefix("at_")]["code"] = reached
    return {
        "model": "demo",
        "questions": {"code": 2, "chat": 1},
        "tokens": 300,
        "max_new_tokens": 96,
        "contexts": 9000,
        "missing": {"recycling": 0.0123},
        "steps": {
            "blend": steps(3.0, 3.0),
            "blend, no corpus": steps(4.0, 4.0),
            "recycling": theirs,
        },
    }


def test_where_another_drafter_leads_it_is_named():
    assert behind(figures()) == "`blend` leads at every budget, in every category."
    assert (
        behind(figures(at_16=3.5)) == "`blend` is behind: `recycling` in code at 16 (3.50 to 3.00)."
    )


def test_a_page_says_what_its_figures_hold_for():
    text = page([figures()])
    assert "3 questions, answers of up to 96 tokens (2 of code, 1 of chat; 300 tokens)" in text
    assert "Not on record, at most: recycling 1.2%." in text
    assert "| `blend`, no corpus | 4.00 |" in text
    assert "| 64 nodes | code | chat |" in text
