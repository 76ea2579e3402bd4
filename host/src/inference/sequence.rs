//! Whether an adapter's events make an answer.
//!
//! Dialects write what they are given; that the order makes sense is checked here, once, so that none of
//! them has to.

use crate::plugins::bindings::chat::{BlockKind, Event, FinishReason, Usage};

/// Follows an answer's events.
#[derive(Debug, Default)]
pub struct Sequence {
    block: Option<BlockKind>,
    /// A tool-call block has begun and does not say yet which tool it calls.
    awaits_tool: bool,
    finish: Option<FinishReason>,
    usage: Option<Usage>,
    received_bytes: u64,
    any_output: bool,
}

/// An event that has no place where it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OutOfOrder(&'static str);

impl Sequence {
    /// Takes the next event.
    pub fn follow(&mut self, event: &Event) -> Result<(), OutOfOrder> {
        if self.finish.is_some() {
            return Err(OutOfOrder("an event after the finish"));
        }
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
            Event::Image(_) => self.any_output = true,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugins::bindings::chat::ToolCallStart;

    fn followed(events: &[Event]) -> Result<Sequence, OutOfOrder> {
        let mut sequence = Sequence::default();
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
