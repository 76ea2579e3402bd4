//! Response writers for any dialect: whole, or as a stream.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use weir_sandbox::adapter::bindings::chat::{Block, BlockStart, Event};

use crate::dialect::{Dialect, StreamForm, TranscriptFormat};
use crate::head::{AnswerHead, BilledUsage, DataFault};
use crate::{
    anthropic_messages, gemini_generate, openai_chat, openai_completions, openai_embeddings,
    openai_images, openai_moderation, openai_responses, openai_speech, openai_transcription,
    rerank,
};

/// A plain response under construction.
#[derive(Debug, Clone)]
pub enum PlainResponse {
    /// In OpenAI's Chat Completions.
    OpenAiChat(openai_chat::Completion),
    /// In OpenAI's Responses.
    OpenAiResponses(openai_responses::ResponseObject),
    /// In OpenAI's Completions.
    OpenAiCompletions(openai_completions::TextCompletion),
    /// In OpenAI's Images.
    OpenAiImages(openai_images::ImagesResponse),
    /// In OpenAI's Embeddings.
    OpenAiEmbeddings(openai_embeddings::EmbeddingList),
    /// In Cohere's Rerank.
    Rerank(rerank::Ranking),
    /// In OpenAI's Moderations.
    OpenAiModeration(openai_moderation::Verdicts),
    /// In OpenAI's Transcriptions.
    OpenAiTranscription(openai_transcription::Transcript),
    /// In Anthropic's Messages.
    AnthropicMessages(anthropic_messages::MessageResponse),
    /// In Google's `generateContent`.
    GeminiGenerate(gemini_generate::GeneratedContent),
}

/// A writer of a stream.
#[derive(Debug)]
pub enum AnswerStream {
    /// In OpenAI's Chat Completions.
    OpenAiChat(openai_chat::CompletionStream),
    /// In OpenAI's Responses.
    OpenAiResponses(openai_responses::ResponseStream),
    /// In OpenAI's Completions.
    OpenAiCompletions(openai_completions::TextCompletionStream),
    /// In OpenAI's Images.
    OpenAiImages(openai_images::ImageStream),
    /// In OpenAI's Speech.
    OpenAiSpeech(openai_speech::SpeechStream),
    /// In OpenAI's Transcriptions.
    OpenAiTranscription(openai_transcription::TranscriptStream),
    /// In Anthropic's Messages.
    AnthropicMessages(anthropic_messages::MessageStream),
    /// In Google's `generateContent`.
    GeminiGenerate(gemini_generate::ContentStream),
}

impl Dialect {
    /// Starts a plain response.
    ///
    /// # Panics
    ///
    /// If the dialect has only streams.
    pub fn whole_answer(&self, head: AnswerHead) -> PlainResponse {
        match self {
            Self::OpenAiChat(_) => PlainResponse::OpenAiChat(openai_chat::Completion::new(head)),
            Self::OpenAiResponses(echo) => PlainResponse::OpenAiResponses(
                openai_responses::ResponseObject::new(head, echo.clone()),
            ),
            Self::OpenAiCompletions(_) => {
                PlainResponse::OpenAiCompletions(openai_completions::TextCompletion::new(head))
            }
            Self::OpenAiImages(_) => {
                PlainResponse::OpenAiImages(openai_images::ImagesResponse::new(&head))
            }
            Self::OpenAiEmbeddings(form) => {
                PlainResponse::OpenAiEmbeddings(openai_embeddings::EmbeddingList::new(head, *form))
            }
            Self::Rerank(form) => PlainResponse::Rerank(rerank::Ranking::new(head, form.clone())),
            Self::OpenAiModeration(inputs) => {
                PlainResponse::OpenAiModeration(openai_moderation::Verdicts::new(head, *inputs))
            }
            Self::OpenAiTranscription(form) => {
                PlainResponse::OpenAiTranscription(openai_transcription::Transcript::new(*form))
            }
            Self::OpenAiSpeech(_) => unreachable!("a recording is always a stream"),
            Self::AnthropicMessages => {
                PlainResponse::AnthropicMessages(anthropic_messages::MessageResponse::new(head))
            }
            Self::GeminiGenerate(_) => {
                PlainResponse::GeminiGenerate(gemini_generate::GeneratedContent::new(head))
            }
        }
    }

