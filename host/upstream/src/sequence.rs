//! The check that an adapter's events form a valid response.
//!
//! The check happens here once, so that no dialect has to repeat it.

use weir_sandbox::adapter::bindings::chat::{
    Block, BlockStart, Citation, Event, FinishReason, Fragment, Media, Usage,
};

use crate::usage::ReceivedBytes;

/// The maximum bytes of events for each token of the output limit, [`EVENT_BYTES`] for each event included; a streamed
/// token of four bytes takes 20, and 40 with usage.
const BYTES_PER_TOKEN: u64 = 48;

/// The free bytes of any response, for any limit.
const BYTES_FREE: u64 = 64 << 10;

/// The bytes of an event besides its content: a fragment of one byte becomes a line of JSON.
const EVENT_BYTES: u64 = 16;

/// The maximum bytes of images in a response.
const IMAGE_BYTES: u64 = 64 << 20;

/// The maximum bytes of log probabilities in a response: 20 alternatives for each of 30,000 tokens. They occur only on
/// request.
const LOGPROB_BYTES: u64 = 64 << 20;

/// The maximum open blocks, mostly parallel tool calls.
const OPEN_BLOCKS: usize = 256;

/// The state of a response's events.
#[derive(Debug)]
pub struct Sequence {
    /// Whether any event except image bytes has come.
    begun: bool,
    /// The number of blocks so far, and thereby the next index.
    blocks: u32,
    open: Vec<(u32, BlockKind)>,
    finish: Option<FinishReason>,
    is_cut: bool,
    usage: Option<Usage>,
    received_bytes: u64,
    visible_bytes: u64,
    /// The bytes of text or refusals.
    spoken_bytes: u64,
    any_output: bool,
    /// Whether the client gets pieces of a recording as they arrive.
    streams_media: bool,
    bytes_left: u64,
    image_bytes_left: u64,
    logprob_bytes_left: u64,
    /// The ids of image bytes whose image event is missing so far.
    pieces: Vec<u32>,
    media: u32,
    images: u32,
}

/// The kind of a block's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    /// Text or a refusal.
    Spoken,
    Reasoning,
    ToolCall,
}

/// An event out of order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutOfOrder(&'static str);

impl OutOfOrder {
    /// More data than the output limit explains.
    pub const TOO_MUCH: Self = Self("more than the output limit allows");

    /// A response without the image or the recording that the client requested.
    pub const NO_MEDIA: Self = Self("no image or recording, although the client requested one");
}

impl Sequence {
    /// Returns the state of a response with at most this many tokens. The limit bounds a guest's output, even if the
    /// guest invents it, because a plain response is collected in memory.
    pub fn new(output_limit: u32) -> Self {
        Self {
            begun: false,
            blocks: 0,
            open: Vec::new(),
            finish: None,
            is_cut: false,
            usage: None,
            received_bytes: 0,
            visible_bytes: 0,
            spoken_bytes: 0,
            any_output: false,
            streams_media: false,
            bytes_left: BYTES_FREE + BYTES_PER_TOKEN * u64::from(output_limit),
            image_bytes_left: IMAGE_BYTES,
            logprob_bytes_left: LOGPROB_BYTES,
            pieces: Vec::new(),
            media: 0,
            images: 0,
        }
    }

    /// Counts pieces of a recording as output, if the client gets them as they arrive.
    #[must_use]
    pub fn with_streamed_media(self, streams_media: bool) -> Self {
        Self {
            streams_media,
            ..self
        }
    }

