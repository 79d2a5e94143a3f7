"""No code of a stranger's folder, model or settings is run, whatever stdin consents to."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from command_lines import run_here

from ngramkit.basics.errors import InputError
from ngramkit.basics.machine import start_python
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit.decode import compile_while_loading
from ngramkit.engines.source import load_engine_tokenizer

from . import tally

ATTACK = "a stranger's code beside or in a model"
CODE = "from pathlib import Path\nPath({!r}).write_text('it ran')\n"


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """Return the file that the stranger's code would write; the working folder is the
    stranger's."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return tmp_path / "PWNED"


def planted(ran, *names):
    for name in names:
        Path(name).write_text(CODE.format(str(ran)))


@pytest.fixture
def model(ran):
    """Return model(**config): the embedded model's files, with other values in its config.json."""

    def made(name="model", tokenizer=None, **config):
        folder = Path(name)
        shutil.copytree(files("ngramkit") / "demo" / "model", folder)
        for file, values in (("config.json", config), ("tokenizer_config.json", tokenizer or {})):
            body = json.loads((folder / file).read_text())
            (folder / file).write_text(json.dumps({**body, **values}))
        (folder / "evil.py").write_text(CODE.format(str(ran)) + "class Evil: pass\n")
        return f"./{name}"

    return made


@pytest.fixture
def consenting(monkeypatch):
    """Let stdin say yes to everything; its position tells whether it was read."""
    stdin = io.StringIO("y\n" * 1000)
    stdin.isatty = lambda: False
    monkeypatch.setattr(sys, "stdin", stdin)
    return stdin


NAMES = ("ngramkit.py", "numpy.py", "json.py", "numba.py", "multiprocessing.py", "encodings.py",
         "sitecustomize.py", "usercustomize.py", "site.py")  # fmt: skip


