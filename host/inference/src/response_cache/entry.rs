//! Stored responses: their content, and its encryption.

use serde::{Deserialize, Serialize};
use weir_sandbox::adapter::bindings::chat::{Event, FinishReason};
use weir_storage::sealing::{KeyRing, Purpose};

/// A stored response: the events of its adapter, before any filter of responses.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredResponse {
    /// Milliseconds since the epoch.
    pub(super) stored_at: i64,
    /// The provider that made the response, and its name of the model.
    pub(super) provider: String,
    pub(super) model: String,
    /// The maximum tokens of the response.
    pub(super) output_limit: u32,
    /// The advisory fields that the provider did not receive, in the client's words.
    pub(super) ignored: Vec<String>,
    /// The events, the finish last.
    pub(super) events: Vec<Event>,
    /// The data of `events`, in order: as JSON, because bytes would become lists of numbers.
    #[serde(default)]
    pub(super) media: Vec<String>,
}

impl StoredResponse {
    /// Encrypts the response under its key. `None` if it did not end normally, or has more bytes than this.
    pub(super) fn seal(
        mut self,
        keys: &KeyRing,
        key: &[u8; 32],
        max_bytes: usize,
    ) -> Option<Vec<u8>> {
        let ended = matches!(
            self.events.last()?,
            Event::Finish(FinishReason::Stop | FinishReason::StopSequence(_))
        );
        if !ended {
            return None;
        }
        for event in &mut self.events {
            match event {
                Event::Media(media) => {
                    let text = String::from_utf8(std::mem::take(&mut media.data));
                    self.media.push(text.ok()?);
                }
                Event::MediaBytes(_) => return None,
                _ => {}
            }
        }
        let json = serde_json::to_vec(&self).ok()?;
        let fits = json.len() <= max_bytes;
        fits.then(|| keys.seal(Purpose::CACHED_RESPONSE, &[key], &json))
    }

    /// Decrypts the result of [`Self::seal`]. `None` for other bytes, such as those of an earlier version.
    pub(super) fn open(keys: &KeyRing, key: &[u8; 32], sealed: &[u8]) -> Option<Self> {
        let json = keys.unseal(Purpose::CACHED_RESPONSE, &[key], sealed).ok()?;
        let mut response: Self = serde_json::from_slice(&json).ok()?;
        let mut texts = std::mem::take(&mut response.media).into_iter();
        for event in &mut response.events {
            if let Event::Media(media) = event {
                media.data = texts.next()?.into_bytes();
            }
        }
        Some(response)
    }
}
