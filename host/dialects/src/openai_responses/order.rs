//! The order of blocks: one at a time.
//!
//! An upstream's blocks may be open concurrently, as in parallel calls. In this dialect, each item ends before the next
//! begins, and clients expect that order, so events of a later block wait.

use std::collections::VecDeque;

use weir_sandbox::adapter::bindings::chat::Event;

/// The events that wait for the end of the open block.
#[derive(Debug, Clone, Default)]
pub(super) struct EventOrder {
    /// The open block, whose events pass.
    open: Option<u32>,
    waiting: VecDeque<WaitingBlock>,
}

/// A waiting block.
#[derive(Debug, Clone)]
struct WaitingBlock {
    /// `None` for a block in a single event.
    open: Option<u32>,
    events: Vec<Event>,
}

impl EventOrder {
    /// Whether an event passes now. Otherwise, it waits, unless its block has not begun.
    pub(super) fn passes(&mut self, event: &Event) -> bool {
        let index = match event {
            Event::Started(_) | Event::MediaBytes(_) | Event::Usage(_) | Event::Finish(_) => {
                return true;
            }
            Event::Opaque(_) | Event::Media(_) => return self.begins(None, event),
            Event::BlockStart(start) => return self.begins(Some(start.index), event),
            Event::Fragment(piece)
            | Event::Signature(piece)
            | Event::Sealed(piece)
            | Event::Logprobs(piece) => piece.index,
            Event::Citation(citation) => citation.index,
            Event::BlockEnd(index) => *index,
        };
        if self.open == Some(index) {
            if matches!(event, Event::BlockEnd(_)) {
                self.open = None;
            }
            return true;
        }
        let mut waiting = self.waiting.iter_mut();
        if let Some(waiting) = waiting.find(|waiting| waiting.open == Some(index)) {
            waiting.events.push(event.clone());
            if matches!(event, Event::BlockEnd(_)) {
                waiting.open = None;
            }
        }
        false
    }

    /// Returns the events of the next waiting block, once no block is open. Callers repeat the call until it returns
    /// `None`.
    pub(super) fn next(&mut self) -> Option<Vec<Event>> {
        if self.open.is_some() {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.open = next.open;
        Some(next.events)
    }

    /// Whether a block begins now, because no block is open. In that case, no event is waiting, either.
    fn begins(&mut self, open: Option<u32>, event: &Event) -> bool {
        if self.open.is_none() {
            self.open = open;
            return true;
        }
        self.waiting.push_back(WaitingBlock {
            open,
            events: vec![event.clone()],
        });
        false
    }
}
