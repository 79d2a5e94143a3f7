"""A Space that shows from which source each token of an answer would be drafted. No model runs."""

import html
import json
import os
import tempfile
from pathlib import Path

import gradio as gr

import ngramkit

ARTIFACT = os.environ.get("ARTIFACT", "hf://OWNER/NAME")  # a variable of the Space
MOST = 20_000  # characters of a prompt or an answer
PROMPT = "def area(width, height):\n"
ANSWER = '    """Return the area."""\n    return width * height\n\n\n'
ANSWER += 'def volume(width, height, depth):\n    """Return the volume."""\n'
ANSWER += "    return area(width, height) * depth\n"
FRAME = (
    '<iframe sandbox="allow-scripts" style="width:100%;height:{}px;border:0" srcdoc="{}"></iframe>'
)


def show(prompt, answer, drafter="blend", budget=16):
    """Return the page of a replay in a frame, in which it can do nothing to the Space's."""
    if not answer.strip():
        raise gr.Error("Paste an answer of a model.")
    if max(len(prompt), len(answer)) > MOST:
        raise gr.Error(f"A prompt and an answer may have {MOST:,} characters each.")
    with tempfile.TemporaryDirectory() as folder:
        log, page = Path(folder, "log.jsonl"), Path(folder, "page.html")
        log.write_text(json.dumps({"prompt": prompt or "\n", "output": answer}), encoding="utf-8")
        try:
            artifact = ngramkit.open_artifact(ARTIFACT)
            ngramkit.replay(
                log, model=artifact.tokenizer.id, artifacts=[artifact], drafters=[drafter],
                budgets=[int(budget)], html=page,
            )  # fmt: skip
        except ngramkit.NgramkitError as error:
            raise gr.Error(str(error)) from error
        return FRAME.format(900, html.escape(page.read_text(encoding="utf-8")))


with gr.Blocks(title="Where an answer's tokens came from") as demo:
    gr.Markdown(
        f"# Drafted tokens\nPaste a prompt and a model's answer. Each token gets the colour of the "
        f"source that drafts it: the text itself, or the artifact `{ARTIFACT}`. "
        "No model runs: the answer is replayed as greedy decoding would verify it."
    )
    with gr.Row():
        prompt = gr.Textbox(PROMPT, label="Prompt", lines=6, max_lines=12, min_width=300)
        answer = gr.Textbox(ANSWER, label="Answer", lines=6, max_lines=12, min_width=300)
    with gr.Row():
        drafter = gr.Dropdown(["blend", "rest", "prompt-lookup"], value="blend", label="Drafter")
        budget = gr.Slider(1, 64, value=16, step=1, label="Draft nodes per pass")
    button = gr.Button("Show the drafts", variant="primary")
    page = gr.HTML()
    button.click(show, [prompt, answer, drafter, budget], page)

if __name__ == "__main__":
    demo.launch()