    /// Processes the next event.
    pub fn follow(&mut self, event: &Event) -> Result<(), OutOfOrder> {
        if self.finish.is_some() {
            return Err(OutOfOrder("an event after the finish"));
        }
        // Image pieces can be small, and their own byte limit bounds them.
        if !matches!(event, Event::MediaBytes(_)) {
            self.bytes_left = self
                .bytes_left
                .checked_sub(EVENT_BYTES + text_bytes(event))
                .ok_or(OutOfOrder::TOO_MUCH)?;
        }
        // Image bytes may precede the start event.
        let is_first = !self.begun;
        self.begun |= !matches!(event, Event::MediaBytes(_));
        match event {
            Event::Started(_) if is_first => {}
            Event::Started(_) => return Err(OutOfOrder("a start after the first event")),
            Event::BlockStart(start) => self.begin(start)?,
            Event::Fragment(Fragment { index, text }) => {
                let kind = self.kind_of(*index)?;
                self.receive(text);
                self.visible_bytes += text.len() as u64;
                if kind == BlockKind::Spoken {
                    self.spoken_bytes += text.len() as u64;
                }
            }
            Event::Signature(Fragment { index, .. }) => {
                self.kind_of(*index)?;
            }
            Event::Sealed(Fragment { index, .. }) => {
                if self.kind_of(*index)? != BlockKind::Reasoning {
                    return Err(OutOfOrder("a sealed form without reasoning"));
                }
            }
            Event::Citation(Citation { index, .. }) => {
                if self.kind_of(*index)? != BlockKind::Spoken {
                    return Err(OutOfOrder("a citation outside a text block"));
                }
            }
            Event::Logprobs(Fragment { index, text }) => {
                if self.kind_of(*index)? != BlockKind::Spoken {
                    return Err(OutOfOrder("log probabilities outside a text block"));
                }
                let left = self.logprob_bytes_left.checked_sub(text.len() as u64);
                self.logprob_bytes_left = left.ok_or(OutOfOrder::TOO_MUCH)?;
            }
            Event::BlockEnd(index) => {
                self.kind_of(*index)?;
                self.open.retain(|(open, _)| open != index);
            }
            Event::Opaque(opaque) => {
                self.number(opaque.index)?;
                self.receive(&opaque.block.json);
            }
            Event::MediaBytes(piece) => {
                self.receive_image(&piece.data)?;
                self.any_output |= self.streams_media;
                if !self.pieces.contains(&piece.id) {
                    if self.pieces.len() == OPEN_BLOCKS {
                        return Err(OutOfOrder("too many images at once"));
                    }
                    self.pieces.push(piece.id);
                }
            }
            Event::Media(media) => self.complete(media)?,
            Event::Usage(usage) => self.usage = Some(usage.clone()),
            Event::Finish(_) if !self.open.is_empty() => {
                return Err(OutOfOrder("a finish before every block has ended"));
            }
            Event::Finish(reason) => self.finish = Some(reason.clone()),
        }
        Ok(())
    }

    /// Checks that the response is complete.
    pub fn end(&self) -> Result<(), OutOfOrder> {
        match self.finish {
            Some(_) => Ok(()),
            None => Err(OutOfOrder("no finish")),
        }
    }

    /// Ends the response before its upstream does: returns the closing events.
    pub fn cut(&mut self, reason: FinishReason) -> Vec<Event> {
        self.is_cut = true;
        let ends = self.open.iter().map(|(index, _)| Event::BlockEnd(*index));
        ends.chain([Event::Finish(reason)]).collect()
    }

    /// Whether a client can use the partial response: it has text, and no incomplete tool call.
    pub fn is_usable_text(&self) -> bool {
        let is_call = |(_, kind): &(u32, BlockKind)| *kind == BlockKind::ToolCall;
        self.spoken_bytes > 0 && !self.open.iter().any(is_call)
    }

    /// Whether any output that a client would see has come.
    pub fn any_output(&self) -> bool {
        self.any_output
    }

    /// The number of complete media of any type, without previews: images, recordings or data.
    pub fn media(&self) -> u32 {
        self.media
    }

    /// The number of images among them.
    pub fn images(&self) -> u32 {
        self.images
    }

