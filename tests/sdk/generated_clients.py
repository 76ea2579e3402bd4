"""Generates clients from a gateway's OpenAPI document with openapi-python-client and openapi-generator, and calls the
gateway with each.

Usage: generated_clients.py ORIGIN KEY IDENTITY ATTESTATION

`IDENTITY` and `ATTESTATION` are the tokens of a web user.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request

ORIGIN, KEY, IDENTITY, ATTESTATION = sys.argv[1:]
BIN = pathlib.Path(sys.executable).parent


def run(*command):
    ran = subprocess.run(command, capture_output=True, text=True)
    said = ran.stdout + ran.stderr
    assert ran.returncode == 0, said
    return said


def count_operations(document):
    return sum(len(item) for item in document["paths"].values())


def with_openapi_python_client(folder, document):
    # The generator does not know the types of a component and of metrics.
    config = folder / "config.json"
    config.write_text(
        json.dumps(
            {
                "package_name_override": "plain_client",
                "post_hooks": [],
                "content_type_overrides": {
                    "application/wasm": "application/octet-stream",
                    "application/openmetrics-text": "text/plain",
                },
            }
        )
    )
    said = run(
        BIN / "openapi-python-client", "generate", "--path", folder / "openapi.json", "--config", config,
        "--output-path", folder / "plain", "--fail-on-warning",
    )
    assert "WARNING" not in said, said
    modules = [file for file in (folder / "plain/plain_client/api").glob("*/*.py") if file.name != "__init__.py"]
    assert len(modules) == count_operations(document), f"{len(modules)} operations: {said}"

    sys.path.insert(0, str(folder / "plain"))
    from plain_client import AuthenticatedClient
    from plain_client.api.keys import create_api_key
    from plain_client.api.models import create_chat_completion, create_embeddings
    from plain_client.api.usage import get_usage
    from plain_client.models import ChatCompletionRequest, ChatMessage, ChatMessageRole, EmbeddingRequest, KeyRequest

    client = AuthenticatedClient(base_url=ORIGIN, token=KEY)
    message = ChatMessage(role=ChatMessageRole.USER, content="Hello")
    chat = create_chat_completion.sync(client=client, body=ChatCompletionRequest(model="demo", messages=[message]))
    assert chat.choices[0].message.content == "You said: Hello", chat
    assert chat.usage.total_tokens > 0, chat
    vectors = create_embeddings.sync(
        client=client, body=EmbeddingRequest(model="demo-embedding", input_="Hello", dimensions=3)
    )
    assert len(vectors.data[0].embedding) == 3, vectors
    usage = get_usage.sync(client=client)
    assert usage.this_month.total_requests >= 1, usage
    web = AuthenticatedClient(base_url=ORIGIN, token=IDENTITY, headers={"X-Identity-AppCheck": ATTESTATION})
    made = create_api_key.sync(client=web, body=KeyRequest(name="plain"))
    assert made.api_key.startswith("inf_"), made


def with_openapi_generator(folder, document):
    said = run(
        BIN / "openapi-generator-cli", "generate", "-i", folder / "openapi.json", "-g", "python",
        "-o", folder / "full", "--additional-properties=packageName=full_client",
    )
    assert "ERROR" not in said, said
    sys.path.insert(0, str(folder / "full"))
    import full_client as full

    apis = [getattr(full, name) for name in dir(full) if name.endswith("Api")]
    ends = ("_with_http_info", "_without_preload_content")
    names = {name for api in apis for name in vars(api) if name[0] != "_" and not name.endswith(ends)}
    assert len(names) == count_operations(document), names

    client = full.ApiClient(full.Configuration(host=ORIGIN, access_token=KEY))
    models = full.ModelsApi(client)
    message = full.ChatMessage(role="user", content=full.ChatMessageContent("Hello"))
    chat = models.create_chat_completion(full.ChatCompletionRequest(model="demo", messages=[message]))
    assert chat.choices[0].message.content == "You said: Hello", chat
    assert chat.usage.total_tokens > 0, chat
    vectors = models.create_embeddings(
        full.EmbeddingRequest(model="demo-embedding", input=full.EmbeddingRequestInput("Hello"), dimensions=3)
    )
    assert len(vectors.data[0].embedding.actual_instance) == 3, vectors
    usage = full.UsageApi(client).get_usage().actual_instance
    assert usage.this_month.total_requests >= 1, usage
    web = full.ApiClient(full.Configuration(host=ORIGIN, access_token=IDENTITY))
    web.set_default_header("X-Identity-AppCheck", ATTESTATION)
    made = full.KeysApi(web).create_api_key(full.KeyRequest(name="full"))
    assert made.api_key.startswith("inf_"), made


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    with urllib.request.urlopen(f"{ORIGIN}/openapi.json") as response:
        document = json.load(response)
    (folder / "openapi.json").write_text(json.dumps(document))
    with_openapi_python_client(folder, document)
    with_openapi_generator(folder, document)
print("all as expected")
