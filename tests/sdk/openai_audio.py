"""Speaks, hears and judges through OpenAI's SDK. Arguments: base_url api_key."""

import sys

import openai

base_url, api_key = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key=api_key)
text = "A weir is a low dam."

spoken = client.audio.speech.create(model="demo-speech", input=text, voice="alloy", response_format="wav")
recording = spoken.read()
assert recording.startswith(b"RIFF"), recording[:8]
with client.audio.speech.with_streaming_response.create(
    model="demo-speech", input=text, voice="alloy", response_format="wav"
) as response:
    assert response.headers["content-type"] == "audio/wav"
    assert b"".join(response.iter_bytes()) == recording

file = ("said.wav", recording)
heard = client.audio.transcriptions.create(model="demo-transcription", file=file)
assert "said.wav" in heard.text, heard
assert heard.usage.type == "duration" and heard.usage.seconds == 1, heard.usage
verbose = client.audio.transcriptions.create(
    model="demo-transcription", file=file, response_format="verbose_json", timestamp_granularities=["word", "segment"]
)
assert verbose.text == heard.text and verbose.words[0].word == "This", verbose
assert verbose.segments[0].text == heard.text
assert client.audio.transcriptions.create(model="demo-transcription", file=file, response_format="vtt").startswith("WEBVTT")
events = list(client.audio.transcriptions.create(model="demo-transcription", file=file, stream=True))
assert "".join(event.delta for event in events[:-1]) == events[-1].text == heard.text, events
assert client.audio.translations.create(model="demo-transcription", file=file).text == heard.text

# Bytes without a name.
assert client.audio.transcriptions.create(model="demo-transcription", file=recording).text

judged = client.moderations.create(model="demo-moderation", input=["fine", "unsafe"])
assert [result.flagged for result in judged.results] == [False, True], judged

for call, param in [
    (lambda: client.audio.speech.create(model="demo-speech", input="", voice="alloy"), "input"),
    (lambda: client.audio.transcriptions.create(model="demo-transcription", file=("a.mp3", b"no sound")), "file"),
    (lambda: client.moderations.create(model="demo-moderation", input=[]), "input"),
]:
    try:
        call()
        raise AssertionError("a wrong field was taken")
    except openai.BadRequestError as error:
        assert error.param == param, error

print("all as expected")
