"""Translates for Acme's text API: POST /generate with a prompt, and server-sent events back:
{"text":"Hel"} for each piece, and {"end":"done","in":3,"out":2} at the end.

Names are those of wit/weir.wit in snake case; a variant's case is a class, an option a value or None. What a function's
result has as its error is raised as Err. The module is called adapter, as the interface is: its resources are looked for
there.
"""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.adapter import (
    Begun,
    BodyPart_Bytes,
    CredentialSlot_Header,
    Description,
    Failure,
    FailureKind,
    HttpRequest,
    Progress,
    RefusedSetting,
    Step_Done,
    Step_Send,
    Task_Chat,
)
from wit_world.imports.chat import (
    Block_Text,
    BlockStart,
    Content_Text,
    Event_BlockEnd,
    Event_BlockStart,
    Event_Finish,
    Event_Fragment,
    Event_Usage,
    FinishReason_Length,
    FinishReason_Other,
    FinishReason_Stop,
    Fragment,
    ResponseFormat_Text,
    Role,
    Usage,
)

ADVISORY = ["user", "metadata", "prompt_cache_key", "safety_identifier", "service_tier"]
MAX_ERROR_BYTES = 64 * 1024
SPEAKERS = {
    Role.SYSTEM: "Instructions",
    Role.USER: "Question",
    Role.ASSISTANT: "Answer",
    Role.TOOL: "Answer",
}


def failure(kind, text, param=None, retry_after_ms=None):
    return Failure(kind, text, param, retry_after_ms, None, None)


def unsupported(what):
    """What cannot be said upstream is refused by its name, and never dropped."""
    return Err(failure(FailureKind.UNSUPPORTED, what, param=what))


def from_status(head, body):
    """The failure that a status stands for."""
    if head.status in (401, 403):
        kind = FailureKind.UNAUTHORIZED
    elif head.status == 404:
        kind = FailureKind.MODEL_NOT_FOUND
    elif head.status == 429:
        kind = FailureKind.RATE_LIMITED
    elif 400 <= head.status < 500:
        kind = FailureKind.REJECTED
    elif head.status >= 500:
        kind = FailureKind.UNAVAILABLE
    else:
        kind = FailureKind.MALFORMED
    seconds = dict(head.headers).get("retry-after", "")
    retry_after_ms = min(int(seconds) * 1000, 3_600_000) if seconds.isdecimal() else None
    text = body.decode("utf-8", "replace")[:1000] or f"status {head.status}"
    return failure(kind, text, retry_after_ms=retry_after_ms)


def prompt(chat):
    fields = {
        "tools": bool(chat.tools),
        "response_format": not isinstance(chat.response_format, ResponseFormat_Text),
        "reasoning_effort": chat.reasoning.effort is not None,
        "top_p": chat.top_p is not None,
        "top_k": chat.top_k is not None,
        "presence_penalty": chat.presence_penalty is not None,
        "frequency_penalty": chat.frequency_penalty is not None,
        "seed": chat.seed is not None,
        "stop": bool(chat.stop),
    }
    for name, is_set in fields.items():
        if is_set:
            raise unsupported(name)
    for name, _ in chat.extra:
        if name not in ADVISORY:
            raise unsupported(name)
    text = ""
    for message in chat.messages:
        if message.name is not None or message.extra:
            raise unsupported("messages")
        for part in message.parts:
            if not isinstance(part.content, Content_Text) or part.extra:
                raise unsupported("messages")
            text += f"{SPEAKERS[message.role]}: {part.content.value}\n"
    return text


class Exchange(exports.adapter.Exchange):
    def __init__(self):
        self.refused = None  # A response that is no answer.
        self.kept = b""  # What is kept of its body; or what has come of a line.
        self.is_open = False  # Whether there is a text block.
        self.is_finished = False

    @classmethod
    def begin(cls, request, configuration):
        if not isinstance(request.task, Task_Chat):
            raise unsupported("image requests")
        chat = request.task.value
        body = {
            "model": chat.model,
            "prompt": prompt(chat),
            "max_tokens": chat.max_output_tokens,
            "tone": configuration.decode(),
        }
        if chat.temperature is not None:
            body["temperature"] = chat.temperature
        step = Step_Send(
            HttpRequest(
                method="POST",
                path="/generate",
                headers=[("content-type", "application/json")],
                body=[BodyPart_Bytes(json.dumps(body).encode())],
            )
        )
        # What changes nothing about the answer is left out, and named.
        ignored = [name for name, _ in chat.extra]
        if any(part.cache is not None for message in chat.messages for part in message.parts):
            ignored.append("cache_control")
        return Begun(cls(), step, ignored)

    def next(self):
        return Step_Done()

    def head(self, head):
        if head.status != 200:
            self.refused = head

    def body(self, bytes):
        """Pieces come in any size, cut anywhere. What was read before something goes wrong is not lost."""
        self.kept += bytes
        if self.refused is not None:
            self.kept = self.kept[:MAX_ERROR_BYTES]
            return Progress([], None)
        *lines, self.kept = self.kept.split(b"\n")
        events = []
        try:
            for line in lines:
                if line.startswith(b"data:"):
                    self.read(json.loads(line[5:]), events)
        except (ValueError, AttributeError) as error:
            return Progress(events, failure(FailureKind.MALFORMED, str(error)))
        return Progress(events, None)

    def read(self, chunk, events):
        if "text" in chunk:
            if not self.is_open:
                self.is_open = True
                events.append(Event_BlockStart(BlockStart(0, Block_Text())))
            events.append(Event_Fragment(Fragment(0, chunk["text"])))
        if "end" in chunk:
            if self.is_open:
                events.append(Event_BlockEnd(0))
            usage = Usage(chunk.get("in"), None, None, None, chunk.get("out"), None, None, [])
            events.append(Event_Usage(usage))
            reasons = {"done": FinishReason_Stop(), "limit": FinishReason_Length()}
            reason = reasons.get(chunk["end"], FinishReason_Other(chunk["end"]))
            events.append(Event_Finish(reason))
            self.is_finished = True

    def end(self):
        if self.refused is not None:
            return Progress([], from_status(self.refused, self.kept))
        if not self.is_finished:
            why = "the stream ended before the answer did"
            return Progress([], failure(FailureKind.MALFORMED, why))
        return Progress([], None)


class Adapter(exports.Adapter):
    def describe(self):
        return Description(
            name="acme",
            version="0.1.0",
            dialect="acme",
            credential=CredentialSlot_Header("x-acme-key"),
            capabilities=["chat"],
            options=["tone"],
            request_headers=["content-type"],
            response_headers=[],
            path_prefixes=["/generate"],
        )

    def configure(self, options):
        for name, value in options:
            if value not in ("plain", "warm"):
                raise Err(RefusedSetting(name, "must be plain or warm"))
        return dict(options).get("tone", "plain").encode()
