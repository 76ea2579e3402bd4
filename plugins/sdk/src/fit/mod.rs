//! The fit of a chat to its provider: a request that is right in its client's dialect may break a narrower rule of the provider.
//!
//! An adapter declares the rules of its provider ([`ProviderApi::rules`](crate::response::ProviderApi::rules)), and [`fit`] changes
//! the chat before the adapter translates it: it shortens names of tools and ids of calls, puts results of parallel calls behind
//! their calls, closes schemas, and leaves out what the provider has no place for. It names that as ignored, and
//! names of tools are restored in the answer.
//!
//! To add a rule, add a field to [`Rules`] with a default that allows everything, and a step to [`fit`].

mod calls;
pub mod claude;
mod names;
mod schema;
mod turns;

use std::borrow::Cow;

pub use calls::CallIds;
pub use names::{Alphabet, FittedNames, Name, shortened};
pub use schema::ToolSchemas;

use crate::adapter::{Attachment, Failure, Request, Task};
use crate::chat::{
    ChatRequest, Content, Message, Part, ResponseFormat, Role, ToolContent, ToolKind,
};
use crate::messages::MESSAGE_MARK;
use crate::wire::Ignored;

/// The rules of a provider for chats. The default allows everything.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// The names of tools, in requests and in earlier calls.
    pub tool_name: Option<Name>,
    /// The ids of calls and of their results. Each id is used once.
    pub call_id: Option<Name>,
    /// Whether the arguments of earlier calls must be JSON objects.
    pub needs_object_arguments: bool,
    /// Whether results must follow their calls at once, one for each call.
    pub pairs_results: bool,
    /// Whether results of tools may have images and files.
    pub has_media_in_results: bool,
    /// Whether a conversation needs a message of another role than the system's.
    pub needs_prompt: bool,
    /// Whether the user must speak first.
    pub begins_with_user: bool,
    /// Whether messages may have the name of a participant.
    pub has_participants: bool,
    /// Whether the client speaks the provider's dialect, so that blocks of its earlier answers have a place.
    pub has_opaque_blocks: bool,
    /// Whether texts may be empty or white space alone.
    pub allows_blank_texts: bool,
    /// Whether a last turn of the assistant, which the model continues, may end with white space.
    pub allows_trailing_space: bool,
    /// The most stop sequences.
    pub most_stops: usize,
    /// Whether stop sequences may be white space alone.
    pub allows_blank_stops: bool,
    /// Whether the model takes a temperature and the like.
    pub takes_sampling: bool,
    /// The highest temperature.
    pub most_temperature: f64,
    /// The most marks of prefixes to cache.
    pub most_cache_marks: usize,
    /// The longest id of an end user, in bytes.
    pub most_end_user_bytes: usize,
    /// How a model is asked for some JSON object.
    pub json_mode: JsonMode,
    /// The schemas of tools.
    pub tool_schemas: ToolSchemas,
    /// The enforced schemas: of strict tools, and of the response.
    pub strict_schemas: StrictSchemas,
}

/// The mode in which a model writes some JSON object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonMode {
    /// The provider has the mode.
    Available,
    /// A message must have the word "json".
    NeedsWord,
    /// The model is told in words.
    Missing,
}

/// The subset of JSON Schema that a provider enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrictSchemas {
    /// All of it.
    Any,
    /// Each object is closed and requires all its properties; others are not enforced.
    AllRequired,
    /// Each object is closed, and some keywords are words in the description.
    Closed,
}

impl Rules {
    /// The rules of a provider that takes everything.
    pub const NONE: Self = Self {
        tool_name: None,
        call_id: None,
        needs_object_arguments: false,
        pairs_results: false,
        has_media_in_results: true,
        needs_prompt: false,
        begins_with_user: false,
        has_participants: true,
        has_opaque_blocks: true,
        allows_blank_texts: true,
        allows_trailing_space: true,
        most_stops: usize::MAX,
        allows_blank_stops: true,
        takes_sampling: true,
        most_temperature: f64::MAX,
        most_cache_marks: usize::MAX,
        most_end_user_bytes: usize::MAX,
        json_mode: JsonMode::Available,
        tool_schemas: ToolSchemas::Any,
        strict_schemas: StrictSchemas::Any,
    };
}

