"""What is wrong is said before anything is built, loaded, compiled or imported for that.

A process runs every command with one thing wrong at a time; between two it looks at what was
imported. Imports are what takes the time: without torch, transformers, numba and pyarrow a command
starts and ends within 0.3 s of processor time.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf_files import DEMO, demo_metadata, demo_tensors, write_gguf

from ngramkit.builders.datastore import build_datastore
from ngramkit.builders.frozen import build_frozen
from ngramkit.builders.tokens import tokenize
from ngramkit.corpus.tokenizer import load_tokenizer
from ngramkit_cli.main import COMMANDS

# A command, and the options and values that its error must name. Files and folders: see `here`.
WRONG = """
corpora more                                     |
tokenize                                         |
tokenize --corpus nope                           | nope
tokenize --corpus ./no.txt                       | ./no.txt
tokenize --corpus empty                          | empty
tokenize --corpus hf:                            | hf
tokenize --corpus EMPTY                          | --corpus
build-datastore --corpus ds                      | ds
tokenize --corpus a.xyz                          | a.xyz
tokenize --corpus a.txt --model nope             | nope
tokenize --corpus a.txt --model ./none           | ./none
tokenize --corpus a.txt --model empty            | empty
tokenize --corpus a.txt --out SYSTEM/x           | SYSTEM/x
tokenize --corpus a.txt --out theirs             | theirs
tokenize --corpus a.txt --out theirs --force     | theirs
tokenize --corpus a.txt --out a.txt/x            | a.txt
tokenize --corpus a.txt --sample 2               | --sample
tokenize --corpus a.txt --dedup nope             | --dedup nope
tokenize --corpus a.txt --limit 0                | --limit
tokenize --corpus a.txt --executor nope          | --executor nope
tokenize --corpus a.txt --ray-address auto       | --executor
tokenize --corpus a.txt --exclude no.txt         | no.txt
tokenize --corpus a.txt --max-document x         | x
tokenize --corpus a.txt --column x               | a.txt
tokenize --corpus python-stdlib --split nope     | nope python-stdlib
tokenize --corpus a.txt:2                        | a.txt
tokenize --corpus a.txt --cache-size x           | x
build-datastore --corpus nope                    | nope
build-datastore --corpus a.txt --out SYSTEM/x    | SYSTEM/x
build-datastore --corpus a.txt --out frozen      | frozen
build-datastore --corpus a.txt --executor nope   | --executor nope
build-datastore --tokens none                    | none
build-datastore --tokens ds                      | ds
build-datastore --tokens store --corpus a.txt    | --corpus --tokens
build-datastore --tokens store --limit 3         | --limit --tokens
build-datastore --tokens store --model demo      | --model --tokens
build-datastore --tokens store --out SYSTEM/x    | SYSTEM/x
build-frozen --corpus a.txt --leader-len 9       | --leader-len
build-frozen --corpus a.txt --out SYSTEM/x       | SYSTEM/x
build-frozen --corpus a.txt --out ds             | ds
build-frozen --tokens store --followers 0        | --followers
models more                                      |
use empty                                        | empty
use EMPTY                                        |
use nope                                         | nope
model-bigram nope                                | nope
model-bigram empty                               | empty
model-bigram demo --model other                  | demo --model other
model-bigram --model nope                        | nope
model-unigram --model nope                       | nope
calibrate --model nope                           | nope
self-corpus --model nope                         | nope
model-bigram --k 0                               | --k
model-bigram --dtype nope                        | --dtype
model-bigram --device nope                       | --device
model-bigram --out SYSTEM/x                      | SYSTEM/x
model-bigram --out ds                            | ds
model-unigram --rule nope                        | --rule
model-unigram --out SYSTEM/x                     | SYSTEM/x
list --folder EMPTY                              | --folder
rm none                                          | none
rm a.txt                                         | a.txt
inspect EMPTY                                    |
inspect ds --query EMPTY                         | --query
inspect none                                     | none
verify none                                      | none
drafters nope                                    | nope
replay                                           |
replay --answers EMPTY                           | --answers
replay --answers chat.jsonl                      |
replay --answers asked.jsonl                     |
replay --answers q.jsonl --questions empty       | empty
replay --answers none.jsonl                      | none.jsonl
replay --answers qa.jsonl --questions none.jsonl | none.jsonl
replay --answers qa.jsonl --budget x             |
replay --answers qa.jsonl --budget 100000        | --budget
replay --answers qa.jsonl --drafter nope         | nope
replay --answers qa.jsonl --template nope        | --template
replay --answers qa.jsonl --plot x.xyz           | x.xyz
replay --answers qa.jsonl --html x.png           | --html x.png
replay --answers qa.jsonl --html none/x.html     | none
replay --answers qa.jsonl --html SYSTEM/x.html   | SYSTEM/x.html
replay --answers qa.jsonl --out theirs           | theirs
replay --answers qa.jsonl --out theirs --force   | theirs
replay --answers qa.jsonl --out SYSTEM/x         | SYSTEM/x
replay --answers qa.jsonl --drafter context --baseline rest | rest context
bench --questions q.jsonl --drafter context --baseline rest | rest none, context
bench --questions q.jsonl --out theirs           | theirs
bench --questions q.jsonl --out theirs --force   | theirs
replay --answers qa.jsonl --plot none/x.png      |
replay --answers qa.jsonl --plot SYSTEM/x.png    | SYSTEM/x.png
replay --answers qa.jsonl --datastore none       | none
replay --answers qa.jsonl --datastore frozen     | frozen
replay --answers qa.jsonl --repeat 2             | --prompts --keep-state
replay --answers qa.jsonl --model ./none         | ./none
replay --evidence none                           | none
replay --evidence none --answers qa.jsonl          |
pass-cost none.json --out x.json                 | none.json
pass-cost a.txt --out x.json                     | a.txt
calibrate --time nan                             | --seconds
calibrate ./none                                 | ./none
calibrate --dtype nope                           | --dtype
decode --prompt EMPTY                            | --prompt
decode --prompt x --history EMPTY                | --history
decode --prompt x --datastore EMPTY              | --datastore
decode --prompt x --kv-bits 1                    | --kv-bits --cache
decode --prompt x --budget -3                    | --budget
decode --prompt x --budget x                     |
decode --prompt-file none.txt                    | none.txt
decode --prompt x --prompt-file a.txt            | --prompt --prompt-file
decode --prompt x --model ./none                 | ./none
decode --prompt x --model empty                  | empty
decode --prompt x --model none.gguf              | none.gguf
decode --prompt x --model noweights              | noweights
decode --prompt x --model encdec                 | encdec
decode --prompt x --model masked                 | masked model
decode --prompt x --model badcfg                 |
decode --prompt x --cache low-bit --kv-bits 1,2  | --kv-bits 2
decode --prompt x --cache low-bit --kv-top-k 5   | --kv-top-k --cache
decode --prompt x --cache low-bit --speculative-token drafter | --speculative-token --cache
decode --prompt x --cache low-bit --kv-bits 1,2 --model demo.gguf | --kv-bits 2
decode --prompt-file long.txt --model demo.gguf  | demo.gguf
tokenize --corpus a.txt --model notok            | notok
calibrate noweights                              | noweights
model-bigram demo --k 9999                       | --k
model-unigram demo --k 9999                      | --k
decode --prompt x --drafter nope                 | nope
decode --prompt x --datastore none               | none
decode --prompt x --datastore frozen             | frozen
decode --prompt x --history a.txt                | a.txt
decode --prompt x --reference none.txt           | none.txt
decode --prompt x --drafter rest --reference a.txt | --reference
decode --prompt x --top-p 2                      | --top-p
decode --prompt x --verify nope                  | nope
decode --prompt x --dtype nope                   | --dtype
decode --prompt x --device nope                  | --device
decode --prompt x --device-map nope              | --device-map
decode --prompt x --cache nope                   | --cache nope
decode --prompt x --cache specache --drafter rest |
decode --prompt x --cache specache --history h   | --history
decode --prompt x --cache low-bit --datastore ds | --datastore
decode --prompt x --chat --template nope         | --template
decode --chat --compare                          | --compare --prompt
decode --prompt x --system y                     | --system
decode --prompt x --stop EMPTY                   | --stop
history inspect none                             | none
history merge none none2 --out h                 | none
history merge none none2 --out theirs            | theirs --out
history import qa.jsonl --out theirs             | theirs
history import none.jsonl --out h                | none.jsonl
history forget none --text x --everything        | --text --everything
decode --prompt x --cache-dir a.txt              | a.txt
history trim none --tokens 1                     | none
history trim none --tokens 4M                    | 4M
history import qa.jsonl --out h --tokens 4M      | 4M
history forget none --everything                 | none
forecast none.jsonl                              | none.jsonl
bench --questions none.jsonl                     | none.jsonl
bench --questions q.jsonl --drafter nope         | nope
bench --questions q.jsonl --datastore none       | none
bench --questions q.jsonl --model ./none         | ./none
bench --questions q.jsonl --template nope        | --template
bench --questions q.jsonl --out a.txt            | a.txt
bench --questions q.jsonl --out SYSTEM/x         | SYSTEM/x
bench --questions q.jsonl --out theirs           |
bench --questions q.jsonl --out begun --limit 1  | begun
bench --questions q.jsonl --history a.txt        | a.txt
bench --questions q.jsonl --budget -3            | --budget
bench --questions bad.jsonl                      | bad.jsonl
record --questions none.jsonl --out r            | none.jsonl
record --questions q.jsonl --out theirs          | theirs
record --questions q.jsonl --out SYSTEM/r        | SYSTEM/r
record --questions q.jsonl --out r --drafter nope | nope
record --questions q.jsonl --out r --model ./none | ./none
record --questions q.jsonl --out r --budget 0    | --budget
record --questions q.jsonl --out r --budget auto |
self-corpus --questions none.jsonl               | none.jsonl
self-corpus --questions q.jsonl --batch 0        | --batch
self-corpus --questions q.jsonl --out theirs     | theirs
self-corpus --questions q.jsonl --out SYSTEM/x   | SYSTEM/x
self-corpus nope --questions q.jsonl             | nope
build nope                                       | nope
build bad.toml                                   | bad.toml
build good.toml --out a.txt                      | a.txt
push none me/x                                   | none
push ds nope                                     | nope
push ds me/x --language English                  | --language English
pull me/x@                                       | me/x@
pull EMPTY                                       |
pull nope                                        | nope
pull me/x --out theirs                           | theirs
search --kind nope                               | --kind nope
search --tokenizer ./none                        | ./none
export none --to llama.cpp                       | none
export ds --to nope                              | nope
export ds --to llama.cpp --u32                   | --u32 --to llama.cpp
export ds --to llama.cpp --model demo            | --model --to llama.cpp
export ds --to jsonl --out theirs                | theirs
export ds --to jsonl --memory 1G                 | --memory --to jsonl
export ds --to llama.cpp --out SYSTEM/x          | SYSTEM/x
export ds --to llama.cpp --gguf none.gguf        | none.gguf
export store --to llama.cpp                      | store
export frozen --to rest-idx                      | frozen
export frozen --to exllamav3                     | frozen
export ds --to exllamav3 --model vicuna-7b       | --model
export ds --to exllamav3 --u32                   | --u32 --to exllamav3
export frozen --to jsonl                         | frozen
export frozen --to datasets                      | frozen
import none.bin --from llama.cpp                 | none.bin
import a.txt --from nope                         | nope
import a.txt --from rest-idx --order 2           | --order --from rest-idx
import a.txt --from llama.cpp --model ./none     | ./none
import a.txt --from llama.cpp                    | a.txt llama.cpp
import b.txt --from llama.cpp                    | b.txt llama.cpp
import none.txt --from llama.cpp                 | none.txt
import theirs --from llama.cpp                   | theirs
import empty.txt --from llama.cpp                | empty.txt llama.cpp
import a.txt --from rest-idx                     | a.txt
import empty.txt --from rest-idx                 | empty.txt
import theirs --from rest-idx                    | theirs
merge none none2 --out m                         | none
merge ds --out m                                 |
merge ds frozen --out m                          | ds frozen
merge ds ds2 --out SYSTEM/x                      | SYSTEM/x
prune none --bytes 1M                            | none
prune ds --bytes x                               | x
prune store --bytes 1M                           | store
prune ds --bytes 1M --answers none.jsonl         | none.jsonl
prune ds --bytes 1M --template nope              | --template
prune ds --bytes 1M --out SYSTEM/x               | SYSTEM/x
check-engine nope                                | nope
check-engine vllm --draft none.json              | none.json
check-engine vllm --model demo --draft metrics.json |
check-engine vllm --draft days.json              | days.json
check-engine vllm --model ./none                 | ./none
check-engine vllm --draft {"datastores":["none"]} --model demo | none
check-engine vllm --draft {"drafter":"nope"}     | nope
check-engine vllm --draft {"tokens":0}           | tokens --draft
check-engine vllm --draft {"history":true,"history_by":"salt"} |
check-engine vllm --draft {"drafter":"rest"} --model demo | rest
check-engine vllm --draft {"drafter":"ssd"} --model demo |
check-engine sglang --draft {"clock":true} --model demo |
check-engine vllm --draft {"datastores":["cut"]} --model demo |
warm --drafter nope                              | nope
warm --drafter rest:nope=1                       | rest nope
decode --prompt x --drafter rest:nope=1          | rest nope
decode --prompt x --drafter rest:max_match=0     | max_match
decode --prompt x --drafter rest:max_match       | max_match rest
decode --prompt x --drafter blend:scan=x         | scan
replay --answers qa.jsonl --drafter ssd:query=0  | query
bench --questions q.jsonl --drafter ssd:query=0  | query
record --questions q.jsonl --out r --drafter recycling:keep=3 | keep
warm --workers 0                                 | --workers
decode --prompt-file long.txt                    |
decode --prompt x --reference theirs             |
forecast qa.jsonl --model demo --history none    | --history none
import cache.bin --from llama.cpp --order 3      | cache.bin 3
import cache.bin --from llama.cpp                | cache.bin
decode --prompt x --drafter resst                |
decode --prompt x --top-k 3                      | --temperature
decode --prompt x --chat                         |
decode --prompt x --template own                 |
decode --prompt x --cache specache --reference a.txt | --reference
decode --prompt x --drafter cacheback:max_match=9 |
decode --prompt x --drafter rest:max_mtach=9     |
decode --prompt x --drafter rest:continuation=99 | continuation
decode --prompt x --drafter rest:max_match=2,max_match=3 | max_match
export ds --to rest-idx --dynamic                | --dynamic --to rest-idx
export ds --to jsonl --max-ngrams 3              | --max-ngrams --to jsonl
export ds --to llama.cpp --min-count 0           | --min-count
prune ds --bytes 20K --questions q.jsonl         | --questions --answers
prune ds --bytes 20K --template vicuna           | --template --answers
prune ds --bytes 20K --model demo                | --model --answers
forecast log.jsonl --prompts --no-store          | --prompts
merge ds ds --out m                              |
build-datastore --tokens store --memory much     |
build-datastore --tokens store --shard-tokens 1  | --shard-tokens
model-bigram --extend greedy                     | --extend
"""
BROKEN = {  # model folders: a file of each, and its text; None: it has no such file
    "badcfg": ("config.json", "{"),
    "encdec": ("config.json", '{"is_encoder_decoder": true}'),
    "masked": ("config.json", '{"architectures": ["BertForMaskedLM"]}'),
    "notok": ("tokenizer.json", None),
    "noweights": ("model.safetensors", None),
}
HEAVY = {"torch", "transformers", "numba", "pyarrow", "datasets", "matplotlib"}
PROGRAM = f"""
import json, sys
from typer.testing import CliRunner
from ngramkit_cli.main import app
seen = set()
for line in sys.stdin:
    done = CliRunner().invoke(app, json.loads(line))
    heavy = sorted(({HEAVY} & set(sys.modules)) - seen)
    seen.update(heavy)
    print(json.dumps([done.exit_code, done.output, heavy]), flush=True)
