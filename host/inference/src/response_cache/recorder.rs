//! The recorder of a response, for later requests.

use std::sync::Arc;

use weir_sandbox::adapter::bindings::chat::Event;

use super::entry::StoredResponse;
use super::store::ResponseStore;

/// The approximate bytes of a stored event besides its content.
const EVENT_BYTES: usize = 32;

/// The recorder of a response.
pub struct ResponseRecorder {
    store: Arc<ResponseStore>,
    key: [u8; 32],
    provider: String,
    model: String,
    ignored: Vec<String>,
    events: Vec<Event>,
    /// The approximate bytes of the events so far.
    bytes: usize,
}

impl ResponseRecorder {
    /// Returns the recorder of the response to a request with this key.
    pub(super) fn new(store: Arc<ResponseStore>, key: [u8; 32]) -> Self {
        Self {
            store,
            key,
            provider: String::new(),
            model: String::new(),
            ignored: Vec::new(),
            events: Vec::new(),
            bytes: 0,
        }
    }

    /// Begins an attempt on a provider, which has this name of the model.
    pub fn begin_attempt(&mut self, provider: &str, model: &str) {
        provider.clone_into(&mut self.provider);
        model.clone_into(&mut self.model);
        self.ignored.clear();
        self.events.clear();
        self.bytes = 0;
    }

    /// Sets the advisory fields that the provider does not receive.
    pub fn ignore(&mut self, names: &[String]) {
        self.ignored = names.to_vec();
    }

    /// Adds events of the adapter. A response that is too large to be stored takes no memory.
    pub fn events(&mut self, events: &[Event]) {
        for event in events {
            if self.is_too_large() {
                return;
            }
            self.bytes += content_bytes(event);
            match (self.events.last_mut(), event) {
                // Small pieces of a text would take many times their size.
                (Some(Event::Fragment(last)), Event::Fragment(piece))
                    if last.index == piece.index =>
                {
                    last.text.push_str(&piece.text);
                }
                (_, event) => {
                    self.bytes += EVENT_BYTES;
                    self.events.push(event.clone());
                }
            }
            if self.is_too_large() {
                self.events.clear();
            }
        }
    }

    /// Stores the response, which had this maximum of tokens.
    pub async fn store(self, output_limit: u32) {
        if self.is_too_large() {
            return;
        }
        let response = StoredResponse {
            stored_at: self.store.now().0,
            provider: self.provider,
            model: self.model,
            output_limit,
            ignored: self.ignored,
            events: self.events,
            media: Vec::new(),
        };
        self.store.put(&self.key, response).await;
    }

    fn is_too_large(&self) -> bool {
        self.bytes > self.store.max_bytes()
    }
}

fn content_bytes(event: &Event) -> usize {
    match event {
        Event::Fragment(piece)
        | Event::Signature(piece)
        | Event::Sealed(piece)
        | Event::Logprobs(piece) => piece.text.len(),
        Event::Opaque(opaque) => opaque.block.json.len(),
        Event::Media(media) => media.data.len(),
        Event::MediaBytes(piece) => piece.data.len(),
        Event::Citation(citation) => {
            let texts = [&citation.cited_text, &citation.json].into_iter().flatten();
            texts.map(String::len).sum()
        }
        _ => 0,
    }
}
