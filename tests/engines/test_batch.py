"""A batch drafts for each row what a drafter of its own would, whatever rows an engine sends."""

from __future__ import annotations

import numpy as np
import pytest
from forked import in_child
from hypothesis import HealthCheck, given, settings, strategies as st

from ngramkit.builders.datastore import build_datastore
from ngramkit.drafters.base import DraftTree, Evidence
from ngramkit.drafters.blend import Blend
from ngramkit.drafters.context import Context
from ngramkit.drafters.options import BlendOptions
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.drafters.registry import NoDraft
from ngramkit.engines import batch, sessions
from ngramkit.engines.batch import Asked, BatchDrafter
from ngramkit.engines.blend_source import BlendSource
from ngramkit.engines.config import DraftConfig
from ngramkit.engines.drafter_requests import DrafterSource

VOCABULARY = 12


def ids(tokens):
    return np.array(tokens, np.int32)


@pytest.fixture(scope="module")
def makers(tmp_path_factory, token_store):
    """Functions that make a drafter: one with trust that is learnt, others without."""
    random = np.random.default_rng(5)
    texts = [random.integers(0, 4, 40).tolist() for _ in range(6)]
    store = token_store(texts, VOCABULARY, eos=11)
    datastore = build_datastore(store, tmp_path_factory.mktemp("datastore") / "d")
    others = token_store([text[::-1] for text in texts[:3]], VOCABULARY, eos=11)
    other = build_datastore(others, tmp_path_factory.mktemp("other") / "d")
    past = PastRequests(tokenizer=store.tokenizer, background=False)
    for text in texts[::2]:
        past.remember(ids(text[5:]), 0)
    past.forgetful = True
    return {
        "learning": lambda: Blend([datastore], past=past, options=BlendOptions(scan=3, sample=8)),
        "several": lambda: Blend([datastore, other], options=BlendOptions(scan=3, sample=8)),
        "plain": lambda: Blend([datastore], options=BlendOptions(scan=3, sample=8)),
        "context": Context,
    }


def source_of(make):
    first = make()
    return BlendSource(first) if isinstance(first, Blend) else DrafterSource(make, VOCABULARY)


def drafter_over(make, most=3, **options):
    drafter = BatchDrafter(source_of(make), DraftConfig(threads=2, **options))
    drafter.sessions = sessions.Sessions(most, VOCABULARY)
    return drafter


def alone(make, tokens, prompt, budget):
    drafter = make()
    drafter.start(ids(tokens[:prompt]))
    if prompt < len(tokens):
        drafter.accept(ids(tokens[prompt:]))
    return drafter.draft(budget)


def same(one, other):
    columns = ("token_ids", "parents", "scores", "source")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)


def prompts(drafter, tokens):
    """Return the prompt lengths of the sessions that the last step drafted for as `tokens`."""
    latest = drafter.sessions.latest
    return [s.request.prompt for s in latest if s.request.tokens.tolist() == tokens]


token = st.integers(0, 3)
step = st.lists(
    st.tuples(
        st.integers(0, 5),  # which request
        st.integers(0, 9),  # tokens of it that are taken back
        st.lists(token, max_size=20),  # and these are appended
        st.booleans(),  # its sibling is asked for too
    ),
    max_size=5,
)


@pytest.mark.parametrize("which", ["learning", "several", "plain", "context"])
@settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(step, max_size=8), budget=st.integers(1, 9))
def test_a_batch_drafts_what_single_drafters_do(makers, monkeypatch, which, steps, budget):
    monkeypatch.setattr(batch, "MIN_NODES_PER_THREAD", 1)  # two threads for two rows
    drafter = drafter_over(makers[which])
    requests = {}
    for each in steps:
        rows = []
        for name, back, more, twice in each:
            before = requests.get(name, [0, 1, name % 4])
            requests[name] = before[: max(len(before) - back, 1)] + more
            rows += [requests[name]] * (1 + twice)
        drafts = drafter.draft_batch([ids(row) for row in rows], [budget] * len(rows))
        for row, draft in zip(rows, drafts, strict=True):
            draft.check()
            begins = prompts(drafter, row)
            assert len(begins) == rows.count(row)
            wanted = [alone(makers[which], row, prompt, budget) for prompt in begins]
            assert any(same(draft, each) for each in wanted)