/// The changes of a fit.
#[derive(Debug, Default)]
pub struct Fitted {
    /// The names of tools that the provider knows under others.
    pub names: FittedNames,
    /// The ids of the client's calls so far.
    pub calls: CallIds,
    /// The names of fields that it left out.
    pub ignored: Vec<String>,
    places: Places,
}

/// The client's place of each message; `None` if all are where they were.
#[derive(Debug, Default)]
struct Places(Option<Vec<usize>>);

impl Places {
    /// Records that the messages are those from these places, in this order.
    fn reorder(&mut self, order: Vec<usize>) {
        self.0 = Some(match &self.0 {
            None => order,
            Some(before) => order.into_iter().map(|place| before[place]).collect(),
        });
    }

    /// Inserts a message, which shares its place with the next one, or with the last one.
    fn insert(&mut self, messages: &mut Vec<Message>, place: usize, message: Message) {
        let last = messages.len().saturating_sub(1);
        let mut order: Vec<_> = (0..messages.len()).collect();
        order.insert(place, place.min(last));
        if !messages.is_empty() {
            self.reorder(order);
        }
        messages.insert(place, message);
    }

    fn retain(&mut self, messages: &mut Vec<Message>, stays: impl Fn(&Message) -> bool) {
        if messages.iter().all(&stays) {
            return;
        }
        let places = messages.iter().enumerate();
        let order = places.filter(|(_, message)| stays(message));
        self.reorder(order.map(|(place, _)| place).collect());
        messages.retain(stays);
    }

    /// Returns a text with the client's places in it, such as `messages[2]`.
    fn rename(&self, text: &str) -> String {
        const WORD: &str = "messages[";
        let Some(places) = &self.0 else {
            return text.to_owned();
        };
        let mut renamed = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(WORD) {
            let digits = after.bytes().take_while(u8::is_ascii_digit).count();
            let (number, behind) = after.split_at(digits);
            let known = number
                .parse()
                .ok()
                .and_then(|place: usize| places.get(place));
            renamed += before;
            renamed += WORD;
            match known {
                Some(place) => renamed += &place.to_string(),
                None => renamed += number,
            }
            rest = behind;
        }
        renamed + rest
    }
}

impl Fitted {
    /// Gives a refusal the client's places of messages.
    #[must_use]
    pub fn rename(&self, mut failure: Failure) -> Failure {
        failure.text = self.places.rename(&failure.text);
        failure.param = failure.param.map(|param| self.places.rename(&param));
        failure
    }
}

/// Fits a request to the rules. Requests for images stay as they are.
pub fn fit(request: &mut Request, rules: &Rules) -> Fitted {
    let (mut places, mut ignored) = (Places::default(), Ignored::default());
    attachments(&mut request.attachments);
    if let Some(end_user) = &mut request.client.end_user
        && let Cow::Owned(short) = shortened(end_user, rules.most_end_user_bytes)
    {
        *end_user = short;
    }
    let Task::Chat(chat) = &mut request.task else {
        return Fitted::default();
    };
    let calls = CallIds::of(chat);
    let names = rules
        .tool_name
        .map(|rule| names::fit(chat, rule, &mut ignored))
        .unwrap_or_default();
    participants(chat, rules, &mut ignored);
    if !rules.has_opaque_blocks {
        opaque_blocks(chat, &mut places, &mut ignored);
    }
    if rules.needs_object_arguments {
        calls::make_arguments_objects(chat, &mut ignored);
    }
    if rules.pairs_results {
        calls::pair_results(chat, rules.has_media_in_results, &mut places, &mut ignored);
    }
    if let Some(rule) = rules.call_id {
        calls::fit_ids(chat, rule);
    }
    json_mode(chat, rules.json_mode, &mut places, &mut ignored);
    turns::fit(chat, rules, &mut places, &mut ignored);
    stops(chat, rules, &mut ignored);
    sampling(chat, rules, &mut ignored);
    cache_marks(chat, rules.most_cache_marks, &mut ignored);
    schema::fit(chat, rules, &mut ignored);
    Fitted {
        names,
        calls,
        ignored: ignored.into_names(),
        places,
    }
}

