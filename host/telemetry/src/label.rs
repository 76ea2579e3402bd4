//! Texts in labels of metrics.

use std::fmt::{self, Write};

use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};

/// A label's value that comes from a configuration, such as a model's name. Backslashes, quotes and line breaks are escaped,
/// as OpenMetrics requires: `prometheus-client` writes values as they are, and one quote would make the whole scrape invalid.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LabelText(String);

impl<T: Into<String>> From<T> for LabelText {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl EncodeLabelValue for LabelText {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => encoder.write_str("\\\\")?,
                '"' => encoder.write_str("\\\"")?,
                '\n' => encoder.write_str("\\n")?,
                character => encoder.write_char(character)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::EncodeLabelSet;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::registry::Registry;

    use super::LabelText;

    #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
    struct Labels {
        name: LabelText,
    }

    #[test]
    fn quotes_backslashes_and_line_breaks_are_escaped() {
        let (mut registry, family) = (Registry::default(), Family::<Labels, Counter>::default());
        registry.register("some", "Some", family.clone());
        let name = "a\"b\\c\nd".into();
        family.get_or_create(&Labels { name }).inc();
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes everything");
        let line = text.lines().find(|line| line.starts_with("some_total"));
        assert_eq!(line, Some(r#"some_total{name="a\"b\\c\nd"} 1"#));
    }
}
