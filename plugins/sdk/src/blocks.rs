//! The blocks of an answer, numbered.
//!
//! What a model says comes in runs of one kind: text, reasoning or a refusal. [`Blocks`] begins a
//! block with the first piece of a run and ends it when something else begins. Other blocks, such
//! as tool calls, get their number here, and whoever began them ends them.

use crate::chat::{Block, BlockStart, Event, Fragment, Opaque, OpaqueBlock};

/// Numbers an answer's blocks, and knows which run is open.
///
/// ```
/// # use weir_sdk::blocks::Blocks;
/// # use weir_sdk::chat::{Block, Event};
/// let (mut blocks, mut events) = (Blocks::default(), Vec::new());
/// blocks.say(Block::Reasoning, "Hm.".to_owned(), &mut events);
/// blocks.say(Block::Text, "Hel".to_owned(), &mut events);
/// let index = blocks.say(Block::Text, "lo".to_owned(), &mut events);
/// blocks.end_run(&mut events);
/// assert_eq!(index, 1);
/// assert_eq!(events.len(), 3 + 4);
/// assert_eq!(events.last(), Some(&Event::BlockEnd(1)));
/// ```
#[derive(Debug, Default)]
pub struct Blocks {
    begun: u32,
    run: Option<(u32, Block)>,
}

impl Blocks {
    /// Adds a piece to the open run if it is of this kind, or else ends that and begins another.
    /// Says which block the piece is in.
    pub fn say(&mut self, block: Block, piece: String, events: &mut Vec<Event>) -> u32 {
        let index = self.run(block, events);
        events.push(Event::Fragment(Fragment { index, text: piece }));
        index
    }

    /// The open run of this kind, begun if there is none.
    pub fn run(&mut self, block: Block, events: &mut Vec<Event>) -> u32 {
        match &self.run {
            Some((index, open)) if *open == block => *index,
            _ => {
                let index = self.begin(block.clone(), events);
                self.run = Some((index, block));
                index
            }
        }
    }

    /// Ends the open run and begins a block that is none, which its beginner ends by
    /// [`Event::BlockEnd`]. Says which number it has.
    pub fn begin(&mut self, block: Block, events: &mut Vec<Event>) -> u32 {
        let index = self.number(events);
        events.push(Event::BlockStart(BlockStart { index, block }));
        index
    }

    /// Ends the open run and adds a block that begins and ends at once.
    pub fn opaque(&mut self, block: Opaque, events: &mut Vec<Event>) {
        let index = self.number(events);
        events.push(Event::Opaque(OpaqueBlock { index, block }));
    }

    /// Ends the open run, if there is one.
    pub fn end_run(&mut self, events: &mut Vec<Event>) {
        if let Some((index, _)) = self.run.take() {
            events.push(Event::BlockEnd(index));
        }
    }

    fn number(&mut self, events: &mut Vec<Event>) -> u32 {
        self.end_run(events);
        self.begun += 1;
        self.begun - 1
    }
}
