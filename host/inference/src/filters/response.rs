//! The filters of a response: they see the upstream's events before the client.

use std::time::Instant;

use weir_catalog::filters::OnFailure;
use weir_sandbox::adapter::bindings::chat::{Event, FinishReason};
use weir_sandbox::filter::FilterWatcher;
use weir_sandbox::filter::bindings::filter::Screened;
use weir_upstream::error::ExchangeError;
use weir_upstream::filter_rules::{FilterFault, LOOK_BEHIND_BYTES, is_shown, spoken_bytes};
use weir_upstream::sequence::Sequence;

use super::measurement::FilterMeasurement;

/// A filter of a response.
pub(super) struct Watcher {
    watch: FilterMeasurement,
    /// `None` after the filter failed and the response continues without it.
    watching: Option<FilterWatcher>,
    on_failure: OnFailure,
    body_bytes: usize,
    /// Checks the filter's output.
    sequence: Option<Sequence>,
    /// Bytes of text that the filter received since its last output.
    held_back: usize,
    has_seen: bool,
    /// Whether the response begins anew with the next events.
    is_restarted: bool,
    has_changed: bool,
    /// The response so far, if the filter gets the whole at once.
    whole: Option<CollectedResponse>,
}

impl Watcher {
    /// Returns the filter of a response to a request with a body of this size. With `whole_bytes`, it gets the whole
    /// response of at most so many bytes of text at once.
    pub(super) fn new(
        watch: FilterMeasurement,
        watching: FilterWatcher,
        on_failure: OnFailure,
        body_bytes: usize,
        whole_bytes: Option<u32>,
    ) -> Self {
        Self {
            watch,
            watching: Some(watching),
            on_failure,
            body_bytes,
            sequence: None,
            held_back: 0,
            has_seen: false,
            is_restarted: false,
            has_changed: false,
            whole: whole_bytes.map(CollectedResponse::new),
        }
    }
}

/// The filters of a response.
pub struct AnswerScreen {
    watchers: Vec<Watcher>,
    output_limit: u32,
    is_stopped: bool,
}

impl AnswerScreen {
    /// Returns the filters of a response with at most this many tokens; `None` if there are none.
    pub(super) fn of(watchers: Vec<Watcher>, output_limit: u32) -> Option<Self> {
        (!watchers.is_empty()).then_some(Self {
            watchers,
            output_limit,
            is_stopped: false,
        })
    }

    /// Whether a filter ended the response.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Passes events through the filters, and returns the client's events.
    ///
    /// # Errors
    ///
    /// [`ExchangeError::Filter`] if a required filter fails.
    pub async fn events(&mut self, mut events: Vec<Event>) -> Result<Vec<Event>, ExchangeError> {
        if self.is_stopped {
            return Ok(Vec::new());
        }
        for watcher in &mut self.watchers {
            let sequence = watcher
                .sequence
                .get_or_insert_with(|| Sequence::new(self.output_limit));
            let Some(watching) = &mut watcher.watching else {
                continue;
            };
            if let Some(whole) = &mut watcher.whole {
                match whole.add(events) {
                    Collection::Incomplete => return Ok(Vec::new()),
                    Collection::Complete(all) => events = all,
                    Collection::TooLong(all) => {
                        let slot = &watcher.watch.component.code().name;
                        tracing::warn!(
                            slot = &**slot,
                            "a response is too long for a filter that checks it whole"
                        );
                        if watcher.on_failure == OnFailure::Allow {
                            watcher.watching = None;
                            events = all;
                            continue;
                        }
                        watcher.watch.effects.stopped = true;
                        self.is_stopped = true;
                        events = sequence.cut(FinishReason::ContentFilter);
                        continue;
                    }
                }
            }
            let begun = Instant::now();
            let mut look = FilterPass {
                watching,
                sequence,
                held_back: &mut watcher.held_back,
                has_changed: &mut watcher.has_changed,
                is_whole: watcher.whole.is_some(),
                is_restarted: std::mem::take(&mut watcher.is_restarted),
                made: Vec::new(),
                is_stopped: false,
            };
            let shown = std::mem::take(&mut events);
            // Only optional filters need a copy: events that a failed filter has consumed must reach the client.
            let spare = match watcher.on_failure {
                OnFailure::Allow => shown.clone(),
                OnFailure::Refuse => Vec::new(),
            };
            watcher.has_seen = true;
            let outcome = look.show(shown).await;
            let FilterPass {
                made, is_stopped, ..
            } = look;
            watcher.watch.took += begun.elapsed();
            watcher.watch.effects.changed |= watcher.has_changed && !is_stopped;
            watcher.watch.effects.stopped |= is_stopped;
            match outcome {
                Ok(()) => events = made,
                Err(fault) => {
                    let error = watcher.watch.failed(&fault, watcher.body_bytes);
                    if watcher.on_failure == OnFailure::Refuse || watcher.has_changed {
                        return Err(error);
                    }
                    watcher.watching = None;
                    events = spare;
                }
            }
            self.is_stopped |= is_stopped;
        }
        Ok(events)
    }

    /// Checks that the filtered response is complete.
    pub fn end(&mut self) -> Result<(), ExchangeError> {
        for watcher in &mut self.watchers {
            let ended = watcher.sequence.as_ref().map_or(Ok(()), Sequence::end);
            if let (Err(error), Some(_)) = (ended, &watcher.watching) {
                return Err(watcher.watch.failed(&error.into(), watcher.body_bytes));
            }
        }
        Ok(())
    }