    /// The last reported usage.
    pub fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }

    /// Returns the received data so far. Opaque data may be sealed or readable.
    pub fn received(&self) -> ReceivedBytes {
        ReceivedBytes {
            bytes: self.received_bytes,
            visible_bytes: self.visible_bytes,
            is_whole: self.finish.is_some() && !self.is_cut,
        }
    }

    fn complete(&mut self, media: &Media) -> Result<(), OutOfOrder> {
        self.receive_image(&media.data)?;
        let is_somewhere = match media.bytes_before {
            Some(id) => {
                let count = self.pieces.len();
                self.pieces.retain(|known| *known != id);
                self.pieces.len() < count
            }
            None => !media.data.is_empty() || media.url.is_some(),
        };
        if !is_somewhere {
            return Err(OutOfOrder("an image without its bytes"));
        }
        self.any_output = true;
        if !media.is_preview {
            let is_image = media.media_type.starts_with("image/");
            self.media = self.media.saturating_add(1);
            self.images = self.images.saturating_add(is_image.into());
        }
        Ok(())
    }

    fn receive_image(&mut self, data: &[u8]) -> Result<(), OutOfOrder> {
        let bytes = EVENT_BYTES + data.len() as u64;
        let left = self.image_bytes_left.checked_sub(bytes);
        self.image_bytes_left = left.ok_or(OutOfOrder::TOO_MUCH)?;
        Ok(())
    }

    fn begin(&mut self, start: &BlockStart) -> Result<(), OutOfOrder> {
        self.number(start.index)?;
        if self.open.len() == OPEN_BLOCKS {
            return Err(OutOfOrder("too many blocks at once"));
        }
        let kind = match &start.block {
            Block::Text | Block::Refusal => BlockKind::Spoken,
            Block::Reasoning => BlockKind::Reasoning,
            Block::ToolCall(call) => {
                self.receive(&call.name);
                BlockKind::ToolCall
            }
        };
        self.open.push((start.index, kind));
        Ok(())
    }

    fn number(&mut self, index: u32) -> Result<(), OutOfOrder> {
        if index != self.blocks {
            return Err(OutOfOrder("a block with an unexpected index"));
        }
        self.blocks += 1;
        Ok(())
    }

    fn kind_of(&self, index: u32) -> Result<BlockKind, OutOfOrder> {
        let mut open = self.open.iter().rev();
        let found = open.find(|(open, _)| *open == index);
        found
            .map(|(_, kind)| *kind)
            .ok_or(OutOfOrder("a piece of a block that is not open"))
    }

    fn receive(&mut self, text: &str) {
        self.received_bytes += text.len() as u64;
        self.any_output = true;
    }
}

fn text_bytes(event: &Event) -> u64 {
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let bytes = match event {
        Event::Fragment(piece) | Event::Signature(piece) | Event::Sealed(piece) => piece.text.len(),
        Event::Started(started) => optional(&started.id) + optional(&started.model),
        Event::BlockStart(start) => match &start.block {
            Block::ToolCall(call) => call.id.len() + call.name.len(),
            Block::Text | Block::Refusal | Block::Reasoning => 0,
        },
        Event::Citation(citation) => [
            &citation.source,
            &citation.title,
            &citation.cited_text,
            &citation.json,
        ]
        .into_iter()
        .map(optional)
        .sum(),
        Event::Opaque(opaque) => opaque.block.kind.len() + opaque.block.json.len(),
        Event::Media(media) => {
            media.media_type.len() + optional(&media.url) + optional(&media.revised_prompt)
        }
        Event::Usage(usage) => usage.other.iter().map(|count| 8 + count.name.len()).sum(),
        Event::Finish(FinishReason::StopSequence(text) | FinishReason::Other(text)) => text.len(),
        // Log probabilities have their own counter, because they are many times larger than their tokens.
        Event::Logprobs(_) | Event::BlockEnd(_) | Event::MediaBytes(_) | Event::Finish(_) => 0,
    };
    bytes as u64
}

#[cfg(test)]
mod tests {
    use weir_sandbox::adapter::bindings::chat::{
        CallKind, MediaBytes, Opaque, OpaqueBlock, Started, ToolCallStart,
    };

    use super::*;

