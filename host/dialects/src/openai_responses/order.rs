//! One block at a time.
//!
//! An answer's blocks may be open at once, as with calls in parallel. Of this dialect's items each ends before the next
//! begins, and clients take them in that order, so that what is said of a later block waits.

use std::collections::VecDeque;

use weir_sandbox::adapter::bindings::chat::Event;

/// The events that wait for the block before them to end.
#[derive(Debug, Clone, Default)]
pub(super) struct Order {
    /// The block whose events pass.
    open: Option<u32>,
    waiting: VecDeque<Waiting>,
}

/// A block behind the open one.
#[derive(Debug, Clone)]
struct Waiting {
    /// Nothing for what is whole in one event.
    open: Option<u32>,
    events: Vec<Event>,
}

impl Order {
    /// Whether it is an event's turn. One whose turn it is not waits, unless it names no block that has begun.
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

    /// The events of the next block in line, once none is open. To be asked until there are none.
    pub(super) fn next(&mut self) -> Option<Vec<Event>> {
        if self.open.is_some() {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.open = next.open;
        Some(next.events)
    }

    /// Whether something begins now, since nothing is open. Then nothing waits, either.
    fn begins(&mut self, open: Option<u32>, event: &Event) -> bool {
        if self.open.is_none() {
            self.open = open;
            return true;
        }
        self.waiting.push_back(Waiting {
            open,
            events: vec![event.clone()],
        });
        false
    }
}
