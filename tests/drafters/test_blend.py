"""What blend promises: which sources speak, what is learnt, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from blend_sources import EOS, VOCABULARY, ids, remembering, scores_by_path

from ngramkit.basics.errors import ArtifactError, UsageError
from ngramkit.drafters.base import Evidence, Source
from ngramkit.drafters.blend import Blend, load_weights
from ngramkit.drafters.create import load_drafter
from ngramkit.drafters.options import BlendOptions
from ngramkit.drafters.past_requests import PastRequests
from ngramkit.evaluate.records import Turn
from ngramkit.evaluate.replay_loop import replay_turn
from ngramkit.formats.history import History
from ngramkit.formats.safetensors import write_arrays
from ngramkit.kernels.blend.counts import MEMO_ROWS, PAIRS_BYTES, new_corpus


def test_a_frozen_table_of_the_datastores_corpus_adds_nothing(datastore, frozen):
    documents = [[1, 2, 3, 4], [2, 3, 5]]
    alone, both = (
        Blend([datastore(documents)]),
        Blend([datastore(documents)], frozen(documents, 1, 3)),
    )
    for drafter in (alone, both):
        drafter.start(ids(1, 2))
    assert scores_by_path(both.draft(16)) == scores_by_path(alone.draft(16))


def test_it_drafts_from_the_context_alone(datastore):
    drafter = Blend(tokenizer=datastore([[1]]).tokenizer)
    drafter.start(ids(1, 2, 3, 4, 1, 2))
    assert max(scores_by_path(drafter.draft(8)), key=len)[:2] == (3, 4)


def test_every_node_has_the_source_of_most_of_its_probability(datastore, frozen, bigram):
    store, table = datastore([[1, 2]]), frozen([[1, 3, 3, 3, 3]], 1, 3)
    drafter = Blend([store], table, bigram(0)[0], remembering(store))
    drafter.start(ids(1, 4))
    drafter.finish()
    drafter.start(ids(1, 5, 1))
    tree = drafter.draft(40)
    roots = tree.parents == -1
    named = dict(zip(tree.token_ids[roots].tolist(), tree.source[roots].tolist(), strict=True))
    held = {2: Source.DATASTORE, 3: Source.FROZEN, 5: Source.CONTEXT, 4: Source.HISTORY}
    assert {token: named[token] for token in held} == held
    assert Source.MODEL in named.values()


def test_a_token_of_several_sources_is_drafted_by_the_surest(datastore):
    """The datastore has it too, but the context or the last request goes on with it for long."""
    store = datastore([[1, 2], [1, 3], [9, 1, 4]], vocabulary=20)
    phrase = ids(*range(5, 19), 1, 2)
    drafter = Blend([store], past=remembering(store))
    drafter.start(ids(1))
    assert main_sources(drafter)[2] == Source.DATASTORE
    drafter.start(np.concatenate([phrase, phrase[:-1]]))
    assert main_sources(drafter)[2] == Source.CONTEXT
    drafter.start(phrase)
    drafter.finish()
    drafter.start(phrase[:-1])
    assert main_sources(drafter)[2] == Source.HISTORY


def main_sources(drafter):
    tree = drafter.draft(8)
    roots = tree.parents == -1
    return dict(zip(tree.token_ids[roots].tolist(), tree.source[roots].tolist(), strict=True))


def test_a_stale_history_costs_next_to_nothing(datastore):
    random = np.random.default_rng(3)
    phrases = random.integers(0, 300, (20, 12))
    text = np.concatenate([phrases[i] for i in random.integers(0, 20, 60)]).astype(np.int32)
    store = datastore([phrases[i].tolist() for i in range(10)], vocabulary=300)
    steps = {}
    for stale in (False, True):
        drafter = Blend([store], past=remembering(store))
        if stale:
            drafter.start(random.permutation(text))
            drafter.finish()
        steps[stale] = replay_turn(drafter, Turn(text[:20], text[20:]), 8).tokens_per_step
    assert steps[True] > 0.98 * steps[False]


def test_it_learns_from_past_requests(datastore, tmp_path):
    random = np.random.default_rng(4)
    request = random.integers(0, VOCABULARY - 1, 60).astype(np.int32)
    past = History.at(tmp_path / "h", datastore([[1]]).tokenizer)
    steps = []
    for _ in range(2):  # two processes
        drafter = Blend(past=PastRequests(past, background=False))
        steps.append(replay_turn(drafter, Turn(request[:8], request[8:]), 8).tokens_per_step)
    assert steps[1] > 2 * steps[0]


def test_memoized_samples_change_nothing(datastore):
    random = np.random.default_rng(0)
    store = datastore([random.integers(0, VOCABULARY, 300).tolist() for _ in range(9)])
    text = random.integers(0, VOCABULARY, 60).astype(np.int32)
    trees = []
    for _ in range(2):
        drafter = Blend([store], options=BlendOptions(scan=4, sample=16))
        drafter.start(text[:20])
        for i in range(20, 60, 4):
            trees.append(scores_by_path(drafter.draft(20)))
            drafter.accept(text[i : i + 4])
    assert trees[:10] == trees[10:]


def test_a_new_request_knows_nothing_of_the_last(datastore):
    store = datastore([[1, 2, 3, 4, 5]])
    used, fresh = Blend([store]), Blend([store])
    used.start(ids(*range(9), *range(9), *range(9)))
    used.draft(8)
    used.accept(ids(3, 3, 3))
    for drafter in (used, fresh):
        drafter.start(ids(7, 2))
    assert scores_by_path(used.draft(16)) == scores_by_path(fresh.draft(16))


def test_counts_of_shards_add_up(datastore):
    documents = [[1, 2, 3], [1, 2, 4], [1, 2, 4], [1, 2, 4]] * 4
    cut, whole = Blend([datastore(documents, shard_tokens=24)]), Blend([datastore(documents)])
    for drafter in (cut, whole):
        drafter.start(ids(1, 2))
    assert scores_by_path(cut.draft(8)) == pytest.approx(scores_by_path(whole.draft(8)), rel=1e-5)
    assert cut.draft(1).token_ids.tolist() == [4]


def test_the_memo_of_pairs_stays_small_however_many_shards():
    for shards in (1, 16, 17, 300):
        corpus = new_corpus(np.zeros((shards, 7), np.int64))
        rows = len(corpus.pair_keys)
        assert corpus.pairs.shape == (rows, shards, 2)
        assert corpus.pairs.nbytes <= PAIRS_BYTES
        assert rows & (rows - 1) == 0
        assert rows == MEMO_ROWS or 2 * corpus.pairs.nbytes > PAIRS_BYTES


def test_naming_a_datastore_twice_has_no_effect(datastore):
    store = datastore([[1, 2, 3], [1, 2, 4], [1, 2, 4]])
    once, twice = Blend([store]), Blend([store, store])
    for drafter in (once, twice):
        drafter.start(ids(1, 2))
        drafter.accept(ids(4, 1, 2))
    assert scores_by_path(twice.draft(8)) == pytest.approx(scores_by_path(once.draft(8)), rel=1e-5)


def test_it_copies_from_the_live_context_what_no_datastore_holds(datastore):
    drafter = load_drafter("blend", datastores=[datastore([[1, 1, 1]])])
    phrase = [9, 8, 7, 6, 5, 4, 3, 2]
    drafter.start(ids(*phrase, 10, *phrase, 10, *phrase))
    path = max(scores_by_path(drafter.draft(12)), key=len)
    assert path[:5] == (10, 9, 8, 7, 6)


def test_nothing_is_drafted_after_eos_nor_any_unknown_id(datastore):
    drafter = Blend([datastore([[1, 2, EOS]] * 3)])
    drafter.start(ids(5, 1, 2, EOS, 1, 2, EOS, 6, 40_000, 6, 40_000, 6))
    drafter.draft(20)
    for root in (ids(1), ids(6)):
        drafter.accept(root)
        for path in scores_by_path(drafter.draft(20)):
            assert max(path) < VOCABULARY
            assert EOS not in path[:-1]


def test_evidence_is_drafted_and_trusted_as_far_as_it_is_right(datastore):
    drafter = Blend([datastore([[1, 2, 3], [1, 2, 4]])])
    drafter.start(ids(5, 1))

    def evidence(token, likely):
        log_p = np.log(np.array([[0.9, 0.05]], np.float32))
        return Evidence(ids(token), ids(-1), ids(likely, 0)[None], log_p)

    drafter.accept(ids(7), evidence(1, 7))  # after [5 1] only the model has 7
    drafter.accept(ids(5, 1))
    before = scores_by_path(drafter.draft(8))[(7,)]
    assert before > 0.1
    for _ in range(12):
        drafter.accept(ids(7, 9, 9, 8, 5, 1), evidence(1, 7))
    blind = Blend([datastore([[1, 2, 3], [1, 2, 4]])])
    blind.start(ids(5, 1, 7, 5, 1))
    assert scores_by_path(blind.draft(8)).get((7,), 0) < before


def test_greedy_decoding_sharpens_the_scores(datastore):
    """What is evidence here is of another place, so that nothing else changes."""
    log_p = np.log(np.array([[0.9, 0.05]], np.float32))

    def after(likely):
        drafter = Blend([datastore([[1, 2, 3], [1, 2, 3], [1, 2, 4]])])
        drafter.start(ids(5, 9))
        drafter.accept(ids(1, 2), likely and Evidence(ids(9), ids(-1), ids(*likely)[None], log_p))
        found = scores_by_path(drafter.draft(8))
        return drafter, {path: score for path, score in found.items() if len(path) == 1}

    _, plain = after(None)
    _, drawn = after((8, 1))  # the second was written
    greedy, likelier = after((1, 8))
    assert drawn == plain
    assert plain[(3,)] > plain[(4,)]
    assert likelier[(3,)] > 1.2 * plain[(3,)]  # what is left for the unlisted is cut
    assert likelier[(3,)] / likelier[(4,)] == pytest.approx(plain[(3,)] / plain[(4,)], rel=1e-4)
    assert sum(likelier.values()) <= 1
    greedy.start(ids(5, 9))
    greedy.accept(ids(1, 2))
    again = scores_by_path(greedy.draft(8))
    assert {path: again[path] for path in plain} == plain  # a new request


def test_recently_listed_tokens_are_raised_for_a_while(datastore):
    log_p = np.log(np.array([[0.9, 0.05]], np.float32))
    drafter = Blend([datastore([[1, 2, 3], [1, 2, 3], [1, 2, 4]])])

    def share(listed, *since):
        """Of 4 among what follows [1 2], after a pass that listed 1 and `listed`, and others that
        wrote so many tokens each."""
        drafter.start(ids(5, 9))
        for token, size in ((listed, 3), *((8, size) for size in since)):
            evidence = Evidence(ids(9), ids(-1), ids(1, token)[None], log_p)
            drafter.accept(ids(*(1, 6, 7, 8, 9, 5, 6, 8, 7, 9)[: size - 2], 1, 2), evidence)
        found = scores_by_path(drafter.draft(64))
        return found[(4,)] / (found[(3,)] + found[(4,)])

    first = share(8)
    assert share(4) > 1.05 * first
    assert share(8) == first  # a new request
    assert share(4, 4) > share(8, 4)
    assert share(4) / share(8) > share(4, 4) / share(8, 4)  # it fades
    assert share(4, 12) == share(8, 12)


def test_bad_parameters_and_artifacts_are_refused(datastore, tmp_path):
    with pytest.raises(UsageError, match="needs an artifact or a tokenizer"):
        Blend([])
    with pytest.raises(UsageError, match="scan"):
        Blend([datastore([[1]])], options=BlendOptions(scan=5000))
    with pytest.raises(ArtifactError, match="was built for the tokenizer"):
        Blend([datastore([[1]]), datastore([[1]], vocabulary=20)])
    weights = load_weights()
    other = weights._replace(gate_bias=weights.gate_bias[:-1])
    write_arrays(tmp_path / "w.safetensors", other._asdict())
    with pytest.raises(ArtifactError, match="its shapes are not"):
        load_weights(tmp_path / "w.safetensors")
