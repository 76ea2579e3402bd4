//! Whether an adapter's events make an answer.
//!
//! Dialects write what they are given; that the order makes sense is checked here, once, so that none of
//! them has to.

use crate::plugins::bindings::chat::{BlockKind, Event, FinishReason, Usage};

/// Bytes of events, [`EVENT_BYTES`] for each included, that a token of the output limit allows; a streamed
/// token of four bytes takes 20, and twice that where its usage comes with it.
const BYTES_PER_TOKEN: u64 = 48;

/// Bytes that any answer may have, however small its limit.
const BYTES_FREE: u64 = 64 << 10;

/// What an event counts for beside its content: written out, a fragment of one byte is a line of JSON.
const EVENT_BYTES: u64 = 16;

/// Bytes of images that an answer may hold.
const IMAGE_BYTES: u64 = 64 << 20;

/// Follows an answer's events.
#[derive(Debug)]
pub struct Sequence {
    block: Option<BlockKind>,
    /// A tool-call block has begun and does not say yet which tool it calls.
    awaits_tool: bool,
    finish: Option<FinishReason>,
    is_cut: bool,
    usage: Option<Usage>,
    received_bytes: u64,
    any_output: bool,
    bytes_left: u64,
    image_bytes_left: u64,
}

/// An event that has no place where it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutOfOrder(&'static str);

impl OutOfOrder {
    /// More than the output limit can account for.
    pub const TOO_MUCH: Self = Self("more than the output limit allows");
}

impl Sequence {
    /// For an answer of so many tokens at most. What a guest emits is bounded by that, whether or not an
    /// upstream sent it: a plain answer is collected in memory.
    pub fn new(output_limit: u32) -> Self {
        Self {
            block: None,
            awaits_tool: false,
            finish: None,
            is_cut: false,
            usage: None,
            received_bytes: 0,
            any_output: false,
            bytes_left: BYTES_FREE + BYTES_PER_TOKEN * u64::from(output_limit),
            image_bytes_left: IMAGE_BYTES,
        }
    }

    /// Takes the next event.
    pub fn follow(&mut self, event: &Event) -> Result<(), OutOfOrder> {
        if self.finish.is_some() {
            return Err(OutOfOrder("an event after the finish"));
        }
        self.bytes_left = self
            .bytes_left
            .checked_sub(EVENT_BYTES + text_bytes(event))
            .ok_or(OutOfOrder::TOO_MUCH)?;
        if self.awaits_tool && !matches!(event, Event::ToolCall(_) | Event::Usage(_)) {
            return Err(OutOfOrder("a tool call without a name"));
        }
        match event {
            Event::BlockStart(kind) => {
                self.awaits_tool = *kind == BlockKind::ToolCall;
                self.block = Some(*kind);
            }
            Event::Text(text) => self.fragment(BlockKind::Text, text)?,
            Event::Reasoning(text) | Event::RedactedReasoning(text) => {
                self.fragment(BlockKind::Reasoning, text)?;
            }
            Event::ToolCallFragment(text) => self.fragment(BlockKind::ToolCall, text)?,
            Event::ToolCall(call) => {
                if !std::mem::take(&mut self.awaits_tool) {
                    return Err(OutOfOrder("a tool's name outside a tool call"));
                }
                self.fragment(BlockKind::ToolCall, &call.name)?;
            }
            Event::Signature(_) | Event::Citation(_) => {
                if self.block.is_none() {
                    return Err(OutOfOrder("a signature or citation outside a block"));
                }
            }
            Event::Image(image) => {
                self.image_bytes_left = self
                    .image_bytes_left
                    .checked_sub(image.data.len() as u64)
                    .ok_or(OutOfOrder::TOO_MUCH)?;
                self.any_output = true;
            }
            Event::Usage(usage) => self.usage = Some(*usage),
            Event::Finish(reason) => self.finish = Some(reason.clone()),
        }
        Ok(())
    }

    /// Checks that the answer is complete.
    pub fn end(&self) -> Result<(), OutOfOrder> {
        match self.finish {
            Some(_) => Ok(()),
            None => Err(OutOfOrder("no finish")),
        }
    }

