"""Looks customers up in Acme's CRM.

Names are those of wit/weir.wit in snake case; a variant's case is a class, an option a value or None. What a function's
result has as its error is raised as Err.
"""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.tool import Description, Failure_Failed
from wit_world.imports import outbound
from wit_world.imports.outbound import Method, Request

SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "integer", "minimum": 1}},
    "required": ["number"],
}


class Tool(exports.Tool):
    def describe(self):
        return Description(
            name="acme",
            version="0.1.0",
            description="Looks a customer up by number.",
            input_schema=json.dumps(SCHEMA),
        )

    def call(self, arguments, context):
        """The host has held the arguments to the schema."""
        number = json.loads(arguments)["number"]
        request = Request(
            method=Method.GET,
            url=f"https://crm.example.com/v2/customers/{number}",
            headers=[],
            body=None,
            # By its name, which the operator gave it: the host adds it.
            credential="acme" if "acme" in context.credentials else None,
        )
        try:
            answer = outbound.fetch(request)
        except Err as error:
            raise Err(Failure_Failed(f"not reached: {error.value}"))
        text = answer.body.decode("utf-8", "replace")
        if answer.status != 200:
            raise Err(Failure_Failed(f"HTTP {answer.status}: {text}"))
        return text