named_step = st.lists(
    st.tuples(
        st.integers(0, 4),  # which request
        st.integers(0, 9),  # tokens of it that are taken back
        st.lists(token, max_size=20),  # and these are appended
        st.booleans(),  # it ends after this step
    ),
    max_size=5,
    unique_by=lambda each: each[0],
)


@pytest.mark.parametrize("which", ["learning", "several", "context"])
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=st.lists(named_step, max_size=8), budget=st.integers(1, 9))
def test_named_requests_are_drafted_for_as_alone(makers, which, steps, budget):
    """Other requests may hold the same tokens; only rows of another holder are compared."""
    drafter = drafter_over(makers[which], most=5)
    requests, holders = {}, {}
    for each in steps:
        names = [f"r{name}" for name, *_ in each]
        for name, (_, back, more, _) in zip(names, each, strict=True):
            before = requests.get(name, [0, 1, 2])
            if back or name not in requests:
                holders[name] = object()
            requests[name] = before[: max(len(before) - back, 1)] + more
        rows = [ids(requests[name]) for name in names]
        asked = [
            Asked(len(row), name=name, holder=holders[name])
            for row, name in zip(rows, names, strict=True)
        ]
        drafts = drafter.draft_batch(rows, [budget] * len(rows), asked)
        assert {session.name for session in drafter.sessions.latest} == set(names)
        for row, session, draft in zip(rows, sessions_of(drafter, names), drafts, strict=True):
            draft.check()
            assert session.request.tokens.tolist() == row.tolist()
            assert same(draft, alone(makers[which], row, session.request.prompt, budget))
        for name, (*_, ends) in zip(names, each, strict=True):
            if ends:
                drafter.sessions.end(name)
                del requests[name]


def sessions_of(drafter, names):
    by_name = {session.name: session for session in drafter.sessions.latest}
    return [by_name[name] for name in names]


def test_a_named_request_is_not_another_with_its_tokens(makers):
    drafter = drafter_over(makers["learning"], most=9)
    text = ids([0, 1, 2, 3] * 5)

    def begun(*asked):
        before = drafter.statistics.requests
        drafter.draft_batch([text] * len(asked), [4] * len(asked), list(asked))
        return drafter.statistics.requests - before

    assert begun(Asked(20, name="a")) == 1
    assert begun(Asked(20, name="b"), Asked(20, name="a")) == 1
    assert begun(Asked(20, "acme", name="a")) == 1  # nothing of another tenant is kept
    drafter.sessions.end("b")
    drafter.sessions.end("unknown")
    assert begun(Asked(20, name="b")) == 1
    assert len(drafter.sessions) == 2
    drafter.sessions.clear()
    assert len(drafter.sessions) == 0
    assert begun(Asked(20, name="a")) == 1


def test_a_session_is_continued_rewound_and_forgotten(makers):
    drafter = drafter_over(makers["learning"], most=2)
    text = [0, 1, 2, 3, 0, 1, 2, 0, 1]

    def asked(tokens, name="a"):
        drafter.draft_batch([ids(tokens)], [4], [Asked(None, name=name)])
        (prompt,) = prompts(drafter, tokens)
        return prompt

    assert asked(text) == 9
    assert asked([*text, 2]) == 9  # continued
    assert asked([*text, 2, 3, 3]) == 9
    assert asked([*text, 2, 1]) == 9  # rewound, and another token
    assert asked([*text, 2, 1, *[3] * 40]) == 9  # a whole turn at once
    assert (len(drafter.sessions), drafter.statistics.requests) == (1, 1)
    asked([3, 3, 1], "b"), asked([3, 2, 1], "c")  # it was the least recently used
    assert asked([*text, 2, 1, *[3] * 41]) == 52
    assert len(drafter.sessions) == 2


def test_no_running_request_is_evicted_for_a_new_one(makers):
    drafter = drafter_over(makers["learning"], most=3)
    asked = [Asked(1, name=name) for name in "abcd"]
    drafter.draft_batch([ids([0, 1])] * 3, [4] * 3, asked[1:])
    drafter.draft_batch([ids([0, 1])] * 4, [4] * 4, asked)
    assert (len(drafter.sessions), drafter.statistics.requests) == (4, 4)


