"""`ngramkit decode --prompt A --prompt B`: an answer to each."""

import json

from typer.testing import CliRunner

from ngramkit_cli.main import app

LINE = ["decode", "--model", "demo", "--drafter", "context", "--max-new-tokens", "6"]


def test_several_prompts_have_an_answer_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def decode(*options):
        result = CliRunner().invoke(app, [*LINE, *options])
        assert result.exit_code == 0, result.output
        return result

    alone = json.loads(decode("--prompt", "import os", "--json").stdout.splitlines()[-1])
    both = ["--prompt", "def main(", "--prompt", "import os"]
    told = json.loads(decode(*both, "--json").stdout.splitlines()[-1])
    assert [answer["new_tokens"] for answer in told["answers"]] == [6, 6]
    assert told["answers"][1]["text"] == alone["text"]
    shown = decode(*both)
    assert shown.stdout == "".join(f"{answer['text']}\n" for answer in told["answers"])
    assert shown.stderr.count("tokens/step") == 2
