//! The first difference between two texts.

/// Characters of a line that a difference shows, and how many of them come before the difference.
const SHOWN: usize = 200;
const SHOWN_BEFORE: usize = 40;

/// Describes the first line that differs, from a little before the difference.
pub(super) fn difference(expected: &str, found: &str) -> Option<String> {
    if expected == found {
        return None;
    }
    let (mut expected, mut found) = (expected.lines(), found.lines());
    for number in 1.. {
        match (expected.next(), found.next()) {
            (None, None) => break,
            (expected, found) if expected == found => {}
            (expected, found) => {
                let same = match (expected, found) {
                    (Some(expected), Some(found)) => {
                        let pairs = expected.chars().zip(found.chars());
                        pairs
                            .take_while(|(expected, found)| expected == found)
                            .count()
                    }
                    _ => 0,
                };
                let (expected, found) = (part(expected, same), part(found, same));
                return Some(format!("line {number} is {found} instead of {expected}"));
            }
        }
    }
    Some("the line ends differ".to_owned())
}

/// Returns the part of a line from a little before the end of its first `same` characters.
fn part(line: Option<&str>, same: usize) -> String {
    let Some(line) = line else {
        return "none".to_owned();
    };
    let from = same.saturating_sub(SHOWN_BEFORE);
    let mut rest = line.chars().skip(from);
    let shown: String = rest.by_ref().take(SHOWN).collect();
    let before = if from > 0 { "…" } else { "" };
    let behind = if rest.next().is_some() { "…" } else { "" };
    format!("{before}{shown}{behind}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_far_into_a_long_line_is_shown() {
        let line =
            |limit: u32| format!("{{\"send\":\"{}\",\"limit\":{limit}}}\n", "x".repeat(1_000));
        let shown = difference(&line(5), &line(6)).expect("they differ");
        assert!(shown.starts_with("line 1 is …xxx"), "{shown}");
        assert!(
            shown.contains("\"limit\":6} instead of …") && shown.ends_with("\"limit\":5}"),
            "{shown}"
        );
        assert!(shown.len() < 200, "{shown}");
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(
            difference("a\nb", "a").as_deref(),
            Some("line 2 is none instead of b")
        );
        assert_eq!(
            difference("a", "a\n").as_deref(),
            Some("the line ends differ")
        );
    }
}
