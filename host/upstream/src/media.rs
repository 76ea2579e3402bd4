//! Assembles images from pieces.
//!
//! An adapter passes on an image's bytes as they arrive, so that no image has to fit into a guest. Dialects receive
//! complete images. The sequence has checked that the pieces belong together and are not too many.

use weir_sandbox::adapter::bindings::chat::Event;

/// The received bytes of incomplete images.
#[derive(Debug, Default)]
pub struct MediaPieces(Vec<(u32, Vec<u8>)>);

impl MediaPieces {
    /// Replaces pieces by complete images in a batch of events.
    pub fn assemble(&mut self, mut events: Vec<Event>) -> Vec<Event> {
        events.retain_mut(|event| match event {
            Event::MediaBytes(piece) => {
                let data = std::mem::take(&mut piece.data);
                match self.0.iter_mut().find(|(id, _)| *id == piece.id) {
                    Some((_, known)) => known.extend_from_slice(&data),
                    None => self.0.push((piece.id, data)),
                }
                false
            }
            Event::Media(media) => {
                let before = self
                    .0
                    .iter()
                    .position(|(id, _)| Some(*id) == media.bytes_before);
                media.bytes_before = None;
                if let Some(position) = before {
                    let (_, mut data) = self.0.swap_remove(position);
                    data.append(&mut media.data);
                    media.data = data;
                }
                true
            }
            _ => true,
        });
        events
    }
}