/// Corrects media types that clients write and no provider has.
fn attachments(attachments: &mut [Attachment]) {
    for attachment in attachments {
        if let Some(known) = known_image_type(&attachment.media_type) {
            attachment.media_type = known.to_owned();
        }
    }
}

/// Returns the registered name of an image type, for its other names.
fn known_image_type(media_type: &str) -> Option<&'static str> {
    matches!(media_type, "image/jpg" | "image/pjpeg").then_some("image/jpeg")
}

fn participants(chat: &mut ChatRequest, rules: &Rules, ignored: &mut Ignored) {
    if rules.has_participants {
        return;
    }
    for message in &mut chat.messages {
        if message.role != Role::Tool && message.name.take().is_some() {
            ignored.add("name");
        }
    }
}

/// Drops what an earlier answer has of another provider's own, such as a search and its results: their content is in the text of the
/// answer. Such blocks of the user are refused.
/// The field of a message in its mark.
const PHASE: &str = "phase";

fn opaque_blocks(chat: &mut ChatRequest, places: &mut Places, ignored: &mut Ignored) {
    let messages = chat.messages.iter_mut();
    for message in messages.filter(|message| message.role == Role::Assistant) {
        message.parts.retain(|part| match &part.content {
            Content::Opaque(opaque) => {
                if opaque.kind == MESSAGE_MARK {
                    ignored.add_if(opaque.json.contains(PHASE), PHASE);
                } else {
                    ignored.add(&opaque.kind);
                }
                false
            }
            _ => true,
        });
    }
    // A turn with nothing else has nothing to say.
    let says_something =
        |message: &Message| message.role != Role::Assistant || !message.parts.is_empty();
    places.retain(&mut chat.messages, says_something);
}

fn stops(chat: &mut ChatRequest, rules: &Rules, ignored: &mut Ignored) {
    let before = chat.stop.len();
    if !rules.allows_blank_stops {
        chat.stop.retain(|stop| !stop.trim().is_empty());
    }
    chat.stop.truncate(rules.most_stops);
    ignored.add_if(chat.stop.len() < before, "stop");
}

/// Drops the sampling parameters that the model does not take. Their defaults have no effect.
fn sampling(chat: &mut ChatRequest, rules: &Rules, ignored: &mut Ignored) {
    if !rules.takes_sampling {
        for (name, value, default) in [
            ("temperature", &mut chat.temperature, 1.0),
            ("top_p", &mut chat.top_p, 1.0),
            ("presence_penalty", &mut chat.presence_penalty, 0.0),
            ("frequency_penalty", &mut chat.frequency_penalty, 0.0),
        ] {
            let dropped = value.take();
            ignored.add_if(dropped.is_some_and(|value| value != default), name);
        }
    }
    if let Some(temperature) = &mut chat.temperature
        && *temperature > rules.most_temperature
    {
        *temperature = rules.most_temperature;
        ignored.add("temperature");
    }
}

/// The instruction for a provider whose JSON mode needs the word.
const JSON_WORD: &str = "Answer in JSON.";

/// The instruction for a provider without a JSON mode.
const JSON_OBJECT: &str = "Answer with one JSON object and nothing else.";

fn json_mode(chat: &mut ChatRequest, mode: JsonMode, places: &mut Places, ignored: &mut Ignored) {
    if !matches!(chat.response_format, ResponseFormat::Json) {
        return;
    }
    let instruction = match mode {
        JsonMode::Available => return,
        JsonMode::NeedsWord if says_json(chat) => return,
        JsonMode::NeedsWord => JSON_WORD,
        JsonMode::Missing => {
            chat.response_format = ResponseFormat::Text;
            ignored.add("response_format");
            JSON_OBJECT
        }
    };
    // Behind the system's own words, so that the prefix of the prompt stays the same.
    let own = chat.messages.iter();
    let own = own.take_while(|message| message.role == Role::System);
    let place = own.count();
    let message = text_message(Role::System, instruction);
    places.insert(&mut chat.messages, place, message);
}

