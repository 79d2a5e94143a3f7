import textwrap

from ngramkit.corpus.stdlib import is_held_out
from ngramkit.demo import MAX_PROMPT_CHARS, MIN_PROMPT_CHARS, demo_prompts


def test_prompts_are_held_out_code_of_ordinary_length():
    prompts = demo_prompts(110)
    assert len(prompts) == 110
    assert len({text for _, text in prompts}) == 110
    assert prompts == demo_prompts(110)
    for where, text in prompts:
        assert is_held_out(where.split(":")[0])
        assert MIN_PROMPT_CHARS <= len(text) <= MAX_PROMPT_CHARS
        assert text.endswith("\n")
        first = textwrap.dedent(text).splitlines()[0].lstrip()
        assert first.startswith(("def ", "class ", "async def "))


def test_the_first_prompts_come_from_different_files():
    files = [where.split(":")[0] for where, _ in demo_prompts(5)]
    assert len(set(files)) == 5
