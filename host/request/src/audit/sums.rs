//! Aggregation of repeatable events, which strangers can cause at will: weir writes the first of a kind immediately,
//! and further ones within ten minutes as one row at the end. An endless attack therefore adds six rows an hour, and
//! not one a second.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::event::AuditEvent;
use super::occurrence::{EqualEvents, GatheredEvents, Occurrence, Rows};

/// Minimum time between two rows of the same kind.
const SUMMED_FOR: Duration = Duration::from_secs(10 * 60);

/// Maximum number of kinds; further users share one kind.
const KINDS: usize = 4_096;

/// Recently written kinds, and the events since.
#[derive(Default)]
pub(super) struct EventSums(HashMap<Occurrence, EventSum>);

struct EventSum {
    written_at: Instant,
    since: Option<EqualEvents>,
}

impl EventSums {
    pub(super) fn add(&mut self, gathered: GatheredEvents, now: Instant) -> Rows {
        let mut rows = self.take_due(now);
        let mut gathered: Vec<_> = gathered.into_iter().collect();
        gathered.sort_unstable_by_key(|(_, alike)| alike.order);
        for (occurrence, alike) in gathered {
            if !occurrence.event.is_repeatable() {
                rows.push((occurrence, alike));
                continue;
            }
            let occurrence = match self.0.len() >= KINDS && !self.0.contains_key(&occurrence) {
                true => occurrence.of_anybody(),
                false => occurrence,
            };
            match self.0.get_mut(&occurrence) {
                Some(EventSum { since, .. }) => {
                    let none = EqualEvents { count: 0, ..alike };
                    since.get_or_insert(none).count += alike.count;
                }
                None => {
                    let summed = EventSum {
                        written_at: now,
                        since: None,
                    };
                    self.0.insert(occurrence.clone(), summed);
                    rows.push((occurrence, alike));
                }
            }
        }
        rows
    }

    /// Takes the rows whose time is over.
    pub(super) fn take_due(&mut self, now: Instant) -> Rows {
        self.take(now, |summed| now >= summed.written_at + SUMMED_FOR)
    }

    pub(super) fn take_all(&mut self, now: Instant) -> Rows {
        self.take(now, |_| true)
    }

    /// Returns the time of the next row if no further event arrives.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let waiting = self.0.values().filter(|summed| summed.since.is_some());
        waiting.map(|summed| summed.written_at + SUMMED_FOR).min()
    }

    fn take(&mut self, now: Instant, is_due: impl Fn(&EventSum) -> bool) -> Rows {
        let mut rows = Rows::new();
        self.0.retain(|occurrence, summed| {
            if !is_due(summed) {
                return true;
            }
            if let Some(since) = summed.since.take() {
                rows.push((occurrence.clone(), since));
                summed.written_at = now;
            }
            now < summed.written_at + SUMMED_FOR
        });
        rows
    }
}

impl Occurrence {
    /// Returns the occurrence without its user.
    fn of_anybody(self) -> Self {
        match self.event {
            AuditEvent::RateLimited { scope, .. } => Self {
                event: AuditEvent::RateLimited {
                    user_id: None,
                    scope,
                },
                ..self
            },
            event => Self { event, ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_storage::clock::Millis;

    use super::*;

    fn gathered(event: AuditEvent, at: i64, count: i64) -> GatheredEvents {
        let occurrence = Occurrence { event, actor: None };
        let (order, at) = (0, Millis(at));
        GatheredEvents::from([(occurrence, EqualEvents { order, at, count })])
    }

    fn count_of(rows: &Rows) -> i64 {
        rows.iter().map(|(_, alike)| alike.count).sum()
    }

    fn limited(user: &str) -> AuditEvent {
        AuditEvent::RateLimited {
            user_id: Some(user.to_owned()),
            scope: "caller",
        }
    }

    #[test]
    fn who_goes_on_for_a_day_leaves_six_rows_an_hour_and_no_count_is_lost() {
        let (mut sums, began) = (EventSums::default(), Instant::now());
        let (mut rows, mut events) = (0, 0);
        let mut write = |written: Rows| {
            rows += written.len();
            events += count_of(&written);
        };
        const DAY: u64 = 24 * 3_600;
        for second in 0..DAY {
            let now = began + Duration::from_secs(second);
            write(sums.add(gathered(AuditEvent::LockedOut, 0, 3), now));
        }
        assert!(sums.next_due().is_some());
        write(sums.take_all(began + Duration::from_secs(DAY)));
        assert_eq!(events, 3 * DAY as i64);
        assert!((140..=146).contains(&rows), "{rows}");
    }

    #[test]
    fn what_happens_once_in_a_while_is_written_at_once() {
        let (mut sums, began) = (EventSums::default(), Instant::now());
        for times in 0..5 {
            let now = began + times * SUMMED_FOR;
            assert_eq!(sums.add(gathered(limited("alice"), 7, 2), now).len(), 1);
            assert_eq!(sums.next_due(), None);
        }
        let now = began + 5 * SUMMED_FOR;
        let other = AuditEvent::KeyCreated {
            user_id: "alice".into(),
            key_id: "key_0".into(),
        };
        for _ in 0..3 {
            assert_eq!(sums.add(gathered(other.clone(), 7, 1), now).len(), 1);
        }
        assert_eq!(sums.add(gathered(limited("alice"), 8, 1), now).len(), 1);
        assert!(sums.add(gathered(limited("alice"), 9, 4), now).is_empty());
        assert_eq!(sums.next_due(), Some(now + SUMMED_FOR));
        let due = sums.take_due(now + SUMMED_FOR);
        let due: Vec<_> = due
            .iter()
            .map(|(_, alike)| (alike.at, alike.count))
            .collect();
        assert_eq!(due, [(Millis(9), 4)]);
    }

    #[test]
    fn users_beyond_the_bound_are_summed_up_as_one() {
        let (mut sums, now) = (EventSums::default(), Instant::now());
        let mut rows = 0;
        for user in 0..3 * KINDS {
            rows += sums
                .add(gathered(limited(&user.to_string()), 0, 1), now)
                .len();
        }
        assert!(rows <= KINDS + 1 && sums.0.len() <= KINDS + 1, "{rows}");
        let rest = count_of(&sums.take_all(now));
        assert_eq!(rest + rows as i64, 3 * KINDS as i64);
    }
}
