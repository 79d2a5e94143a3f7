import pytest
from tiny_models import tiny_model

from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode.load import LanguageModel, load_model


@pytest.fixture(scope="session")
def tokenizer():
    return load_tokenizer("demo")


@pytest.fixture(scope="module")
def demo():
    """The embedded model."""
    return load_model("demo", device="cpu", dtype="float32")


@pytest.fixture
def model(tmp_path, monkeypatch, tokenizer):
    """One that nothing is known of yet; modules that need another have a fixture of their own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return LanguageModel("tiny/llama", tiny_model("llama"), tokenizer)