    /// Resets the filters for a new attempt, before the client received anything.
    pub fn restart(&mut self) {
        for watcher in &mut self.watchers {
            watcher.is_restarted = watcher.has_seen;
            watcher.sequence = None;
            watcher.held_back = 0;
            watcher.has_changed = false;
            if let Some(whole) = &mut watcher.whole {
                whole.clear();
            }
        }
    }
}

/// A response that a filter gets at once.
struct CollectedResponse {
    events: Vec<Event>,
    bytes: usize,
    max_bytes: usize,
}

/// The state of a response that is collected.
enum Collection {
    Incomplete,
    Complete(Vec<Event>),
    TooLong(Vec<Event>),
}

impl CollectedResponse {
    fn new(max_bytes: u32) -> Self {
        Self {
            events: Vec::new(),
            bytes: 0,
            max_bytes: max_bytes as usize,
        }
    }

    fn clear(&mut self) {
        self.events.clear();
        self.bytes = 0;
    }

    fn add(&mut self, events: Vec<Event>) -> Collection {
        for event in events {
            self.bytes += written_bytes(&event);
            let is_last = matches!(event, Event::Finish(_));
            match (self.events.last_mut(), event) {
                // Small pieces of a text would take many times their size.
                (Some(Event::Fragment(last)), Event::Fragment(piece))
                    if last.index == piece.index =>
                {
                    last.text.push_str(&piece.text);
                }
                (_, event) => self.events.push(event),
            }
            if is_last && self.bytes <= self.max_bytes {
                return Collection::Complete(std::mem::take(&mut self.events));
            }
        }
        match self.bytes <= self.max_bytes {
            true => Collection::Incomplete,
            false => Collection::TooLong(std::mem::take(&mut self.events)),
        }
    }
}

/// The bytes of an event that the provider wrote, without media.
fn written_bytes(event: &Event) -> usize {
    match event {
        Event::Fragment(piece)
        | Event::Signature(piece)
        | Event::Sealed(piece)
        | Event::Logprobs(piece) => piece.text.len(),
        Event::Opaque(opaque) => opaque.block.json.len(),
        _ => 0,
    }
}

/// One filter's processing of a batch of events.
struct FilterPass<'a> {
    watching: &'a mut FilterWatcher,
    sequence: &'a mut Sequence,
    held_back: &'a mut usize,
    has_changed: &'a mut bool,
    /// Whether the events are the whole response.
    is_whole: bool,
    is_restarted: bool,
    made: Vec<Event>,
    is_stopped: bool,
}

impl FilterPass<'_> {
    async fn show(&mut self, events: Vec<Event>) -> Result<(), FilterFault> {
        if self.is_restarted {
            self.watching.restart().await?;
        }
        if self.is_whole {
            return self.show_whole(events).await;
        }
        // Most batches hold events of one kind only.
        if events.iter().all(is_shown) {
            return self.show_all(events).await;
        }
        let mut run = Vec::new();
        for event in events {
            if is_shown(&event) {
                run.push(event);
                continue;
            }
            self.show_all(std::mem::take(&mut run)).await?;
            if self.is_stopped {
                return Ok(());
            }
            self.follow(vec![event])?;
        }
        self.show_all(run).await
    }

    /// Shows a whole response in one call. If the filter replaces its events, images and usage precede the finish.
    async fn show_whole(&mut self, events: Vec<Event>) -> Result<(), FilterFault> {
        let shown: Vec<_> = events.iter().filter(|one| is_shown(one)).cloned().collect();
        let bytes = shown.iter().map(spoken_bytes).sum();
        match self.watching.events(&shown, bytes).await? {
            Screened::Pass => self.follow(events),
            Screened::Replace(mut made) => {
                if !made.iter().all(is_shown) {
                    return Err(FilterFault::Forged);
                }
                let is_finish = |one: &Event| matches!(one, Event::Finish(_));
                let at = made.iter().position(is_finish).unwrap_or(made.len());
                made.splice(at..at, events.into_iter().filter(|one| !is_shown(one)));
                self.follow(made)?;
                *self.has_changed = true;
                Ok(())
            }
            Screened::Stop => self.stop(),
        }
    }

    async fn show_all(&mut self, events: Vec<Event>) -> Result<(), FilterFault> {
        if events.is_empty() {
            return Ok(());
        }
        let bytes = events.iter().map(spoken_bytes).sum();
        match self.watching.events(&events, bytes).await? {
            Screened::Pass => {
                *self.held_back = 0;
                self.follow(events)
            }
            Screened::Replace(made) => {
                if !made.iter().all(is_shown) {
                    return Err(FilterFault::Forged);
                }
                *self.held_back = match made.iter().any(|event| spoken_bytes(event) > 0) {
                    true => 0,
                    false => *self.held_back + bytes,
                };
                if *self.held_back > LOOK_BEHIND_BYTES {
                    return Err(FilterFault::HeldBack);
                }
                self.follow(made)?;
                *self.has_changed = true;
                Ok(())
            }
            Screened::Stop => self.stop(),
        }
    }

    fn stop(&mut self) -> Result<(), FilterFault> {
        *self.has_changed = true;
        self.is_stopped = true;
        let ends = self.sequence.cut(FinishReason::ContentFilter);
        self.follow(ends)
    }

    fn follow(&mut self, events: Vec<Event>) -> Result<(), FilterFault> {
        for event in &events {
            self.sequence.follow(event)?;
        }
        self.made.extend(events);
        Ok(())
    }
}
