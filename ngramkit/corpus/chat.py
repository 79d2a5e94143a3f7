"""Chat templates: conversations as prompts, and the choice of a template.

A model's template is untrusted. jinja2's sandbox does not stop endless loops or strings that
double, so it runs in a process with bounded time and memory. It gets the functions of transformers
(utils/chat_template_utils.py of 5.23).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ngramkit.basics.errors import BadRecordError, InputError, UsageError
from ngramkit.basics.machine import Lock, start_python
from ngramkit.basics.models import DEFAULT_MODEL, resolve_model

if TYPE_CHECKING:
    from ngramkit.corpus.tokenizer import TextTokenizer


OWN, AUTO = "own", "auto"
ANSWER = "\N{SNOWMAN}"  # a sample answer, to find the text around it
# Bounds of an untrusted template; usual ones take milliseconds and little memory.
MAX_SECONDS = 10  # s of processor time
MAX_MEMORY = 1 << 29  # bytes
MAX_CHARACTERS = 1 << 24  # of the rendered text

# FastChat's vicuna_v1.1, as in its conversation.py: a space after a question, </s> after an answer.
VICUNA = """\
{%- if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}\
A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful\
, detailed, and polite answers to the user's questions.{% endif %} {% for m in messages %}\
{% if m.role == 'user' %}USER: {{ m.content }} \
{% elif m.role == 'assistant' %}ASSISTANT: {{ m.content }}</s>{% endif %}{% endfor %}\
{% if add_generation_prompt %}ASSISTANT:{% endif %}"""
# Meta's llama/generation.py: the system message is part of the first question.
LLAMA_2 = """\
{%- set first = messages[0] if messages[0].role == 'system' else none %}{% for m in messages %}\
{% if m.role == 'user' %}<s>[INST] \
{% if first and loop.index0 == 1 %}<<SYS>>\n{{ first.content }}\n<</SYS>>\n\n{% endif %}\
{{ m.content }} [/INST]{% elif m.role == 'assistant' %} {{ m.content }} </s>{% endif %}\
{% endfor %}"""
# Mistral's own, as its Instruct models up to v0.2 ship it.
MISTRAL = """\
{%- set first = messages[0] if messages[0].role == 'system' else none %}{% for m in messages %}\
{% if m.role == 'user' %}[INST] \
{% if first and loop.index0 == 1 %}{{ first.content }}\n\n{% endif %}\
{{ m.content }} [/INST]{% elif m.role == 'assistant' %} {{ m.content }}</s>{% endif %}\
{% endfor %}"""
CHATML = """\
{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"""
NONE = "{{ messages | map(attribute='content') | join('\n\n') }}"
KNOWN = {"vicuna": VICUNA, "llama-2": LLAMA_2, "mistral": MISTRAL, "chatml": CHATML, "none": NONE}
NAMES = (AUTO, OWN, *KNOWN)

# (pattern of a model's name, its template)
BY_NAME = (
    (r"vicuna", "vicuna"),
    (r"(llama-?2.*chat|codellama.*instruct)", "llama-2"),
    (r"(mistral|mixtral).*instruct", "mistral"),
    (r"(chatml|hermes|dolphin|qwen.*(chat|instruct)|smollm.*instruct)", "chatml"),
)


class Message(NamedTuple):
    role: str  # "system", "user" or "assistant"
    content: str


@dataclass(frozen=True)
class Template:
    name: str
    source: str
    special: tuple[tuple[str, str], ...] = ()
    why: str = ""  # why it was chosen; "" if it was named

    def prompt(self, messages: Sequence[Message]) -> str:
        """Return the prompt. Raises InputError if the template fails or refuses the messages."""
        turns = [{"role": m.role, "content": m.content} for m in messages]
        render = render_confined if self.name == OWN else render_chat
        return render(self.source, turns, dict(self.special))

    @cached_property
    def joint(self) -> str:
        """The white space before an answer."""
        question = Message("user", "?")
        try:
            before = self.prompt([question])
            whole = self.prompt([question, Message("assistant", ANSWER)])
        except InputError:
            return ""
        between = whole.removeprefix(before).partition(ANSWER)[0]
        plain = self.name == "none" or not whole.startswith(before)
        return "" if plain or between.strip() else between

    def __str__(self) -> str:
        name = "the model's own" if self.name == OWN else self.name
        return f"template: {name}{self.why and f' ({self.why})'}"