def test_a_process_that_compiles_kernels(ran, tmp_path):
    planted(ran, *NAMES)
    kept = {"NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start_python(compile_while_loading.PROGRAM, "none@2", env=kept, **streams) as process:
        out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "acceptance_record.update_record" in json.loads(out)
    assert not ran.exists()
    tally(ATTACK, "not run")


def test_processes_that_libraries_start(ran):
    """For example multiprocessing's tracker: by `python -c`, in the working folder."""
    planted(ran, *NAMES)
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import json, numpy'])"
    with start_python(child) as process:
        assert process.wait() == 0
    script = Path(sys.executable).with_name("ngramkit")
    module = [sys.executable, "-P", "-c", "from ngramkit_cli.main import run; run()"]
    command = [str(script)] if script.exists() else module
    done = subprocess.run([*command, "models"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not ran.exists()
    tally(ATTACK, "not run", 2)


def test_the_command_line_tells_its_children(monkeypatch):
    from ngramkit_cli import main

    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    monkeypatch.setattr(main, "app", lambda: None)
    main.run()
    assert os.environ["PYTHONSAFEPATH"] == "1"


AUTO = {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}
UNKNOWN = {"model_type": "evil", "auto_map": AUTO}
COMMANDS = [
    "decode --drafter none --max-new-tokens 2 --prompt x --model MODEL",
    "decode --drafter none --max-new-tokens 2 --chat --template none --prompt x --model MODEL",
    "model-bigram MODEL --out b",
    "model-unigram MODEL --out u",
    "calibrate MODEL --time 1",
    "bench --model MODEL --drafter context --template none --questions q.txt --out bench",
    "record --model MODEL --template none --questions q.txt --out record",
    "self-corpus MODEL --template none --prompts q.txt --out answers.jsonl",
]


@pytest.mark.parametrize("line", COMMANDS)
def test_a_model_with_code_of_its_own(ran, model, consenting, line):
    name = model(**UNKNOWN)
    Path("q.txt").write_text("a question\n")
    result = run_here(line.replace("MODEL", name).split())
    assert result.code == 3, result.err
    assert "needs its own Python code" in result.err
    assert "--trust-remote-code" in result.err
    assert not ran.exists()
    assert consenting.tell() == 0
    tally(ATTACK, "refused, exit 3")


def test_it_runs_where_it_is_trusted(ran, model):
    """So the tests here would see it run."""
    name = model(**UNKNOWN)
    run_here(["decode", "--prompt", "x", "--model", name, "--trust-remote-code"])
    assert ran.read_text() == "it ran"


OWN_TOKENIZER = {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}, "tokenizer_class": "Evil"}


@pytest.mark.parametrize(
    "line",
    [
        "tokenize --corpus a.txt --out t --model MODEL",
        "build-datastore --corpus a.txt --out d --model MODEL",
        "decode --drafter none --max-new-tokens 2 --prompt x --model MODEL",
        "inspect DIR --query x --model MODEL",
    ],
)
def test_a_tokenizer_with_code_of_its_own(ran, model, consenting, line, tmp_path):
    name = model(tokenizer=OWN_TOKENIZER, model_type="evil")
    Path("a.txt").write_text("some text, and some more of it, and more still")
    if "DIR" in line:
        shutil.copy("a.txt", tmp_path / "a.txt")
        assert run_here(["build-frozen", "--corpus", str(tmp_path / "a.txt"), "--model", "demo",
                         "--out", "table"]).code == 0  # fmt: skip
    result = run_here(line.replace("MODEL", name).replace("DIR", "table").split())
    assert result.code == 3, result.err
    assert not ran.exists()
    assert consenting.tell() == 0
    tally(ATTACK, "refused, exit 3")


def test_an_engines_tokenizer_with_code_of_its_own(ran, model, consenting):
    name = model(tokenizer=OWN_TOKENIZER, model_type="evil")
    assert load_engine_tokenizer(name) is None
    assert not ran.exists()
    assert consenting.tell() == 0
    tally(ATTACK, "not run")


def test_attention_kernels_of_a_repository(ran, model):
    """transformers fetches and runs them, where the package `kernels` is installed."""
    for number, key in enumerate(("attn_implementation", "_attn_implementation")):
        name = model(f"model-{number}", **{key: "acme/kernels"})
        result = run_here(["decode", "--prompt", "x", "--model", name, "--max-new-tokens", "2"])
        assert result.code == 3
        assert "acme/kernels" in result.err
        tally(ATTACK, "refused, exit 3")


class Evil:
    """An object that unpickles to a call."""

    def __init__(self, ran):
        self.ran = ran

    def __reduce__(self):
        return Path.touch, (self.ran,)


@pytest.mark.parametrize("how", ["a pickle", "torch.save"])
@pytest.mark.parametrize("sharded", [False, True])
def test_weights_that_are_a_pickle(ran, model, how, sharded):
    folder = Path(model())
    (folder / "model.safetensors").unlink()
    file = folder / ("pytorch_model-00001-of-00001.bin" if sharded else "pytorch_model.bin")
    if sharded:
        index = {"metadata": {}, "weight_map": {"lm_head.weight": file.name}}
        (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    with file.open("wb") as opened:
        save = torch.save if how == "torch.save" else pickle.dump
        save({"lm_head.weight": Evil(ran)}, opened)
    result = run_here(["decode", "--prompt", "x", "--model", str(folder), "--drafter", "none"])
    assert result.code == 3, result.err
    assert "a pickle that would run code" in result.err
    assert not ran.exists()
    tally(ATTACK, "refused, exit 3")


def test_weights_as_tensors_alone_are_read(ran, model):
    """A pickle of nothing but tensors, as older repositories have it."""
    from safetensors.torch import load_file

    folder = Path(model())
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")
    line = ["decode", "--prompt", "x", "--drafter", "none", "--max-new-tokens", "3", "--model"]
    results = [run_here([*line, name]) for name in (str(folder), "demo")]
    assert results[0].out == results[1].out


@pytest.mark.parametrize("place", ["../outside.safetensors", "/etc/passwd", "a/b.safetensors", 7])
def test_an_index_of_weights_that_names_files_elsewhere(ran, model, place):
    folder = Path(model())
    (folder / "model.safetensors").rename("outside.safetensors")
    index = {"metadata": {}, "weight_map": {"lm_head.weight": place}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    result = run_here(["decode", "--prompt", "x", "--model", str(folder), "--drafter", "none"])
    assert result.code == 3, result.err
    assert "must name files of its folder" in result.err
    tally("files outside a folder", "refused, exit 3")


@pytest.mark.parametrize(
    "config",
    [
        {"hidden_size": "x"}, {"num_attention_heads": 0}, {"hidden_size": -1}, {"vocab_size": None},
        {"num_hidden_layers": "many"}, {"hidden_act": "no-such"}, {"rope_parameters": 7},
        {"quantization_config": 7}, {"quantization_config": {"quant_method": []}},
        {"architectures": 7}, {"model_type": ["llama"]}, {"dtype": "evil"},
    ],
)  # fmt: skip
def test_configs_that_make_no_sense(ran, model, config):
    """An error, never a bug's message: nor that of a layer that takes all memory."""
    result = run_here(["decode", "--prompt", "x", "--drafter", "none", "--max-new-tokens", "2",
                       "--model", model(**config)])  # fmt: skip
    assert "this is a bug" not in result.err, result.err
    assert result.code in (0, 3), result.err
    tally("configs that make no sense", f"exit {result.code}")


def test_a_tokenizer_that_a_strangers_artifact_names(ran, model):
    """push and inspect load it, to show text."""
    with pytest.raises(InputError):
        load_tokenizer(model(tokenizer=OWN_TOKENIZER, model_type="evil"))
    assert not ran.exists()
    tally(ATTACK, "refused, exit 3")