def test_a_request_moves_between_threads_and_outgrows_its_arrays(makers, monkeypatch):
    monkeypatch.setattr(batch, "MIN_NODES_PER_THREAD", 1)
    drafter = drafter_over(makers["learning"], most=4)
    rows = [[0, 1, 2], [3, 2, 1]]
    for turn in range(12):
        rows = [row + [(turn * 7 + i) % 4 for i in range(60)] for row in rows[::-1]]
        drafts = drafter.draft_batch([ids(row) for row in rows], [8, 8])
        for row, draft in zip(rows, drafts, strict=True):
            assert same(draft, alone(makers["learning"], row, prompts(drafter, row)[0], 8))
    assert len(drafter.sessions) == 2


class Certain(NoDraft):
    """A drafter that always drafts 0 0 0 0 with scores of 0.99."""

    def draft(self, budget):
        n = min(budget, 4)
        sure = np.full(n, 0.99, np.float32)
        return DraftTree(
            ids([0] * n), np.arange(-1, n - 1, dtype=np.int32), sure, sure.astype("u1")
        )


@pytest.mark.parametrize("pause", [True, False])
def test_a_request_whose_drafts_do_not_pay_pauses(pause):
    drafter = drafter_over(Certain, min_probability=0.4, pause=pause)
    tokens, drafted = [1], []
    for _ in range(200):
        (chain,) = drafter.chain_batch([ids(tokens)], [4])
        drafted.append(len(chain))
        tokens = [*tokens, 1]
    counts = drafter.statistics
    assert counts.requests == 1
    assert counts.accepted_tokens == 0
    assert counts.draft_tokens == sum(drafted)
    if not pause:
        assert drafted == [4] * 200
        assert counts.paused == 0
        return
    assert drafted[:2] == [4] * 2  # 8 rejected tokens, at 0.4 passes each
    assert drafted[2:60] == [0] * 58  # the loss beyond the credit is 2 % of the time
    assert 0 < sum(drafted[60:]) <= 12
    assert counts.paused == drafted.count(0)


@pytest.mark.parametrize("names", ["", "ab"])
def test_the_tokens_of_skipped_passes_are_read_before_the_next_draft(names):
    read, calls, reads = [[], []], [0, 0], [0, 0]

    class Reading(Certain):
        def start(self, prompt):
            self.number = int(prompt[0])

        def accept(self, tokens, evidence=None):
            read[self.number].extend(tokens.tolist())
            reads[self.number] += 1

        def draft(self, budget):
            calls[self.number] += 1
            return super().draft(budget)

    drafter = drafter_over(Reading, min_probability=0.4)
    texts = [[0], [1]]
    for step in range(300):
        asked = [Asked(None, name=name) for name in names] or None
        chains = drafter.chain_batch(list(map(ids, texts)), [4, 4], asked=asked)
        if any(map(len, chains)):
            assert read == [text[1:] for text in texts]
        for text in texts:
            text.append(3 + step % 5)
    counts = drafter.statistics
    assert counts.rows == 600
    assert counts.paused > 500
    assert counts.calls == 300
    assert max(reads) < 60
    assert len(read[0]) > 280


def test_accepted_tokens_are_counted_and_drafting_goes_on():
    drafter = drafter_over(Certain, min_probability=0.4)
    tokens = [1]
    for _ in range(50):
        drafter.chain_batch([ids(tokens)], [4])
        tokens = [*tokens, 0, 0, 0, 1]  # three of four are accepted
    counts = drafter.statistics
    assert (counts.draft_tokens, counts.accepted_tokens, counts.paused) == (200, 147, 0)
    assert "200 drafted, 147 accepted (73.5%), 3.94 tokens/step" in counts.line()


def test_tokens_of_the_next_prompt_are_not_accepted():
    drafter = drafter_over(Certain, min_probability=0.4)
    answered = [1, *[0] * 127]
    (draft,) = drafter.chain_batch([ids(answered)], [4])
    drafter.chain_batch([ids([*answered, *draft.token_ids, *[0] * 28, 1])], [4])
    assert (len(draft), len(drafter.sessions), drafter.statistics.requests) == (4, 1, 2)
    assert drafter.statistics.accepted_tokens == 0


def test_a_pause_ends_with_its_request():
    """Without a history, the next turn of a conversation goes on in the same session."""
    drafter = drafter_over(Certain, min_probability=0.4)
    answered = [1, *[5] * 127]  # no draft is right
    for size in range(64, 128):
        paused = len(drafter.chain_batch([ids(answered[:size])], [4])[0]) == 0
    assert paused
    (draft,) = drafter.chain_batch([ids([*answered, *[7] * 32])], [4])
    assert (len(draft), len(drafter.sessions), drafter.statistics.requests) == (4, 1, 2)


