//! Numbers, credits and times as people read them.

use std::borrow::Borrow;
use std::fmt;

use askama::FastWritable;
use weir_ledger::Credits;
use weir_storage::clock::Millis;

const MINUTE_MS: i64 = 60_000;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// A moment: exactly for machines, and as long ago, or to come, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct When {
    /// As ISO 8601 has it.
    pub(super) iso: String,
    /// As in `5 minutes ago`.
    pub(super) words: String,
}

impl When {
    pub(super) fn of(at: impl Borrow<Millis>, now: impl Borrow<Millis>) -> Self {
        let (at, now) = (*at.borrow(), *now.borrow());
        Self {
            iso: at.iso(),
            words: words(at, now),
        }
    }

    /// Of a time as the API writes it.
    pub(super) fn read(iso: &str, now: impl Borrow<Millis>) -> Self {
        match Millis::parse(iso) {
            Some(at) => Self::of(at, now),
            None => Self {
                iso: iso.to_owned(),
                words: iso.to_owned(),
            },
        }
    }
}

/// In a page: `<time datetime="2026-01-31T12:00:00Z" title="2026-01-31 12:00:00 UTC">5 minutes ago</time>`. Nothing in it needs
/// to be escaped: it is weir's own.
impl fmt::Display for When {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iso, words } = self;
        let plain = iso.replace('T', " ").replace('Z', " UTC");
        write!(
            formatter,
            "<time datetime=\"{iso}\" title=\"{plain}\">{words}</time>"
        )
    }
}

impl FastWritable for When {
    fn write_into(&self, into: &mut dyn fmt::Write, _: &dyn askama::Values) -> askama::Result<()> {
        Ok(write!(into, "{self}")?)
    }
}

impl askama::filters::HtmlSafe for When {}

fn words(at: Millis, now: Millis) -> String {
    let ms = now.0 - at.0;
    let (count, unit) = match ms.abs() {
        ..5_000 => return "now".to_owned(),
        ms @ ..MINUTE_MS => (ms / 1_000, "second"),
        ms @ ..HOUR_MS => (ms / MINUTE_MS, "minute"),
        ms @ ..DAY_MS => (ms / HOUR_MS, "hour"),
        ms if ms < 60 * DAY_MS => (ms / DAY_MS, "day"),
        _ => return day(&at.iso()),
    };
    let plural = if count == 1 { "" } else { "s" };
    match ms > 0 {
        true => format!("{count} {unit}{plural} ago"),
        false => format!("in {count} {unit}{plural}"),
    }
}

/// The day of a time as the API writes it.
pub(super) fn day(iso: &str) -> String {
    iso.split('T').next().unwrap_or_default().to_owned()
}

/// Credits with their thousands set apart, and no more decimals than tell anything: all of them below one credit, else four.
pub(super) fn credits(credits: impl fmt::Display) -> String {
    let text = credits.to_string();
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => ("−", text),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let kept = match whole {
        "0" => fraction,
        _ => fraction.get(..4).unwrap_or(fraction).trim_end_matches('0'),
    };
    let whole = set_apart(whole);
    match kept {
        "" => format!("{sign}{whole}"),
        kept => format!("{sign}{whole}.{kept}"),
    }
}

/// A count with its thousands set apart.
pub(super) fn count(count: impl fmt::Display) -> String {
    let text = count.to_string();
    match text.strip_prefix('-') {
        Some(digits) => format!("−{}", set_apart(digits)),
        None => set_apart(&text),
    }
}

/// A name of the API's in plain words.
pub(super) fn plain(name: &str) -> String {
    name.replace('_', " ")
}

/// A text as a part of an address.
pub(super) fn segment(text: &str) -> String {
    let kept = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let mut segment = String::new();
    for byte in text.bytes() {
        match kept(byte) {
            true => segment.push(char::from(byte)),
            false => segment.push_str(&format!("%{byte:02X}")),
        }
    }
    segment
}

/// The part that something is of all, in whole percent from 0 to 100.
pub(super) fn percent(part: impl Borrow<Credits>, all: impl Borrow<Credits>) -> u8 {
    let number = |credits: &Credits| credits.to_json().as_f64().unwrap_or_default();
    match number(all.borrow()) {
        all if all > 0.0 => (number(part.borrow()) / all * 100.0)
            .clamp(0.0, 100.0)
            .round() as u8,
        _ => 0,
    }
}

fn set_apart(digits: &str) -> String {
    let mut apart = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            apart.push(',');
        }
        apart.push(digit);
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Credits {
        Credits::parse(text).expect("credits")
    }

    #[test]
    fn credits_are_short_and_never_look_like_nothing() {
        for (exact, shown) in [
            ("0", "0"),
            ("0.000001", "0.000001"),
            ("0.123456", "0.123456"),
            ("12.345678", "12.3456"),
            ("1000", "1,000"),
            ("1234567.5", "1,234,567.5"),
            ("12.00001", "12"),
        ] {
            assert_eq!(credits(of(exact)), shown);
        }
        assert_eq!(credits(of("5").negated()), "−5");
        assert_eq!(count(-1_234), "−1,234");
        assert_eq!(count(999), "999");
    }

    #[test]
    fn a_part_is_from_nothing_to_all() {
        assert_eq!(percent(of("1"), of("3")), 33);
        assert_eq!(percent(of("5"), of("3")), 100);
        assert_eq!(percent(of("1").negated(), of("3")), 0);
        assert_eq!(percent(of("1"), of("0")), 0);
    }

    #[test]
    fn moments_are_told_from_now() {
        let now = Millis(1_800_000_000_000);
        for (before_ms, told) in [
            (0, "now"),
            (-1_000, "now"),
            (59_000, "59 seconds ago"),
            (60_000, "1 minute ago"),
            (2 * HOUR_MS + 1, "2 hours ago"),
            (-25 * HOUR_MS, "in 1 day"),
            (59 * DAY_MS, "59 days ago"),
            (60 * DAY_MS, "2026-11-16"),
        ] {
            assert_eq!(words(Millis(now.0 - before_ms), now), told);
        }
    }
}