    fn followed(events: &[Event]) -> Result<Sequence, OutOfOrder> {
        let mut sequence = Sequence::new(100);
        events.iter().try_for_each(|event| sequence.follow(event))?;
        sequence.end().map(|()| sequence)
    }

    fn start(index: u32, block: Block) -> Event {
        Event::BlockStart(BlockStart { index, block })
    }

    fn tool() -> Block {
        Block::ToolCall(ToolCallStart {
            id: "1".into(),
            name: "f".into(),
            kind: CallKind::Function,
        })
    }

    fn piece(index: u32, text: &str) -> Fragment {
        Fragment {
            index,
            text: text.into(),
        }
    }

    fn text(index: u32, text: &str) -> Event {
        Event::Fragment(piece(index, text))
    }

    fn end(index: u32) -> Event {
        Event::BlockEnd(index)
    }

    fn opaque(index: u32) -> Event {
        Event::Opaque(OpaqueBlock {
            index,
            block: Opaque {
                kind: "search".into(),
                json: "{}".into(),
            },
        })
    }

    fn started() -> Event {
        Event::Started(Started {
            id: Some("upstream-1".into()),
            model: None,
        })
    }

    fn citation(index: u32) -> Event {
        Event::Citation(Citation {
            index,
            source: Some("https://a.example".into()),
            title: None,
            cited_text: None,
            span: None,
            json: None,
        })
    }

    fn finish() -> Event {
        Event::Finish(FinishReason::Stop)
    }

    #[test]
    fn a_sane_answer_is_followed() {
        let sequence = followed(&[
            started(),
            start(0, Block::Reasoning),
            text(0, "hm"),
            Event::Sealed(piece(0, "sealed")),
            Event::Signature(piece(0, "proof")),
            end(0),
            opaque(1),
            start(2, Block::Text),
            text(2, "hi"),
            citation(2),
            end(2),
            start(3, tool()),
            start(4, tool()),
            text(4, "{"),
            text(3, "{}"),
            text(4, "}"),
            end(3),
            end(4),
            Event::Finish(FinishReason::ToolCalls),
        ]);
        let sequence = sequence.expect("it is sane");
        assert!(sequence.any_output());
        let ReceivedBytes {
            bytes,
            visible_bytes,
            is_whole,
        } = sequence.received();
        assert_eq!((bytes, visible_bytes, is_whole), (12, 8, true));
    }

    #[test]
    fn an_answer_is_bounded_by_its_output_limit() {
        let mut sequence = Sequence::new(100);
        let mut followed = sequence.follow(&start(0, Block::Text));
        let mut events = 0;
        while followed.is_ok() {
            followed = sequence.follow(&text(0, "tiny"));
            events += 1;
        }
        assert_eq!(followed, Err(OutOfOrder::TOO_MUCH));
        assert_eq!(events - 1, ((64 << 10) + 4_800 - 16) / 20);
        let long = "x".repeat(80_000);
        for event in [
            Event::Signature(piece(0, &long)),
            Event::Fragment(piece(0, &long)),
            Event::Finish(FinishReason::Other(long.clone())),
        ] {
            assert_eq!(Sequence::new(100).follow(&event), Err(OutOfOrder::TOO_MUCH));
        }
    }

    #[test]
    fn an_answer_that_is_cut_ends_what_is_open() {
        let mut sequence = Sequence::new(100);
        for event in [start(0, Block::Text), end(0), start(1, tool())] {
            assert_eq!(sequence.follow(&event), Ok(()));
        }
        let ends = sequence.cut(FinishReason::Length);
        assert_eq!(ends, [end(1), Event::Finish(FinishReason::Length)]);
        assert!(ends.iter().all(|event| sequence.follow(event).is_ok()));
        assert!(sequence.end().is_ok() && !sequence.received().is_whole);
    }