    /// Returns the keep-alive data of a silent stream; empty if it has no place for them.
    pub fn keep_alive(&self) -> Bytes {
        match self {
            Self::OpenAiSpeech(form) if !form.has_events => Bytes::new(),
            // The last three have no streams.
            Self::OpenAiChat(_)
            | Self::OpenAiCompletions(_)
            | Self::OpenAiImages(_)
            | Self::OpenAiSpeech(_)
            | Self::OpenAiTranscription(_)
            | Self::OpenAiEmbeddings(_)
            | Self::Rerank(_)
            | Self::OpenAiModeration(_) => openai_chat::KEEP_ALIVE,
            Self::OpenAiResponses(_) => openai_responses::KEEP_ALIVE,
            Self::AnthropicMessages => anthropic_messages::KEEP_ALIVE,
            Self::GeminiGenerate(StreamForm::Events) => gemini_generate::KEEP_ALIVE,
            Self::GeminiGenerate(StreamForm::List) => gemini_generate::LIST_KEEP_ALIVE,
        }
    }

    /// Returns the media type of a stream.
    pub fn stream_type(&self) -> &'static str {
        match self {
            Self::GeminiGenerate(StreamForm::List) => "application/json",
            Self::OpenAiSpeech(form) if !form.has_events => form.media_type,
            _ => "text/event-stream",
        }
    }

    /// Returns the media type of a plain response.
    pub fn plain_type(&self) -> &'static str {
        match self {
            Self::OpenAiTranscription(form) if form.format == TranscriptFormat::Text => {
                "text/plain; charset=utf-8"
            }
            _ => "application/json",
        }
    }

    /// Whether a stream passes on the pieces of a recording as they arrive.
    pub fn streams_media(&self) -> bool {
        matches!(self, Self::OpenAiSpeech(_))
    }

    /// Returns the dialect's name of a field; adapters use its name in Chat Completions.
    pub fn field<'name>(&self, name: &'name str) -> Cow<'name, str> {
        match self {
            Self::OpenAiChat(_)
            | Self::OpenAiImages(_)
            | Self::OpenAiEmbeddings(_)
            | Self::Rerank(_)
            | Self::OpenAiModeration(_)
            | Self::OpenAiSpeech(_)
            | Self::OpenAiTranscription(_)
            | Self::AnthropicMessages => name.into(),
            Self::OpenAiResponses(_) => openai_responses::field(name),
            Self::OpenAiCompletions(_) if name == "messages" => "prompt".into(),
            Self::OpenAiCompletions(_) => name.into(),
            Self::GeminiGenerate(_) => gemini_generate::field(name),
        }
    }

    /// Starts a stream.
    ///
    /// # Panics
    ///
    /// If the dialect has no streams.
    pub fn answer_stream(&self, head: AnswerHead) -> AnswerStream {
        match self {
            Self::OpenAiChat(preferences) => {
                AnswerStream::OpenAiChat(openai_chat::CompletionStream::new(&head, *preferences))
            }
            Self::OpenAiResponses(echo) => AnswerStream::OpenAiResponses(
                openai_responses::ResponseStream::new(head, echo.clone()),
            ),
            Self::OpenAiCompletions(preferences) => AnswerStream::OpenAiCompletions(
                openai_completions::TextCompletionStream::new(head, *preferences),
            ),
            Self::OpenAiImages(made) => {
                AnswerStream::OpenAiImages(openai_images::ImageStream::new(&head, *made))
            }
            Self::OpenAiEmbeddings(_) | Self::Rerank(_) | Self::OpenAiModeration(_) => {
                unreachable!("no request of these dialects asks for a stream")
            }
            Self::OpenAiSpeech(form) => {
                AnswerStream::OpenAiSpeech(openai_speech::SpeechStream::new(*form))
            }
            Self::OpenAiTranscription(_) => {
                AnswerStream::OpenAiTranscription(openai_transcription::TranscriptStream::default())
            }
            Self::AnthropicMessages => {
                AnswerStream::AnthropicMessages(anthropic_messages::MessageStream::new(head))
            }
            Self::GeminiGenerate(form) => {
                AnswerStream::GeminiGenerate(gemini_generate::ContentStream::new(head, *form))
            }
        }
    }
}

