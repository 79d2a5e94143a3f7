"""A tokenizer's own chat template: where it stands, and how it becomes text.

Templates come from strangers, so they run in jinja2's sandbox and see plain strings only. What they
may use is what transformers gives them (utils/chat_template_utils.py of 5.23).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from ngramkit.corpus.tokenizer_files import CONFIG, TEMPLATE, TokenizerFiles
from ngramkit.errors import InputError


def find_chat_template(files: TokenizerFiles) -> str | None:
    """chat_template.jinja, else what tokenizer_config.json holds; of several, the default one."""
    if TEMPLATE in files.paths:
        return files.text(TEMPLATE)
    return default_template(files.json(CONFIG).get("chat_template"))


def default_template(given: Any) -> str | None:
    """Of one text, or of several that have names."""
    if isinstance(given, list):
        given = {each["name"]: each["template"] for each in given if _is_named(each)}
    if isinstance(given, dict):
        given = given.get("default")
    return given if isinstance(given, str) else None


def _is_named(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.keys() >= {"name", "template"}


def render_chat(
    template: str, turns: Sequence[Mapping[str, str]], special_tokens: Mapping[str, str]
) -> str:
    """The text up to where the model's next answer begins.

    `turns` have a role and a content. Raises InputError where the template fails or refuses them.
    """
    from jinja2.exceptions import TemplateError

    messages = [{str(key): str(value) for key, value in turn.items()} for turn in turns]
    try:
        return str(
            _compiled(template).render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=True,
                **special_tokens,
            )
        )
    except (
        TemplateError,
        ArithmeticError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as e:
        raise InputError(
            f"the model's chat template refuses this conversation: {e}",
            "choose another template",
            option="template",
        ) from e


@lru_cache
def _compiled(template: str) -> Any:
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks the answer, for training; here it is transparent."""

        tags = {"generation"}  # noqa: RUF012 (jinja2's own declaration)

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, indent: Any = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(template)