/// Whether a text of the conversation has the word. Texts that stay with the host count as texts without it.
fn says_json(chat: &ChatRequest) -> bool {
    let has_word = |text: &str| {
        let mut words = text.as_bytes().windows(4);
        words.any(|word| word.eq_ignore_ascii_case(b"json"))
    };
    let mut parts = chat.messages.iter().flat_map(|message| &message.parts);
    parts.any(|part| match &part.content {
        Content::Text(text) => has_word(text),
        Content::ToolResult(result) => result.content.iter().any(|content| match content {
            ToolContent::Text(text) => has_word(text),
            _ => false,
        }),
        _ => false,
    })
}

/// Keeps the last marks of the tools, of the system prompt and of the messages: their prefixes have those of the others in them.
fn cache_marks(chat: &mut ChatRequest, most: usize, ignored: &mut Ignored) {
    let parts = |chat: &ChatRequest, is_wanted: fn(Role) -> bool| {
        let messages = chat.messages.iter();
        let parts = messages.filter(move |message| is_wanted(message.role));
        let parts = parts.flat_map(|message| &message.parts);
        parts.filter(|part| part.cache.is_some()).count()
    };
    let of_tools = chat
        .tools
        .iter()
        .filter(|tool| tool.cache.is_some())
        .count();
    let of_system = parts(chat, |role| role == Role::System);
    let of_others = parts(chat, |role| role != Role::System);
    let mut surplus = (of_tools + of_system + of_others).saturating_sub(most);
    if surplus == 0 {
        return;
    }
    ignored.add("cache_control");
    // The first marks of each place go, but for its last one.
    let mut drop_of = |count: usize, kept: usize| {
        let dropped = surplus.min(count.saturating_sub(kept));
        surplus -= dropped;
        dropped
    };
    let (tools, system) = (drop_of(of_tools, 1), drop_of(of_system, 1));
    let others = drop_of(of_others, 0);
    let marks = chat.tools.iter_mut().map(|tool| &mut tool.cache);
    marks
        .filter(|cache| cache.is_some())
        .take(tools)
        .for_each(|cache| *cache = None);
    for (is_system, dropped) in [(true, system), (false, others)] {
        let messages = chat.messages.iter_mut();
        let messages = messages.filter(|message| (message.role == Role::System) == is_system);
        let marks = messages.flat_map(|message| &mut message.parts);
        let marks = marks.map(|part| &mut part.cache);
        marks
            .filter(|cache| cache.is_some())
            .take(dropped)
            .for_each(|cache| *cache = None);
    }
}

/// Makes a message of one text.
fn text_message(role: Role, text: impl Into<String>) -> Message {
    Message {
        role,
        name: None,
        parts: vec![text_part(text)],
        extra: Vec::new(),
    }
}

fn text_part(text: impl Into<String>) -> Part {
    Part {
        content: Content::Text(text.into()),
        cache: None,
        signature: None,
        provider: None,
        extra: Vec::new(),
    }
}

