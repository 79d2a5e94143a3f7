"""What is wrong is said before anything is built, loaded, compiled or imported for that.

A process runs every command with one thing wrong at a time; between two it looks at what was
imported. Imports are what takes the time: without torch, transformers, numba and pyarrow a command
starts and ends within 0.3 s of processor time.
"""

from __future__ import annotations

import json
import os
import re
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

# A command, and a message whose names must be in the error. Files and folders: see `here`.
WRONG = """
corpora more                                     | extra argument
tokenize                                         | no corpus was chosen
tokenize --corpus nope                           | unknown corpus 'nope'
tokenize --corpus ./no.txt                       | no file matches ./no.txt
tokenize --corpus empty                          | the folder empty holds no file
tokenize --corpus hf:                            | hf: names no dataset
tokenize --corpus EMPTY                          | --corpus must not be empty
build-datastore --corpus ds                      | ds is an artifact, not text
tokenize --corpus a.xyz                          | unsupported kind of file: a.xyz
tokenize --corpus a.txt --model nope             | unknown model 'nope'
tokenize --corpus a.txt --model ./none           | there is no model folder ./none
tokenize --corpus a.txt --model empty            | empty holds no tokenizer
tokenize --corpus a.txt --out SYSTEM/x           | cannot write SYSTEM/x
tokenize --corpus a.txt --out theirs             | theirs exists
tokenize --corpus a.txt --out theirs --force     | theirs holds mine.txt, which ngramkit did not
tokenize --corpus a.txt --out a.txt/x            | a.txt is not a folder
tokenize --corpus a.txt --sample 2               | --sample must be above 0 and at most 1
tokenize --corpus a.txt --dedup nope             | --dedup is 'nope'
tokenize --corpus a.txt --limit 0                | --limit must be at least 1
tokenize --corpus a.txt --executor nope          | there is no --executor 'nope'
tokenize --corpus a.txt --ray-address auto       | means nothing with --executor local
tokenize --corpus a.txt --exclude no.txt         | no.txt cannot be read
tokenize --corpus a.txt --max-document x         | 'x' is not a size
tokenize --corpus a.txt --column x               | a.txt is plain text and has no columns
tokenize --corpus python-stdlib --split nope     | unknown split 'nope' of python-stdlib
tokenize --corpus a.txt:2                        | the weight of a.txt must be above 0
tokenize --corpus a.txt --cache-size x           | 'x' is not a size
build-datastore --corpus nope                    | unknown corpus 'nope'
build-datastore --corpus a.txt --out SYSTEM/x    | cannot write SYSTEM/x
build-datastore --corpus a.txt --out frozen      | frozen exists
build-datastore --corpus a.txt --executor nope   | there is no --executor 'nope'
build-datastore --tokens none                    | there is no artifact at none
build-datastore --tokens ds                      | ds is a datastore, not a token store
build-datastore --tokens store --corpus a.txt    | --corpus is for text, not for --tokens
build-datastore --tokens store --limit 3         | --limit is for text, not for --tokens
build-datastore --tokens store --model demo      | --model is for text, not for --tokens
build-datastore --tokens store --out SYSTEM/x    | cannot write SYSTEM/x
build-frozen --corpus a.txt --leader-len 9       | --leader-len must be 1 to 4
build-frozen --corpus a.txt --out SYSTEM/x       | cannot write SYSTEM/x
build-frozen --corpus a.txt --out ds             | ds exists
build-frozen --tokens store --followers 0        | --followers must be 1 to
models more                                      | extra argument
use empty                                        | empty holds no model: it has neither
use EMPTY                                        | MODEL is empty
use nope                                         | unknown model 'nope'
model-bigram nope                                | unknown model 'nope'
model-bigram empty                               | empty holds no model
model-bigram demo --model other                  | MODEL is demo, --model other
model-bigram --model nope                        | unknown model 'nope'
model-unigram --model nope                       | unknown model 'nope'
calibrate --model nope                           | unknown model 'nope'
self-corpus --model nope                         | unknown model 'nope'
model-bigram --k 0                               | --k must be at least 1
model-bigram --dtype nope                        | --dtype must be auto
model-bigram --device nope                       | --device must be auto
model-bigram --out SYSTEM/x                      | cannot write SYSTEM/x
model-bigram --out ds                            | ds exists
model-unigram --rule nope                        | --rule must be distance
model-unigram --out SYSTEM/x                     | cannot write SYSTEM/x
inspect EMPTY                                    | hf://USER/NAME@REV is empty
inspect ds --query EMPTY                         | --query is empty
inspect none                                     | there is no artifact at none
verify none                                      | there is no artifact at none
drafters nope                                    | no drafter is called 'nope'
replay                                           | there is nothing to replay
replay --answers EMPTY                           | --answers is empty
replay --answers chat.jsonl                      | without its question
replay --answers asked.jsonl                     | a question without an answer
replay --answers q.jsonl --questions empty       | empty is not a plain file
replay --answers none.jsonl                      | there is no file none.jsonl
replay --answers qa.jsonl --questions none.jsonl | there is no file none.jsonl
replay --answers qa.jsonl --budget x             | is not a list of numbers
replay --answers qa.jsonl --drafter nope         | no drafter is called 'nope'
replay --answers qa.jsonl --template nope        | --template must be one of
replay --answers qa.jsonl --plot x.xyz           | x.xyz is no picture's name
replay --answers qa.jsonl --plot none/x.png      | there is no folder none
replay --answers qa.jsonl --plot SYSTEM/x.png    | SYSTEM/x.png cannot be written
replay --answers qa.jsonl --datastore none       | there is no artifact at none
replay --answers qa.jsonl --datastore frozen     | frozen is a frozen-table, not a datastore
replay --answers qa.jsonl --repeat 2             | and --prompts are for --keep-state
replay --answers qa.jsonl --model ./none         | there is no model folder ./none
replay --oracle none                             | none holds no recorded evidence
replay --oracle none --answers qa.jsonl          | a top-k record has its own answers
calibrate --time nan                             | --seconds must be 0 to 86400
calibrate ./none                                 | there is no model folder ./none
calibrate --dtype nope                           | --dtype must be auto
decode --prompt EMPTY                            | --prompt is empty
decode --prompt x --history EMPTY                | --history is empty
decode --prompt x --datastore EMPTY              | --datastore is empty
decode --prompt x --kv-bits 1                    | --kv-bits means nothing with --cache full
decode --prompt x --budget -3                    | --budget must be 1 to 4096
decode --prompt x --budget x                     | is no number of nodes
decode --prompt-file none.txt                    | none.txt cannot be read
decode --prompt x --prompt-file a.txt            | --prompt and --prompt-file exclude
decode --prompt x --model ./none                 | there is no model folder ./none
decode --prompt x --model empty                  | empty holds no model
decode --prompt x --model none.gguf              | there is no model file none.gguf
decode --prompt x --model noweights              | noweights holds no weights
decode --prompt x --model encdec                 | encdec is an encoder-decoder
decode --prompt x --model badcfg                 | badcfg/config.json: not JSON
decode --prompt x --cache low-bit --kv-bits 1,2  | --kv-bits names 2 layers, the model has
decode --prompt x --cache low-bit --kv-bits 1,2 --model demo.gguf | --kv-bits names 2 layers
decode --prompt-file long.txt --model demo.gguf  | tokens, the context of demo.gguf 1,024
tokenize --corpus a.txt --model notok            | notok holds no tokenizer
calibrate noweights                              | noweights holds no weights
model-bigram demo --k 9999                       | --k must be 1 to 4096
model-unigram demo --k 9999                      | --k must be 1 to 4096
decode --prompt x --drafter nope                 | no drafter is called 'nope'
decode --prompt x --datastore none               | there is no artifact at none
decode --prompt x --datastore frozen             | frozen is a frozen-table, not a datastore
decode --prompt x --history a.txt                | a.txt exists and is not a history
decode --prompt x --reference none.txt           | none.txt cannot be read
decode --prompt x --drafter rest --reference a.txt | cannot draft from --reference
decode --prompt x --top-p 2                      | --top-p must be above 0
decode --prompt x --verify nope                  | no way to verify called 'nope'
decode --prompt x --dtype nope                   | --dtype must be auto
decode --prompt x --device nope                  | --device must be auto
decode --prompt x --device-map nope              | --device-map must be auto
decode --prompt x --cache nope                   | there is no --cache called 'nope'
decode --prompt x --cache specache --drafter rest | drafts are not verified with a SpeCache
decode --prompt x --cache specache --history h   | --history is for drafts, a SpeCache takes none
decode --prompt x --cache low-bit --datastore ds | --datastore is for drafts, a SpeCache takes no
decode --prompt x --chat --template nope         | --template must be one of
decode --chat --compare                          | leave out --compare, or give a --prompt
decode --prompt x --system y                     | --system needs a conversation
decode --prompt x --stop EMPTY                   | --stop is empty
history inspect none                             | there is no history at none
history merge none none2 --out h                 | there is no history at none
history merge none none2 --out theirs            | theirs exists -> choose another --out
history import qa.jsonl --out theirs             | theirs exists and is not a history
history import none.jsonl --out h                | there is no file none.jsonl
history forget none --text x --everything        | --text and --everything exclude each other
decode --prompt x --cache-dir a.txt              | a.txt is not a folder
history trim none --tokens 1                     | there is no history at none
history trim none --tokens 4M                    | '4M' is no whole number: write it like 4000000
history import qa.jsonl --out h --tokens 4M      | '4M' is no whole number: write it like 4000000
history forget none --everything                 | there is no history at none
forecast none.jsonl                              | none.jsonl
bench --questions none.jsonl                     | there is no file none.jsonl
bench --questions q.jsonl --drafter nope         | no drafter is called 'nope'
bench --questions q.jsonl --datastore none       | there is no artifact at none
bench --questions q.jsonl --model ./none         | there is no model folder ./none
bench --questions q.jsonl --template nope        | --template must be one of
bench --questions q.jsonl --out a.txt            | a.txt is not a folder
bench --questions q.jsonl --out SYSTEM/x         | cannot write SYSTEM/x
bench --questions q.jsonl --out theirs           | theirs/runs.jsonl is not of a benchmark
bench --questions q.jsonl --out begun --limit 1  | begun holds another benchmark: model was
bench --questions q.jsonl --history a.txt        | name a folder: a.txt is none
bench --questions q.jsonl --budget -3            | --budget must be 1 to 4096
bench --questions bad.jsonl                      | bad.jsonl, line 1: not JSON
record --questions none.jsonl --out r            | there is no file none.jsonl
record --questions q.jsonl --out theirs          | theirs exists and is not recorded evidence
record --questions q.jsonl --out SYSTEM/r        | cannot write SYSTEM/r
record --questions q.jsonl --out r --drafter nope | no drafter is called 'nope'
record --questions q.jsonl --out r --model ./none | there is no model folder ./none
record --questions q.jsonl --out r --budget 0    | --budget must be 1 to 4096
record --questions q.jsonl --out r --budget auto | a record needs passes of one size
self-corpus --questions none.jsonl               | there is no file none.jsonl
self-corpus --questions q.jsonl --batch 0        | --batch must be 1 to 4096
self-corpus --questions q.jsonl --out theirs     | theirs is there, and no self-corpus wrote it
self-corpus --questions q.jsonl --out SYSTEM/x   | cannot write SYSTEM/x
self-corpus nope --questions q.jsonl             | unknown model 'nope'
build nope                                       | there is no recipe nope
build bad.toml                                   | bad.toml is not TOML
build good.toml --out a.txt                      | a.txt is not a folder
push none me/x                                   | none
push ds nope                                     | nope
pull me/x@                                       | me/x@
pull EMPTY                                       | is empty
pull nope                                        | nope
pull me/x --out theirs                           | theirs
search --kind nope                               | there is no --kind 'nope'
search --tokenizer ./none                        | there is no model folder ./none
export none --to llama.cpp                       | there is no artifact at none
export ds --to nope                              | unknown format 'nope'
export ds --to llama.cpp --u32                   | --u32 cannot be used with --to llama.cpp
export ds --to llama.cpp --model demo            | --model cannot be used with --to llama.cpp
export ds --to jsonl --out theirs                | theirs exists
export ds --to llama.cpp --out SYSTEM/x          | cannot write SYSTEM/x
export ds --to llama.cpp --gguf none.gguf        | there is no model file none.gguf
export store --to llama.cpp                      | store is a token store, which has no n-grams
export frozen --to rest-idx                      | frozen is a frozen-table, which holds no doc
export frozen --to jsonl | frozen is a frozen-table, which holds no doc
import none.bin --from llama.cpp                 | none.bin cannot be read
import a.txt --from nope                         | unknown format 'nope'
import a.txt --from rest-idx --order 2           | --order cannot be used with --from rest-idx
import a.txt --from llama.cpp --model ./none     | there is no model folder ./none
import a.txt --from llama.cpp                    | a.txt is no llama.cpp n-gram cache: its 279 bytes
import b.txt --from llama.cpp | b.txt is no llama.cpp n-gram cache: its first record
import none.txt --from llama.cpp                 | none.txt cannot be read
import theirs --from llama.cpp                   | theirs is not a plain file
import empty.txt --from llama.cpp | empty.txt is no llama.cpp n-gram cache: it is empty
import a.txt --from rest-idx                     | a.txt is no REST datastore: the block at byte 0
import empty.txt --from rest-idx                 | empty.txt is no REST datastore: it is empty
import theirs --from rest-idx                    | theirs is not a plain file
merge none none2 --out m                         | there is no artifact at none
merge ds --out m                                 | there is only one artifact to merge
merge ds frozen --out m                          | ds is a datastore and frozen a frozen-table
merge ds ds2 --out SYSTEM/x                      | cannot write SYSTEM/x
prune none --bytes 1M                            | there is no artifact at none
prune ds --bytes x                               | 'x' is not a size
prune store --bytes 1M                           | cannot prune a token store
prune ds --bytes 1M --answers none.jsonl         | there is no file none.jsonl
prune ds --bytes 1M --template nope              | --template must be one of
prune ds --bytes 1M --out SYSTEM/x               | cannot write SYSTEM/x
check-engine nope                                | there is no adapter for 'nope'
check-engine vllm --draft none.json              | names none.json
check-engine vllm --model demo --draft metrics.json | metrics cannot be written to none/x.prom
check-engine vllm --draft days.json              | history_days of days.json needs a history
check-engine vllm --model ./none                 | there is no model folder ./none
check-engine vllm --draft {"datastores":["none"]} --model demo | there is no artifact at none
check-engine vllm --draft {"drafter":"nope"}     | no drafter is called 'nope'
check-engine vllm --draft {"history":true,"history_by":"salt"} | history_by cannot be "salt"
check-engine vllm --draft {"drafter":"rest"} --model demo | the drafter rest needs a datastore
check-engine vllm --draft {"drafter":"ssd"} --model demo | needs past requests -> give history
check-engine sglang --draft {"clock":true} --model demo | clock of the configuration is for engines
check-engine vllm --draft {"datastores":["cut"]} --model demo | shard-00000.safetensors is damaged
warm --drafter nope                              | no drafter is called 'nope'
warm --drafter rest:nope=1                       | the drafter rest has no option 'nope'
decode --prompt x --drafter rest:nope=1          | the drafter rest has no option 'nope'
decode --prompt x --drafter rest:max_match=0     | max_match must be at least 1
decode --prompt x --drafter rest:max_match       | 'max_match' is no option of the drafter rest
decode --prompt x --drafter blend:scan=x         | scan must be a whole number
replay --answers qa.jsonl --drafter ssd:query=0  | query must be at least 1
bench --questions q.jsonl --drafter ssd:query=0  | query must be at least 1
record --questions q.jsonl --out r --drafter recycling:keep=3 | keep must be true or false
warm --workers 0                                 | --workers
decode --prompt-file long.txt                    | tokens, the context of demo 1,024
decode --prompt x --reference theirs             | Is a directory -> check the path
forecast qa.jsonl --model demo --history none    | there is no --history at none
import cache.bin --from llama.cpp --order 3      | cache.bin has no n-grams of 3 tokens
import cache.bin --from llama.cpp                | cache.bin holds n-grams of 1, 2 tokens
decode --prompt x --drafter resst                | did you mean rest?
decode --prompt x --top-k 3                      | add --temperature
decode --prompt x --chat                         | not made for conversations
decode --prompt x --template own                 | demo has no chat template
decode --prompt x --cache specache --reference a.txt | takes no drafts and no --reference
decode --prompt x --drafter cacheback:max_match=9 | There are: leader_len, follower_len
decode --prompt x --drafter rest:max_mtach=9     | did you mean max_match?
decode --prompt x --drafter rest:continuation=99 | continuation must be 1 to 31
decode --prompt x --drafter rest:max_match=2,max_match=3 | max_match is given twice
export ds --to rest-idx --dynamic                | --dynamic cannot be used with --to rest-idx
export ds --to jsonl --max-ngrams 3              | --max-ngrams cannot be used with --to jsonl
export ds --to llama.cpp --min-count 0           | --min-count
prune ds --bytes 20K --questions q.jsonl         | --questions need --answers
merge ds ds --out m                              | twice
build-datastore --tokens store --memory much     | is not a size
build-datastore --tokens store --shard-tokens 1  | --shard-tokens
model-bigram --extend greedy                     | --extend must be bigram or model
"""
BROKEN = {  # model folders: a file of each, and its text; None: it has no such file
    "badcfg": ("config.json", "{"),
    "encdec": ("config.json", '{"is_encoder_decoder": true}'),
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
    (words.strip(), said.strip())
    for words, _, said in (line.partition(" | ") for line in WRONG.strip().splitlines())
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


def things(words, said):
    """The words of a message that name what is wrong: flags, and what was given."""
    given = {*re.split(r"[ :=,{}\"]+", words), *words.split()[1:]}
    given -= {words.split()[0], *re.findall(r'"(\w+)":', words)}
    bare = [word.strip("'?.,;:") for word in said.split()]
    return [word for word in bare if word.startswith("--") or word in given]


@pytest.mark.parametrize(("words", "said"), CASES)
def test_it_is_said_before_anything_heavy_is_imported(outcomes, words, said):
    code, output, heavy, system = outcomes[words]
    assert code in (2, 3), output
    for thing in things(words, said):
        assert thing.replace("SYSTEM", system) in output
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
    assert f"needs the package {package}" in done.stderr or f"needs {package}" in done.stderr
    assert done.stderr.splitlines()[-1].endswith(hint)


def test_nothing_is_left_behind(here, outcomes):
    assert sorted(path.name for path in here.iterdir()) == sorted(
        ["a.txt", "b.txt", "chat.jsonl", "empty.txt", "a.xyz", "q.jsonl", "qa.jsonl", "bad.jsonl",
         "bad.toml", "good.toml", "theirs", "begun", "empty", "store", "store2", "ds", "ds2",
          "frozen", "cut", *BROKEN, "demo.gguf", "long.txt", "cache.bin", "metrics.json",
          "days.json", "asked.jsonl"]
    )  # fmt: skip
