//! The numbered blocks of a response.
//!
//! A model's output comes in runs of one kind: text, reasoning or a refusal. [`Blocks`] begins a
//! block with the first piece of a run and ends it when something else begins. Other blocks, such
//! as tool calls, get their number here. The adapter that begins such a block ends it.

use crate::chat::{Block, BlockStart, Event, Fragment, Opaque, OpaqueBlock};

/// Numbers the blocks of a response, and tracks the open run.
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
    /// Adds a piece to the open run of this kind, or ends the open run and begins another. Returns the
    /// index of the piece's block.
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

    /// Ends the open run and begins a block that is no run. The caller ends the block with
    /// [`Event::BlockEnd`]. Returns the block's index.
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
