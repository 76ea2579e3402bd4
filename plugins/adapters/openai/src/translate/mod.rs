//! Chat Completions, Responses and Images, in and out, as plain functions from bytes to bytes.
//!
//! Options of the upstream cover the differences between servers of this dialect:
//!
//! | option | values | |
//! |---|---|---|
//! | `api` | `chat-completions` (default), `responses` | the API for chats |
//! | `completions` | `none` (default), `text`, `fim` | the API for Completions of clients: none, so that the prompt is a
//! chat; `/completions`; or Mistral's `/fim/completions` |
//! | `efforts` | words, separated by commas, or `off`; all by default | the model's efforts of reasoning: any other one
//! becomes the nearest; `off` for a model that does not reason |
//! | `sampling` | `true` (default), `false` | whether the model takes `temperature` and `top_p` |
//! | `output-limit-field` | `max_completion_tokens` (default), `max_tokens` | the server's name of the output limit |
//! | `stream-usage` | `true` (default), `false` | whether to request usage in a stream; for servers that refuse
//! `stream_options` |
//! | `reasoning-field` | `none` (default), `reasoning_content`, `reasoning`, `reasoning_details` | the field in which
//! an assistant message sends its reasoning back; the last one with its proofs, as OpenRouter does |
//! | `end-user-field` | `user` (default), `safety_identifier`, `none` | the field for the end user's id; for servers
//! that refuse unknown fields |
//! | `input-type` | `false` (default), `true` | whether the server takes `input_type` of embeddings |
//! | `dimensions-field` | `dimensions` (default), `output_dimension` | the server's name of the dimensions of embeddings |
//! | `rerank-limit-field` | `top_n` (default), `top_k` | the server's name of the number of documents in a ranking |
//! | `speech-events` | `true`, `false` (default) | whether the model speaks in events, which alone report usage |
//! | `pass-fields` | names, separated by commas | fields to pass beside those that `request` always passes |
//! | `azure-api-version` | a version such as `2024-10-21`; none by default | the version of Azure's API by deployments, whose
//! base URL is `https://RESOURCE.openai.azure.com/openai`; the model is the deployment's name |
//!
//! The base URL ends where the dialect begins: `https://api.openai.com/v1`, or `https://RESOURCE.openai.azure.com/openai/v1`.
//!
//! **Invariant:** a streamed response and a non-streamed one yield the same blocks, and each ends with exactly one
//! finish event, after all usage.
//! **Invariant:** a field that changes the response is refused by name, unless a rule of the provider leaves no place for it
//! (`fit`). Any omitted field is named as ignored.
//!
//! To send a new field to the upstream, edit `request`; to read a new field, `chat_response`; for images, both are in
//! `images`; for the Responses API, both are in `responses`; a
//! request of Completions is in `completions`; embeddings, rankings and moderation are in `retrieval`; audio is in `speech`
//! and `transcription`; to classify another error, `errors`; to add an option, `options`.

mod chat_response;
mod completions;
mod effort;
mod errors;
mod fit;
mod form;
mod images;
mod options;
mod request;
mod responses;
mod retrieval;
mod speech;
mod transcription;

use std::borrow::Cow;

use chat_response::ChatResponse;
use images::ImagesResponse;
use options::Options;
use responses::response::ResponsesApiResponse;
use speech::SpeechResponse;
use transcription::TranscriptResponse;
use weir_sdk::adapter::{
    CredentialSlot, Description, EmbeddingsRequest, Event, Failure, HarmRequest, HttpRequest,
    RankingRequest, RefusedSetting, Request, Setting, SpokenRequest, StartedExchange, Step, Task,
    TranscriptRequest,
};
use weir_sdk::fit::Rules;
use weir_sdk::long_texts;
use weir_sdk::response::{AnswerReader, ErrorResponse, ProviderApi, ResponseReader, stray_error};
use weir_sdk::sse::SseEvent;

/// The name of this dialect, here and in clients that speak it.
const DIALECT: &str = "openai-chat";

/// Prefix of each path for audio.
const AUDIO_PATHS: &str = "/audio/";

const PATH: &str = "/chat/completions";

/// One chat completion, or images.
pub type OpenAi = ResponseReader<OpenAiReader>;

#[derive(Debug)]
pub enum OpenAiReader {
    Chat(ChatResponse),
    Responses(ResponsesApiResponse),
    Images(ImagesResponse),
    Speech(SpeechResponse),
    Transcription(TranscriptResponse),
}