    #[test]
    fn text_is_usable_without_its_end_and_a_call_is_not() {
        let text_block = [start(0, Block::Text), text(0, "so far")];
        let refusal = [start(0, Block::Refusal), text(0, "I can't")];
        let call = [start(1, tool()), text(1, "{")];
        let thought = [start(0, Block::Reasoning), text(0, "hm")];
        let before_call = [&text_block[..], &[end(0)], &call].concat();
        let whole_call = [&before_call[..], &[end(1)]].concat();
        for (events, expected) in [
            (&text_block[..], true),
            (&refusal, true),
            (&whole_call, true),
            (&before_call, false),
            (&thought, false),
            (&text_block[..1], false),
            (&[], false),
        ] {
            let mut sequence = Sequence::new(100);
            assert!(events.iter().all(|event| sequence.follow(event).is_ok()));
            assert_eq!(sequence.is_usable_text(), expected, "{events:?}");
        }
    }

    fn bytes(id: u32, count: usize) -> Event {
        let data = vec![0; count];
        Event::MediaBytes(MediaBytes { id, data })
    }

    fn media(bytes_before: Option<u32>, count: usize, is_preview: bool) -> Event {
        Event::Media(Media {
            media_type: "image/png".into(),
            data: vec![0; count],
            bytes_before,
            url: None,
            revised_prompt: None,
            is_preview,
        })
    }

    #[test]
    fn images_count_when_all_of_their_bytes_have_come() {
        let preview = [bytes(3, 9), started(), media(Some(3), 0, true)];
        let mut all = preview.to_vec();
        all.extend([bytes(0, 9), bytes(1, 9), bytes(0, 9), bytes(7, 9)]);
        all.extend([media(Some(1), 0, false), media(Some(0), 1, false)]);
        all.extend([media(None, 1, false), finish()]);
        let mut vectors = media(None, 1, false);
        if let Event::Media(media) = &mut vectors {
            media.media_type = "application/json".into();
        }
        all.insert(2, vectors);
        let counts = followed(&all).map(|sequence| (sequence.images(), sequence.media()));
        assert_eq!(counts, Ok((3, 4)));
        for nowhere in [media(None, 0, false), media(Some(2), 9, false)] {
            assert!(followed(&[bytes(1, 9), nowhere, finish()]).is_err());
        }
        let twice = [
            bytes(1, 9),
            media(Some(1), 0, false),
            media(Some(1), 0, false),
        ];
        assert!(followed(&twice).is_err());
    }

    #[test]
    fn images_are_bounded_by_their_bytes_alone() {
        let mut sequence = Sequence::new(1);
        for _ in 0..63 {
            assert_eq!(sequence.follow(&bytes(0, 1 << 20)), Ok(()));
        }
        for _ in 0..10_000 {
            assert_eq!(sequence.follow(&bytes(0, 1)), Ok(()));
        }
        let too_much = sequence.follow(&bytes(0, 1 << 20));
        assert_eq!(too_much, Err(OutOfOrder::TOO_MUCH));
    }

    #[test]
    fn nonsense_is_refused() {
        for events in [
            vec![],
            vec![text(0, "x"), finish()],
            vec![start(0, Block::Text)],
            vec![start(0, Block::Text), finish()],
            vec![start(1, Block::Text), end(1), finish()],
            vec![start(0, Block::Text), start(0, Block::Text), finish()],
            vec![start(0, Block::Text), text(1, "x"), end(0), finish()],
            vec![start(0, Block::Text), end(0), text(0, "x"), finish()],
            vec![start(0, Block::Text), end(0), end(0), finish()],
            vec![
                start(0, Block::Text),
                Event::Sealed(piece(0, "x")),
                end(0),
                finish(),
            ],
            vec![start(0, tool()), citation(0), end(0), finish()],
            vec![Event::Signature(piece(0, "x")), finish()],
            vec![opaque(1), finish()],
            vec![started(), started(), finish()],
            vec![start(0, Block::Text), started(), end(0), finish()],
            vec![finish(), finish()],
            vec![finish(), start(0, Block::Text)],
        ] {
            assert!(followed(&events).is_err(), "{events:?}");
        }
        let many = (0..300).map(|index| start(index, Block::Text));
        assert!(followed(&Vec::from_iter(many)).is_err());
    }
}
