#!/usr/bin/env bash
# A CI pipeline: build what changed, verify it, replay recorded answers, publish it.
#   examples/pipeline.sh ANSWERS [QUESTIONS]     NGRAMKIT_RECIPES="demo"  NGRAMKIT_LEAST=1.3  PUSH=1
# Without a terminal ngramkit shows no bars and asks nothing; --json puts one object on the last line.
set -euo pipefail
answers=${1:?usage: examples/pipeline.sh ANSWERS [QUESTIONS]}
questions=${2:-}
recipes=${NGRAMKIT_RECIPES:-demo}
least=${NGRAMKIT_LEAST:-1.0} # tokens/step below which nothing is published

for recipe in $recipes; do
  ngramkit build "$recipe" --json | tail -n 1 >"$recipe.build.json"
  ngramkit verify "artifacts/$recipe" --json >/dev/null
done

ngramkit replay --answers "$answers" ${questions:+--questions "$questions"} \
  --drafter rest --datastore "artifacts/${recipes%% *}" --template vicuna --budget 16 \
  --json | tail -n 1 >replay.json
python3 - "$least" <<'PYTHON'
import json, sys

least = float(sys.argv[1])
for row in json.load(open("replay.json"))["results"]:
    print(f"{row['drafter']}, {row['budget']} nodes: {row['tokens_per_step']:.2f} tokens/step")
    if row["tokens_per_step"] < least:
        sys.exit(f"below {least}: nothing is published")
PYTHON

if [ "${PUSH:-}" = 1 ]; then
  for recipe in $recipes; do ngramkit build "$recipe" --push --json; done
fi
