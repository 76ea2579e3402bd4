"""Runs twenty turns of tools through LangGraph. Arguments: origin api_key model, `chat`, `responses` or `messages`."""

import sys

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

origin, api_key, name, kind = sys.argv[1:]


@tool
def look(at: int = 0) -> str:
    """Looks."""
    return "seen"


def through():
    """A model of LangChain's that asks weir."""
    if kind == "messages":
        return ChatAnthropic(model=name, base_url=origin, api_key=api_key, max_retries=0, max_tokens=2048)
    return ChatOpenAI(
        model=name, base_url=f"{origin}/v1", api_key=api_key, max_retries=0, use_responses_api=kind == "responses"
    )


model = through().bind_tools([look])
graph = StateGraph(MessagesState)
graph.add_node("model", lambda state: {"messages": [model.invoke([SystemMessage("Be brief."), *state["messages"]])]})
graph.add_node("tools", ToolNode([look]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition, ["tools", END])
graph.add_edge("tools", "model")
done = graph.compile().invoke({"messages": [("user", "Look around.")]}, {"recursion_limit": 100})
messages = done["messages"]
results = [message for message in messages if isinstance(message, ToolMessage)]
assert isinstance(messages[-1], AIMessage) and messages[-1].text == "Hello there", messages[-1]
assert len(results) == 40 and all(result.content == "seen" for result in results), len(results)
print(kind, "all as expected")