def find_template(name: str, tokenizer: TextTokenizer) -> Template:
    """Return the template `name`, one of NAMES. Raises UsageError if there is none."""
    model = tokenizer.record.id
    require_template(name)
    if name in KNOWN:
        return Template(name, KNOWN[name])
    if tokenizer.chat_template is not None:
        special = tuple(sorted(tokenizer.special.items()))
        return Template(OWN, tokenizer.chat_template, special)
    by_name = known_for(model) if name == AUTO else None
    if by_name is None:
        raise UsageError(
            f"{model} has no chat template"
            + (", and none is known for its name" if name == AUTO else ""),
            f"Give template={'|'.join(KNOWN)}; none leaves prompts unchanged.",
            option="template",
        )
    return Template(by_name, KNOWN[by_name], why=f"known for {model}")


def require_template(name: str) -> None:
    if name not in NAMES:
        raise UsageError(
            f"template must be one of {', '.join(NAMES)}, got {name!r}", option="template"
        )


def known_for(model: str) -> str | None:
    """Return the template for the last part of a model's name, id or folder.

    >>> known_for("vicuna-7b"), known_for("me/Llama-2-7b-chat-hf"), known_for("mistral-7b")
    ('vicuna', 'llama-2', None)
    """
    if model == DEFAULT_MODEL:
        return "none"  # it continues code
    for name in (model, resolve_model(model)):
        last = name.rstrip("/").rsplit("/", 1)[-1].lower()
        for pattern, template in BY_NAME:
            if re.search(pattern, last):
                return template
    return None


# Rendering. Turns have a role and a content.

Turns = Sequence[Mapping[str, str]]


def render_confined(template: str, turns: Turns, special_tokens: Mapping[str, str]) -> str:
    """Render in a process with bounded time, memory and output."""
    return _renderer.render([template, turns, special_tokens, MAX_SECONDS])


def render_chat(template: str, turns: Turns, special_tokens: Mapping[str, str]) -> str:
    """Render a conversation, or raise InputError."""
    from jinja2.exceptions import TemplateError

    facts = {
        "messages": list(turns),
        "tools": None,
        "documents": None,
        "add_generation_prompt": True,
    }
    try:
        return str(_compile_template(template).render(**facts, **special_tokens))
    except (
        TemplateError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError
    ) as error:  # fmt: skip
        raise _refused(str(error)) from error


def _refused(why: str) -> BadRecordError:
    return BadRecordError(
        f"cannot render this conversation: {why}", "Choose another template.", option="template"
    )


class _Renderer:
    """A process that renders untrusted templates.

    A request is a line of JSON: [template, turns, special tokens, seconds].
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None

    def render(self, request: list[Any]) -> str:
        with self._lock:
            answer = self._ask(json.dumps(request) + "\n")
        if not answer:
            raise _refused(f"it takes more than {request[-1]} s or {MAX_MEMORY >> 20} MiB")
        body = json.loads(answer)
        if "refused" in body:
            raise _refused(body["refused"])
        return str(body["text"])

    def _ask(self, line: str) -> str:
        """Return the answer, or "" if the request killed the process."""
        if self._process is None:
            self._process = start_python(
                "from ngramkit.corpus.chat import answer_requests; answer_requests()",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        except BaseException:  # such as Ctrl-C: the pending answer must not be read later
            self._process.kill()
            self.close()
            raise
        if not answer:
            self.close()
        return answer

    def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            for stream in (process.stdin, process.stdout):
                with suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            process.wait()

    def forget(self) -> None:
        """Drop the process in a forked child; the parent may be using it."""
        process, self._process = self._process, None
        if process is not None:
            # Closing must not send the parent's buffered text.
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (process.stdin, process.stdout):
                os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
            os.close(nowhere)


_renderer = _Renderer()
os.register_at_fork(after_in_child=_renderer.forget)


def answer_requests() -> None:
    """Serve a `_Renderer` over stdin and stdout."""
    _bound_memory()
    for line in sys.stdin:
        template, turns, special_tokens, seconds = json.loads(line)
        _bound_time(seconds)
        try:
            text = render_chat(template, turns, special_tokens)
            if len(text) > MAX_CHARACTERS:
                raise _refused(f"it would have {len(text):,} characters")
            answer = {"text": text}
        except InputError as error:
            answer = {"refused": str(error).partition(": ")[2][:1000]}
        except MemoryError:
            raise
        except Exception as error:  # an untrusted template may raise anything
            answer = {"refused": f"{error!r:.1000}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _bound_memory() -> None:
    import resource

    with suppress(ValueError, OSError):  # not supported by every system
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _bound_time(seconds: int) -> None:
    """Limit the processor time from now on."""
    import resource
    import time

    with suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + seconds, hard))


@lru_cache
def _compile_template(template: str) -> Any:
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """A tag that marks answers for training; ignored."""

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