"""


CASES = [
    (words.strip(), named.strip())
    for words, _, named in (line.partition(" |") for line in WRONG.strip().splitlines())
]


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    folder = tmp_path_factory.mktemp("here")
    texts = {
        "a.txt": "some words and some more words\n" * 9,
        "b.txt": "other words\n" * 9,
        "empty.txt": "",
        "a.xyz": "text",
        "q.jsonl": '{"prompt": "def f(x):"}\n',
        "qa.jsonl": '{"prompt": "def f(x):", "output": " return x"}\n',
        "bad.jsonl": '{"prompt": \n',
        "bad.toml": "nope = [\n",
        "good.toml": 'kind = "datastore"\nmodel.id = "demo"\ncorpus.name = "python-stdlib"\n',
        "metrics.json": '{"metrics": "none/x.prom"}',
        "days.json": '{"history_days": 3}',
        "chat.jsonl": '{"question_id": 1, "choices": [{"turns": ["yes"]}]}\n',
        "asked.jsonl": '{"question_id": 1, "turns": ["so?"]}\n',
        "theirs/mine.txt": "mine",
        "long.txt": "a b " * 1200,
        "begun/runs.jsonl": '{"plan": {"count": 3}}\n',
        "theirs/runs.jsonl": "mine",
    }
    for name in ("theirs", "empty", "begun"):
        (folder / name).mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    records = [5, -1, -1, -1, 1, 6, 9, 5, 6, -1, -1, 1, 7, 9]  # of llama.cpp
    np.array(records, np.int32).tofile(folder / "cache.bin")
    store = tokenize(folder / "a.txt", "demo", folder / "store")
    build_datastore(store, folder / "ds")
    build_datastore(tokenize(folder / "b.txt", "demo", folder / "store2"), folder / "ds2")
    build_frozen(store, folder / "frozen")
    shutil.copytree(folder / "ds", folder / "cut")
    os.truncate(folder / "cut/shard-00000.safetensors", 500)
    for name, (file, text) in BROKEN.items():
        shutil.copytree(DEMO, folder / name)
        (folder / name / file).unlink()
        if text is not None:
            (folder / name / file).write_text(text)
    load_tokenizer(write_gguf(folder / "demo.gguf", demo_metadata(), demo_tensors()))
    return folder


@pytest.fixture(scope="module")
def outcomes(here):
    """Words -> (exit code, output, what was imported for it, what SYSTEM stands for)."""
    system = "/proc" if Path("/proc/self").exists() else "/dev/null"
    lines = [
        ["" if word == "EMPTY" else word.replace("SYSTEM", system) for word in words.split()]
        for words, _ in CASES
    ]
    code = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        code,
        input="".join(json.dumps(line) + "\n" for line in lines),
        cwd=here,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    names = [words for words, _ in CASES]
    return {name: (*answer, system) for name, answer in zip(names, answers, strict=True)}


@pytest.mark.parametrize(("words", "named"), CASES)
def test_it_is_said_before_anything_heavy_is_imported(outcomes, words, named):
    code, output, heavy, system = outcomes[words]
    assert code in (2, 3), output
    for name in named.split():
        assert name.replace("SYSTEM", system) in output
    assert "Traceback" not in output
    assert "bug in ngramkit" not in output
    assert "compiling" not in output
    assert heavy == []


def test_every_command_is_among_them():
    assert {words.split()[0] for words, _ in CASES} == set(COMMANDS)


@pytest.mark.parametrize(
    ("package", "words", "hint"),
    [
        ("torch", "decode --prompt x --drafter none", "pip install torch"),
        ("matplotlib", "calibrate demo", "pip install matplotlib"),
        ("matplotlib", "bench --questions q.jsonl", "pip install matplotlib"),
        ("matplotlib", "replay --answers qa.jsonl --plot x.png", "pip install matplotlib"),
        ("rensa", "tokenize --corpus a.txt --dedup minhash", "pip install 'ngramkit[dedup]'"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(here, package, words, hint):
    code = f"""
import sys
from importlib import util
sys.modules[{package!r}] = None
find = util.find_spec
util.find_spec = lambda name, *rest: None if name == {package!r} else find(name, *rest)
from ngramkit_cli.main import run
run()
"""
    command = [sys.executable, "-c", code, *words.split()]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert f"the package {package}" in done.stderr
    assert done.stderr.splitlines()[-1].endswith(hint)


def test_nothing_is_left_behind(here, outcomes):
    assert sorted(path.name for path in here.iterdir()) == sorted(
        ["a.txt", "b.txt", "chat.jsonl", "empty.txt", "a.xyz", "q.jsonl", "qa.jsonl", "bad.jsonl",
         "bad.toml", "good.toml", "theirs", "begun", "empty", "store", "store2", "ds", "ds2",
          "frozen", "cut", *BROKEN, "demo.gguf", "long.txt", "cache.bin", "metrics.json",
          "days.json", "asked.jsonl"]
    )  # fmt: skip
