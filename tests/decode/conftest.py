import pytest
from tiny_models import tiny_model

from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode import probe
from ngramkit.decode.load import LanguageModel


@pytest.fixture
def model(tmp_path, monkeypatch):
    """One that nothing is known of yet; modules that need another have a fixture of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return LanguageModel("tiny/llama", tiny_model("llama"), load_tokenizer("demo"))


@pytest.fixture
def probed_at_once(monkeypatch):
    """For texts that are short, and about drafts."""
    monkeypatch.setattr(probe, "SHORT", 0)