impl ProviderApi for OpenAiReader {
    fn describe() -> Description {
        Description {
            name: DIALECT.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            dialect: DIALECT.to_owned(),
            credential: CredentialSlot::Bearer,
            capabilities: [
                "chat",
                "images",
                "embeddings",
                "rerank",
                "moderation",
                "speech",
                "transcription",
                long_texts::CAPABILITY,
            ]
            .map(str::to_owned)
            .to_vec(),
            options: options::NAMES.map(str::to_owned).to_vec(),
            request_headers: vec!["content-type".to_owned()],
            // The headers that every adapter gets are enough.
            response_headers: Vec::new(),
            path_prefixes: [
                PATH,
                responses::PATH,
                images::PATHS,
                completions::PATH,
                completions::FIM_PATH,
                retrieval::EMBEDDINGS,
                retrieval::RERANK,
                retrieval::MODERATIONS,
                AUDIO_PATHS,
                options::DEPLOYMENTS,
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    fn configure(options: &[Setting]) -> Result<Vec<u8>, RefusedSetting> {
        Ok(Options::from_settings(options)?.to_bytes())
    }

    fn rules(request: &Request, configuration: &[u8]) -> Rules {
        // The adapter's own configuration is readable.
        let options = Options::from_bytes(configuration).unwrap_or_default();
        fit::rules(&request.client.dialect, &options)
    }

    fn begin(request: Request, configuration: &[u8]) -> Result<StartedExchange<OpenAi>, Failure> {
        let options = Options::from_bytes(configuration)?;
        let chat = match &request.task {
            Task::Chat(chat) => chat,
            Task::Image(image) => return images::begin(image, &request, &options),
        };
        if let Some(api) = options.completions
            && request.client.dialect == completions::DIALECT
        {
            let upstream_request = completions::write(chat, &request, &options, api)?;
            return Ok(StartedExchange {
                exchange: ResponseReader::new(
                    chat.stream,
                    OpenAiReader::Chat(ChatResponse::default()),
                ),
                step: Step::Send(HttpRequest::post_json(
                    options.path(api.path(), &chat.model),
                    upstream_request.body,
                )),
                ignored: upstream_request.ignored,
            });
        }
        if options.uses_responses {
            let (body, ignored) = responses::request::write(chat, &request, &options)?;
            let client_speaks_it = request.client.dialect == responses::DIALECT;
            let reader = OpenAiReader::Responses(ResponsesApiResponse::new(client_speaks_it));
            return Ok(StartedExchange {
                exchange: ResponseReader::new(chat.stream, reader),
                step: Step::Send(HttpRequest::post_json(
                    options.path(responses::PATH, &chat.model),
                    body,
                )),
                ignored,
            });
        }
        let upstream_request = request::write(chat, &request, &options)?;
        Ok(StartedExchange {
            exchange: ResponseReader::new(
                chat.stream,
                OpenAiReader::Chat(ChatResponse::new(request::requests_logprobs(chat))),
            ),
            step: Step::Send(HttpRequest::post_json(
                options.path(PATH, &chat.model),
                upstream_request.body,
            )),
            ignored: upstream_request.ignored,
        })
    }

    fn begin_embeddings(
        request: EmbeddingsRequest,
        configuration: &[u8],
    ) -> Result<StartedExchange<OpenAi>, Failure> {
        retrieval::embeddings(&request, &Options::from_bytes(configuration)?)
    }

    fn begin_rerank(
        request: RankingRequest,
        configuration: &[u8],
    ) -> Result<StartedExchange<OpenAi>, Failure> {
        retrieval::rerank(&request, &Options::from_bytes(configuration)?)
    }

    fn begin_moderation(
        request: HarmRequest,
        configuration: &[u8],
    ) -> Result<StartedExchange<OpenAi>, Failure> {
        retrieval::moderation(&request, &Options::from_bytes(configuration)?)
    }

    fn begin_speech(
        request: SpokenRequest,
        configuration: &[u8],
    ) -> Result<StartedExchange<OpenAi>, Failure> {
        speech::begin(&request, &Options::from_bytes(configuration)?)
    }

    fn begin_transcription(
        request: TranscriptRequest,
        configuration: &[u8],
    ) -> Result<StartedExchange<OpenAi>, Failure> {
        transcription::begin(&request, &Options::from_bytes(configuration)?)
    }
}

impl AnswerReader for OpenAiReader {
    fn is_raw(&self) -> bool {
        matches!(self, Self::Speech(speech_response) if speech_response.is_raw())
    }

    fn lift<'a>(
        &mut self,
        bytes: &'a [u8],
        events: &mut Vec<Event>,
    ) -> (Cow<'a, [u8]>, Result<(), Failure>) {
        match self {
            Self::Chat(_) | Self::Responses(_) | Self::Transcription(_) => {
                (Cow::Borrowed(bytes), Ok(()))
            }
            Self::Images(images) => images.lift(bytes, events),
            Self::Speech(speech_response) => speech_response.lift(bytes, events),
        }
    }

    fn read_event(&mut self, event: SseEvent<'_>, events: &mut Vec<Event>) -> Result<(), Failure> {
        match self {
            Self::Chat(response) => response.read_event(event, events),
            Self::Responses(response) => response.read_event(event, events),
            Self::Images(images) => images.read_event(event, events),
            Self::Speech(speech_response) => speech_response.read_event(event, events),
            Self::Transcription(transcript) => transcript.read_event(event, events),
        }
    }

    fn read_whole(&mut self, body: &[u8], events: &mut Vec<Event>) -> Result<(), Failure> {
        match self {
            Self::Chat(response) => response.read_whole(body, events),
            Self::Responses(response) => response.read_whole(body, events),
            Self::Images(images) => images.read_whole(body, events),
            Self::Speech(speech_response) => speech_response.read_whole(body),
            Self::Transcription(transcript) => transcript.read_whole(body, events),
        }
    }

    fn conclude(&mut self, events: &mut Vec<Event>) -> Result<(), Failure> {
        match self {
            Self::Chat(response) => response.conclude(events),
            Self::Responses(response) => response.conclude(events),
            Self::Images(images) => images.conclude(events),
            Self::Speech(speech_response) => speech_response.conclude(events),
            Self::Transcription(transcript) => transcript.conclude(events),
        }
    }

    fn failure_of_response(refused: &ErrorResponse) -> Failure {
        errors::from_response(refused)
    }

    fn failure_behind_stream(stray: &str) -> Option<Failure> {
        stray_error(stray).map(errors::from_error)
    }
}