    /// The answer ends here, before its upstream has ended it.
    pub fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Whether its upstream has ended it, so that what was reported is the last word.
    pub fn is_whole(&self) -> bool {
        self.finish.is_some() && !self.is_cut
    }

    /// Whether anything came that a client would see.
    pub fn any_output(&self) -> bool {
        self.any_output
    }

    /// The last usage that was reported.
    pub fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref()
    }

    /// Bytes of text, reasoning and tool calls so far.
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    fn fragment(&mut self, kind: BlockKind, text: &str) -> Result<(), OutOfOrder> {
        if self.block != Some(kind) {
            return Err(OutOfOrder("a fragment outside a block of its kind"));
        }
        self.received_bytes += text.len() as u64;
        self.any_output = true;
        Ok(())
    }
}

fn text_bytes(event: &Event) -> u64 {
    let bytes = match event {
        Event::Text(text)
        | Event::Reasoning(text)
        | Event::RedactedReasoning(text)
        | Event::ToolCallFragment(text)
        | Event::Signature(text)
        | Event::Citation(text) => text.len(),
        Event::ToolCall(call) => call.id.len() + call.name.len(),
        Event::Image(image) => image.media_type.len(),
        Event::Finish(FinishReason::StopSequence(text)) => text.len(),
        Event::BlockStart(_) | Event::Usage(_) | Event::Finish(_) => 0,
    };
    bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::bindings::chat::ToolCallStart;

    fn followed(events: &[Event]) -> Result<Sequence, OutOfOrder> {
        let mut sequence = Sequence::new(100);
        events.iter().try_for_each(|event| sequence.follow(event))?;
        sequence.end().map(|()| sequence)
    }

    fn tool() -> Event {
        Event::ToolCall(ToolCallStart {
            id: "1".into(),
            name: "f".into(),
        })
    }

    #[test]
    fn a_sane_answer_is_followed() {
        let sequence = followed(&[
            Event::BlockStart(BlockKind::Reasoning),
            Event::Reasoning("hm".into()),
            Event::BlockStart(BlockKind::Text),
            Event::Text("hi".into()),
            Event::BlockStart(BlockKind::ToolCall),
            tool(),
            Event::ToolCallFragment("{}".into()),
            Event::Finish(FinishReason::ToolCalls),
        ]);
        assert!(sequence.is_ok_and(|s| s.any_output() && s.received_bytes() == 7));
    }

    #[test]
    fn an_answer_is_bounded_by_its_output_limit() {
        let mut sequence = Sequence::new(100);
        let mut followed = sequence.follow(&Event::BlockStart(BlockKind::Text));
        let mut events = 0;
        while followed.is_ok() {
            followed = sequence.follow(&Event::Text("tiny".into()));
            events += 1;
        }
        assert_eq!(followed, Err(OutOfOrder::TOO_MUCH));
        assert_eq!(events - 1, ((64 << 10) + 4_800 - 16) / 20);
        let mut sequence = Sequence::new(100);
        let text = "x".repeat(80_000);
        assert_eq!(
            sequence.follow(&Event::Signature(text)),
            Err(OutOfOrder::TOO_MUCH)
        );
    }

    #[test]
    fn nonsense_is_refused() {
        let text = || Event::Text("x".into());
        let start = |kind| Event::BlockStart(kind);
        let finish = || Event::Finish(FinishReason::Stop);
        for events in [
            vec![],
            vec![text(), finish()],
            vec![start(BlockKind::Text)],
            vec![start(BlockKind::Reasoning), text(), finish()],
            vec![start(BlockKind::ToolCall), finish()],
            vec![
                start(BlockKind::ToolCall),
                Event::ToolCallFragment("{".into()),
                finish(),
            ],
            vec![start(BlockKind::ToolCall), tool(), tool(), finish()],
            vec![start(BlockKind::Text), tool(), finish()],
            vec![Event::Signature("x".into()), finish()],
            vec![finish(), finish()],
            vec![finish(), start(BlockKind::Text)],
        ] {
            assert!(followed(&events).is_err(), "{events:?}");
        }
    }
}
