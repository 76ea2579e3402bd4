"""Keeps the code names of Acme's projects in the house: a request with one in it is refused; an answer has asterisks in
its place.

Names are those of wit/weir.wit in snake case; a variant's case is a class, an option a value or None. What a function's
result has as its error is raised as Err. The module is called filter, as the interface is: its resources are looked for
there.
"""

import json
from dataclasses import fields, is_dataclass, replace

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.filter import (
    Description,
    Refusal,
    RefusedSetting,
    Screened_Replace,
    Verdict,
)
from wit_world.imports.chat import (
    Audio,
    Block_ToolCall,
    Event_BlockEnd,
    Event_BlockStart,
    Event_Citation,
    Event_Fragment,
    Event_Logprobs,
    File,
    Fragment,
    Image,
)

WORDS = "bluebird,nightjar"


def word_list(words):
    return [word.strip() for word in words.lower().split(",") if word.strip()]


def mask(text, words, is_end):
    """A text with as many asterisks in place of each code name, and what of it may yet become one."""
    longest = max(len(word) for word in words)
    masked = ""
    at = 0
    while at < len(text):
        rest = text[at : at + longest].lower()
        word = next((word for word in words if rest.startswith(word)), None)
        if word is not None:
            masked += "*" * len(word)
            at += len(word)
        elif not is_end and any(word.startswith(rest) for word in words):
            break
        else:
            masked += text[at]
            at += 1
    return masked, text[at:]


def texts(value):
    """Every text of a request, also of kinds that this code does not know. A text that is JSON comes with the texts within
    it, in which letters may be escaped."""
    if isinstance(value, str):
        yield value
        if value.lstrip()[:1] in ('"', "[", "{"):
            try:
                yield from texts(json.loads(value))
            except ValueError:
                pass  # It is no JSON.
    elif isinstance(value, (Image, Audio, File)):
        raise Err(Refusal("has an image, a recording or a file, which the filter cannot read", None))
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from texts(inner)
    elif is_dataclass(value):
        for field in fields(value):
            yield from texts(getattr(value, field.name))


class Answer(exports.filter.Answer):
    def __init__(self, words):
        self.words = words
        self.held = {}  # Of each open block of text, what could still become a code name.

    def events(self, events):
        out = []
        for event in events:
            self.event(event, out)
        return Screened_Replace(out)

    def event(self, event, out):
        # A call's arguments are left as they are: they go to the client's own tools.
        if isinstance(event, Event_BlockStart):
            if not isinstance(event.value.block, Block_ToolCall):
                self.held[event.value.index] = ""
        elif isinstance(event, Event_Fragment) and event.value.index in self.held:
            index = event.value.index
            masked, self.held[index] = mask(self.held[index] + event.value.text, self.words, False)
            if masked:
                out.append(Event_Fragment(Fragment(index, masked)))
            return
        elif isinstance(event, Event_BlockEnd):
            masked, _ = mask(self.held.pop(event.value, ""), self.words, True)
            if masked:
                out.append(Event_Fragment(Fragment(event.value, masked)))
        # They say the text again.
        elif isinstance(event, Event_Logprobs):
            return
        elif isinstance(event, Event_Citation):
            title, cited = (
                None if text is None else mask(text, self.words, True)[0]
                for text in (event.value.title, event.value.cited_text)
            )
            event = Event_Citation(replace(event.value, title=title, cited_text=cited, json=None))
        out.append(event)

    def restart(self):
        """Nothing of what was shown has come to the client."""
        self.held.clear()


class FilterWalk(exports.FilterWalk):
    def version(self):
        """Version 1 of the walk reads all texts of a request; see wit/weir.wit."""
        return 1


class Filter(exports.Filter):
    def describe(self):
        return Description(name="acme", version="0.1.0", options=["words"])

    def configure(self, options):
        """The host refuses options of any other name."""
        words = word_list(dict(options).get("words", WORDS))
        if not words:
            raise Err(RefusedSetting("words", "must be words, with commas between them"))
        return ",".join(words).encode()

    def screen(self, request, configuration):
        words = word_list(configuration.decode())
        for text in texts(request.task):
            if mask(text, words, True)[0] != text:
                raise Err(Refusal("has a code name in it", None))
        return Verdict(change=None, upstreams=[], annotations=[], answer=Answer(words))