impl PlainResponse {
    /// Adds the events of one adapter call.
    pub fn push(&mut self, events: Vec<Event>) {
        let mut events = events.into_iter();
        while let Some(event) = events.next() {
            let signature = signature_of_call(&event, events.as_slice());
            match self {
                Self::OpenAiChat(completion) => {
                    completion.sign_next_call(signature);
                    completion.push(event);
                }
                Self::OpenAiResponses(response) => response.push(&event),
                Self::OpenAiCompletions(completion) => completion.push(&event),
                Self::OpenAiImages(answer) => answer.push(&event),
                Self::OpenAiEmbeddings(list) => list.push(&event),
                Self::Rerank(ranking) => ranking.push(&event),
                Self::OpenAiModeration(verdicts) => verdicts.push(&event),
                Self::OpenAiTranscription(transcript) => transcript.push(&event),
                Self::AnthropicMessages(message) => {
                    message.sign_next_call(signature);
                    message.push(&event);
                }
                Self::GeminiGenerate(content) => content.push(&event),
            }
        }
    }

    /// Sets the provider of the following events, by its name in the configuration: parts that only this provider can
    /// read, such as sealed reasoning, carry the name.
    pub fn answered_by(&mut self, provider: &str) {
        match self {
            Self::OpenAiChat(completion) => completion.answered_by(provider),
            Self::OpenAiResponses(response) => response.answered_by(provider),
            Self::OpenAiCompletions(_)
            | Self::OpenAiImages(_)
            | Self::OpenAiEmbeddings(_)
            | Self::Rerank(_)
            | Self::OpenAiModeration(_)
            | Self::OpenAiTranscription(_) => {}
            Self::AnthropicMessages(message) => message.answered_by(provider),
            Self::GeminiGenerate(content) => content.answered_by(provider),
        }
    }

    /// Discards an attempt without output.
    pub fn clear(&mut self) {
        match self {
            Self::OpenAiChat(completion) => completion.clear(),
            Self::OpenAiResponses(response) => response.clear(),
            Self::OpenAiCompletions(completion) => completion.clear(),
            Self::OpenAiImages(answer) => answer.clear(),
            Self::OpenAiEmbeddings(list) => list.clear(),
            Self::Rerank(ranking) => ranking.clear(),
            Self::OpenAiModeration(verdicts) => verdicts.clear(),
            Self::OpenAiTranscription(transcript) => transcript.clear(),
            Self::AnthropicMessages(message) => message.clear(),
            Self::GeminiGenerate(content) => content.clear(),
        }
    }

    /// Checks that a response of data is complete and valid. The order of events is enough for other responses.
    ///
    /// # Errors
    ///
    /// The fault of the upstream.
    pub fn check(&self) -> Result<(), DataFault> {
        match self {
            Self::OpenAiEmbeddings(list) => list.check(),
            Self::Rerank(ranking) => ranking.check(),
            Self::OpenAiModeration(verdicts) => verdicts.check(),
            Self::OpenAiTranscription(transcript) => transcript.check(),
            _ => Ok(()),
        }
    }

    /// Whether the upstream has sent more items than the request asked for. The body lacks them.
    pub fn has_surplus(&self) -> bool {
        match self {
            Self::OpenAiEmbeddings(list) => list.has_surplus(),
            Self::Rerank(ranking) => ranking.has_surplus(),
            Self::OpenAiModeration(verdicts) => verdicts.has_surplus(),
            _ => false,
        }
    }

    /// Returns the body of the response.
    pub fn into_body(self, billed: &BilledUsage) -> Vec<u8> {
        match self {
            Self::OpenAiChat(completion) => completion.into_body(billed),
            Self::OpenAiResponses(response) => response.into_body(billed),
            Self::OpenAiCompletions(completion) => completion.into_body(billed),
            Self::OpenAiImages(answer) => answer.into_body(billed),
            Self::OpenAiEmbeddings(list) => list.into_body(billed),
            Self::Rerank(ranking) => ranking.into_body(billed),
            Self::OpenAiModeration(verdicts) => verdicts.into_body(billed),
            Self::OpenAiTranscription(transcript) => transcript.into_body(billed),
            Self::AnthropicMessages(message) => message.into_body(billed),
            Self::GeminiGenerate(content) => content.into_body(billed),
        }
    }
}

