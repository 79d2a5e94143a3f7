"""`ngramkit models`, `model-bigram`, `model-unigram`, and decoding with what they built."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from typer.testing import CliRunner

from ngramkit.basics.models import HUB_IDS, describe_model
from ngramkit.formats.opening import open_artifact_folder
from ngramkit_cli.main import app

KEYS = {"command", "artifact", "seconds", "vocabulary", "k", "width"}
VOCABULARY = 120


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with a random model of a padded vocabulary in tiny/."""
    path = tmp_path_factory.mktemp("work")
    config = transformers.LlamaConfig(
        vocab_size=128,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.4,
        bos_token_id=0,
        eos_token_id=1,
    )
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).save_pretrained(path / "tiny")
    backend = Tokenizer(WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w2"))
    backend.pre_tokenizer = WhitespaceSplit()
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(path / "tiny")
    return path


@pytest.fixture
def ngramkit(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("NGRAMKIT_MODEL", raising=False)
    return lambda *words: CliRunner().invoke(app, [*map(str, words)])


def last_line(result):
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def test_models_lists_every_short_name(ngramkit):
    assert last_line(ngramkit("models", "--json"))["models"] == {"demo": None, **HUB_IDS}
    lines = [line.split(maxsplit=1) for line in ngramkit("models").stdout.splitlines()]
    for name in HUB_IDS:  # one that a package carries is named by its file
        assert [name, describe_model(name)] in lines


def test_bigram_json_has_exactly_the_promised_keys(ngramkit, folder):
    facts = last_line(ngramkit("model-bigram", "./tiny", "--k", 5, "--width", 3, "--json"))
    assert set(facts) == KEYS
    assert facts["artifact"] == "artifacts/tiny-bigram"
    assert (facts["vocabulary"], facts["k"], facts["width"]) == (VOCABULARY, 5, 3)
    table = open_artifact_folder(folder / facts["artifact"])
    assert table.extended.shape == (VOCABULARY, 5, 3)


def test_unigram_json_has_exactly_the_promised_keys(ngramkit, folder):
    facts = last_line(
        ngramkit("model-unigram", "./tiny", "--k", 5, "--rule", "inner-product", "--json")
    )
    assert set(facts) == KEYS
    assert (facts["vocabulary"], facts["k"], facts["width"]) == (VOCABULARY, 5, 1)
    assert (
        open_artifact_folder(folder / facts["artifact"]).manifest.parameters["rule"]
        == "inner-product"
    )


def test_a_table_that_is_there_is_not_made_again(ngramkit):
    words = ("model-bigram", "./tiny", "--k", 6, "--out", "again")
    assert "s after loading" in ngramkit(*words).stdout
    assert "s after loading" not in ngramkit(*words).stdout
    assert ngramkit("model-bigram", "./tiny", "--k", 7, "--out", "again").exit_code == 2
    assert last_line(ngramkit(*words[:3], 7, *words[4:], "--force", "--json"))["k"] == 7


def test_a_taken_place_is_named_before_the_model_is_loaded(ngramkit, monkeypatch):
    assert ngramkit("model-unigram", "./tiny", "--k", 5, "--out", "taken").exit_code == 0
    monkeypatch.setattr("ngramkit.decode.load.load_weights", None)
    taken = ngramkit("model-unigram", "./tiny", "--k", 6, "--out", "taken")
    assert (taken.exit_code, "taken" in taken.stderr) == (2, True)


def test_the_models_own_drafts_and_bos(ngramkit, folder):
    words = ("--extend", "model", "--prefix", "none", "--k", 3, "--out", "own", "--json")
    last_line(ngramkit("model-bigram", "./tiny", *words))
    assert open_artifact_folder(folder / "own").manifest.parameters["extend"] == "model"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--k", 121), "--k must be 1 to 120"),
        (("--prefix", "bos"), "no BOS token"),
    ],
)
def test_errors_are_two_lines_and_leave_nothing(words, says, ngramkit, folder):
    before = sorted(folder.rglob("*"))
    result = ngramkit("model-bigram", "./tiny", *words, "--out", "bad")
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("drafter", ["bigram", "unigram", "ngrammys"])
def test_decoding_with_a_table_changes_no_token(drafter, ngramkit, folder):
    if not (folder / "here" / "b").exists():
        last_line(ngramkit("model-bigram", "./tiny", "--k", 8, "--out", "here/b", "--json"))
        last_line(ngramkit("model-unigram", "./tiny", "--k", 8, "--out", "here/u", "--json"))
    words = ("decode", "--model", "./tiny", "--prompt", "w3 w4 w5 w4", "--max-new-tokens", 30)
    tables = ("--bigram", "here/b", "--unigram", "here/u", "--budget", 7)
    drafted = last_line(ngramkit(*words, "--drafter", drafter, *tables, "--json"))
    plain = last_line(ngramkit(*words, "--drafter", "none", "--json"))
    assert drafted["token_ids"] == plain["token_ids"]


def test_a_table_of_another_tokenizer_is_refused(ngramkit):
    last_line(ngramkit("model-bigram", "./tiny", "--k", 2, "--out", "foreign", "--json"))
    result = ngramkit("decode", "--drafter", "bigram", "--bigram", "foreign", "--prompt", "x")
    assert result.exit_code == 3
    assert "it was built for the tokenizer of ./tiny" in result.stderr


def test_a_missing_table_is_read_off_a_local_model(ngramkit, folder, monkeypatch):
    words = ("decode", "--model", f"{folder}/tiny", "--prompt", "w3 w4", "--max-new-tokens", 4)
    (folder / "empty").mkdir()
    monkeypatch.chdir(folder / "empty")
    result = CliRunner().invoke(app, [*map(str, words), "--drafter", "ngrammys", "--json"])
    assert last_line(result)["new_tokens"] == 4
    assert "computing one from the model" in result.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--model", "demo"], 0), (["demo", "--model", "demo"], 0), (["demo", "--model", "x"], 2)],
)
def test_the_model_is_an_argument_or_an_option_as_everywhere(tmp_path, words, code):
    line = ["model-unigram", *words, "--out", str(tmp_path / "u"), "--k", "3"]
    done = CliRunner().invoke(app, line)
    assert done.exit_code == code, done.output
    assert ("got demo and x" in done.stderr) == (code == 2)