/// The name of a tool for the model.
fn tool_name(kind: &mut ToolKind) -> Option<&mut String> {
    match kind {
        ToolKind::Function(function) => Some(&mut function.name),
        ToolKind::Custom(custom) => Some(&mut custom.name),
        // The provider knows these names.
        ToolKind::BuiltIn(_) => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::chat::CacheLifetime;
    use crate::testing::{chat, function, message, request};

    fn text(text: &str) -> Content {
        Content::Text(text.to_owned())
    }

    fn fitted(chat: ChatRequest, rules: Rules) -> (ChatRequest, Fitted) {
        let mut request = request(chat);
        let fitted = fit(&mut request, &rules);
        match request.task {
            Task::Chat(chat) => (chat, fitted),
            Task::Image(_) => panic!("a chat"),
        }
    }

    fn texts(chat: &ChatRequest) -> Vec<(Role, &str)> {
        let parts = chat
            .messages
            .iter()
            .flat_map(|message| message.parts.iter().map(|part| (message.role, part)));
        let texts = parts.filter_map(|(role, part)| match &part.content {
            Content::Text(text) => Some((role, text.as_str())),
            _ => None,
        });
        texts.collect()
    }

    #[test]
    fn a_provider_that_takes_everything_gets_it() {
        let mut asked = chat(" ");
        asked.stop = vec!["\n".to_owned(); 9];
        asked.temperature = Some(2.0);
        asked.tools = vec![function("a.b")];
        let (sent, fitted) = fitted(asked.clone(), Rules::NONE);
        assert_eq!(format!("{sent:?}"), format!("{asked:?}"));
        assert_eq!(fitted.ignored, [""; 0]);
    }

    #[test]
    fn the_user_speaks_first_and_says_something() {
        let rules = Rules {
            needs_prompt: true,
            begins_with_user: true,
            allows_blank_texts: false,
            allows_trailing_space: false,
            ..Rules::NONE
        };
        let mut asked = chat("");
        asked.messages = vec![
            message(Role::System, vec![text("s")]),
            message(Role::Assistant, vec![text("a")]),
            message(Role::User, vec![text(" \n")]),
            message(Role::Assistant, vec![text("b "), text("\n")]),
        ];
        let (sent, fitted) = fitted(asked.clone(), rules);
        assert_eq!(
            texts(&sent),
            [
                (Role::System, "s"),
                (Role::User, turns::CONTINUE),
                (Role::Assistant, "a"),
                (Role::Assistant, "b"),
            ]
        );
        let refused = Failure::unsupported("messages[2]: x").with_param("messages[3].y");
        let renamed = fitted.rename(refused);
        assert_eq!(renamed.text, "messages[1]: x");
        assert_eq!(renamed.param.unwrap(), "messages[3].y");
        asked.messages.truncate(1);
        assert_eq!(texts(&self::fitted(asked, rules).0), [(Role::User, "s")]);
    }

    #[test]
    fn json_is_asked_for_in_words() {
        let asked = |said: &str| ChatRequest {
            response_format: ResponseFormat::Json,
            ..chat(said)
        };
        let rules = |json_mode| Rules {
            json_mode,
            ..Rules::NONE
        };
        let (sent, fitted) = fitted(asked("a"), rules(JsonMode::NeedsWord));
        assert_eq!(texts(&sent), [(Role::System, JSON_WORD), (Role::User, "a")]);
        assert_eq!(fitted.ignored, [""; 0]);
        let (sent, _) = self::fitted(asked("as Json"), rules(JsonMode::NeedsWord));
        assert_eq!(texts(&sent), [(Role::User, "as Json")]);
        let (sent, fitted) = self::fitted(asked("a"), rules(JsonMode::Missing));
        assert!(matches!(sent.response_format, ResponseFormat::Text));
        assert_eq!(texts(&sent)[0], (Role::System, JSON_OBJECT));
        assert_eq!(fitted.ignored, ["response_format"]);
    }

    #[test]
    fn the_last_marks_stay() {
        let mut asked = chat("");
        let mark = |message: &mut Message| {
            for part in &mut message.parts {
                part.cache = Some(CacheLifetime::Short);
            }
        };
        asked.messages = vec![
            message(Role::System, vec![text("s"), text("t")]),
            message(Role::User, vec![text("a"), text("b"), text("c")]),
        ];
        asked.messages.iter_mut().for_each(mark);
        asked.tools = vec![function("x"), function("y")];
        for tool in &mut asked.tools {
            tool.cache = Some(CacheLifetime::Short);
        }
        let rules = Rules {
            most_cache_marks: 4,
            ..Rules::NONE
        };
        let (sent, fitted) = fitted(asked, rules);
        let marks = |message: &Message| -> Vec<bool> {
            let parts = message.parts.iter();
            parts.map(|part| part.cache.is_some()).collect()
        };
        assert_eq!(marks(&sent.messages[0]), [false, true]);
        assert_eq!(marks(&sent.messages[1]), [false, true, true]);
        assert!(sent.tools[0].cache.is_none() && sent.tools[1].cache.is_some());
        assert_eq!(fitted.ignored, ["cache_control"]);
    }
}