impl AnswerStream {
    /// Sets the provider, like [`PlainResponse::answered_by`].
    pub fn answered_by(&mut self, provider: &str) {
        match self {
            Self::OpenAiChat(chunks) => chunks.answered_by(provider),
            Self::OpenAiResponses(chunks) => chunks.answered_by(provider),
            Self::OpenAiCompletions(_)
            | Self::OpenAiImages(_)
            | Self::OpenAiSpeech(_)
            | Self::OpenAiTranscription(_) => {}
            Self::AnthropicMessages(chunks) => chunks.answered_by(provider),
            Self::GeminiGenerate(chunks) => chunks.answered_by(provider),
        }
    }

    /// Appends the data of the events of one adapter call, if they have any. [`Self::finish`] writes the end after the
    /// settlement.
    pub fn events(&mut self, events: &[Event], out: &mut Vec<u8>) {
        for (at, event) in events.iter().enumerate() {
            let signature = signature_of_call(event, &events[at + 1..]);
            match self {
                Self::OpenAiChat(chunks) => {
                    chunks.sign_next_call(signature);
                    chunks.event(event, out);
                }
                Self::OpenAiResponses(chunks) => chunks.event(event, out),
                Self::OpenAiCompletions(chunks) => chunks.event(event, out),
                Self::OpenAiImages(chunks) => chunks.event(event, out),
                Self::OpenAiSpeech(chunks) => chunks.event(event, out),
                Self::OpenAiTranscription(chunks) => chunks.event(event, out),
                Self::AnthropicMessages(chunks) => {
                    chunks.sign_next_call(signature);
                    chunks.event(event, out);
                }
                Self::GeminiGenerate(chunks) => chunks.event(event, out),
            }
        }
    }

    /// Appends the end of a complete response.
    pub fn finish(&mut self, billed: &BilledUsage, out: &mut Vec<u8>) {
        match self {
            Self::OpenAiChat(chunks) => chunks.finish(billed, out),
            Self::OpenAiResponses(chunks) => chunks.finish(billed, out),
            Self::OpenAiCompletions(chunks) => chunks.finish(billed, out),
            Self::OpenAiImages(chunks) => chunks.finish(billed, out),
            Self::OpenAiSpeech(chunks) => chunks.finish(billed, out),
            Self::OpenAiTranscription(chunks) => chunks.finish(billed, out),
            Self::AnthropicMessages(chunks) => chunks.finish(billed, out),
            Self::GeminiGenerate(chunks) => chunks.finish(billed, out),
        }
    }

    /// Appends an error, as [`ErrorFormat`] write it, and ends the stream. No end marker may follow, because it would
    /// mark the response as complete. A stream without a place for errors gets nothing.
    pub fn error(&mut self, error: &Value, out: &mut Vec<u8>) {
        match self {
            Self::OpenAiChat(_)
            | Self::OpenAiCompletions(_)
            | Self::OpenAiImages(_)
            | Self::OpenAiTranscription(_) => openai_chat::CompletionStream::error(error, out),
            Self::OpenAiResponses(chunks) => chunks.error(error, out),
            Self::OpenAiSpeech(chunks) => chunks.error(error, out),
            Self::AnthropicMessages(_) => anthropic_messages::MessageStream::error(error, out),
            Self::GeminiGenerate(chunks) => chunks.error(error, out),
        }
    }
}

/// Returns the signature of a call that begins, from the events after it. Two dialects have a place for the signature
/// only at the start of the call or before it; adapters report it together with the start.
fn signature_of_call<'a>(event: &Event, next: &'a [Event]) -> Option<&'a str> {
    let Event::BlockStart(BlockStart {
        index,
        block: Block::ToolCall(_),
    }) = event
    else {
        return None;
    };
    next.iter().find_map(|event| match event {
        Event::Signature(piece) if piece.index == *index => Some(piece.text.as_str()),
        _ => None,
    })
}