@pytest.mark.parametrize("known", [True, False])
def test_each_turn_of_a_conversation_is_a_request(known):
    """Its passes are skipped while drafts pause, so a row may have several new tokens."""
    drafter = drafter_over(Certain, min_probability=0.4)
    row = [1, 2, 3]
    for _ in range(3):  # turns, of which the drafter shows only what it is asked for
        row += [4] * 40
        for _ in range(100):
            row.append(5)  # no draft is right
            asked = [Asked(len(row) - 1)] if known else None
            drafter.chain_batch([ids(row)], [4], asked=asked)
    counts = drafter.statistics
    assert (counts.requests, len(drafter.sessions)) == (3, 1)
    assert counts.calls == counts.rows == 300  # skipped ones too
    assert counts.paused > 200


def test_budget_zero_and_empty_rows_are_not_drafted_for(makers):
    drafter = drafter_over(makers["plain"])
    drafts = drafter.draft_batch([ids([0, 1]), ids([]), ids([1, 2])], [0, 4, 4])
    assert [len(draft) > 0 for draft in drafts] == [False, False, True]
    assert drafter.statistics.rows == 1


def test_a_forked_child_drafts_with_threads_of_its_own(makers):
    drafter = drafter_over(makers["plain"])
    rows = [ids([1, 2, 3, 0, 1, 2][:4] * 3)] * 3
    before = drafter.draft_batch(rows, [64] * 3)
    assert len(before[0])

    def draft():
        after = drafter.draft_batch([np.append(row, ids([1])) for row in rows], [64] * 3)
        assert [len(tree) for tree in after] == [len(after[0])] * 3

    assert in_child(draft) == "done"
    draft()


def test_ids_outside_the_vocabulary_are_alike_and_a_row_with_them_is_continued(makers):
    drafter = drafter_over(makers["learning"])
    text = [0, 1, VOCABULARY + 7, 2, -1, 0, 1]
    clipped = [VOCABULARY if not 0 <= token < VOCABULARY else token for token in text]
    for more in ([], [3], [-5], [2, 2]):
        text, clipped = (
            text + more,
            clipped + [min(token % (1 << 32), VOCABULARY) for token in more],
        )
        (draft,) = drafter.draft_batch([ids(text)], [6])
        assert same(draft, alone(makers["learning"], clipped, 7, 6))
    drafter.draft_batch([ids([3, 3, 3]), ids(text)], [6, 6])  # found elsewhere
    assert len(drafter.sessions) == 2


@pytest.mark.parametrize("name", ["blend", "context", "cacheback", "prompt-lookup"])
def test_no_unknown_id_of_a_text_is_drafted(name):
    """Not even where the text repeats it, and nothing that would follow it."""
    drafter = BatchDrafter.open(DraftConfig(name, min_probability=0, threads=1), vocabulary=8)
    text, drafted = [1, 2, 3, 8, 4, 9, 5, 6, -1] * 3, 0
    for end in range(10, len(text)):
        row = ids(text[:end])
        for draft in drafter.draft_batch([row], [4]) + drafter.chain_batch([row], [4]):
            draft.check()
            assert (draft.token_ids < 8).all()
            drafted += len(draft)
    assert drafted > 0


@pytest.mark.parametrize("kind", ["learning", "plain"])
def test_evidence_changes_drafts_as_it_does_for_one_request(makers, kind):
    text, written = [0, 1, 2, 3, 2, 1], [2, 3]
    likely = np.array([[2, 5], [3, 1], [0, 2]], np.int32)
    log_p = np.log(np.array([[0.6, 0.3], [0.9, 0.05], [0.5, 0.4]], np.float32))
    evidence = Evidence(ids([1, 2, 0]), ids([-1, 0, 0]), likely, log_p)

    def drafts(given):
        drafter = drafter_over(makers[kind])
        drafter.draft_batch([ids(text)], [8], asked=[Asked(len(text))])
        asked = [Asked(len(text), evidence=given)]
        (draft,) = drafter.draft_batch([ids(text + written)], [8], asked=asked)
        return draft

    one = makers[kind]()
    one.start(ids(text))
    one.draft(8)
    one.accept(ids(written), evidence)
    expected = one.draft(8)
    assert len(expected)
    assert same(drafts(evidence), expected)
    assert not same(drafts(None), expected)
