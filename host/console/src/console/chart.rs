//! Charts as inline SVG. Colours come from the stylesheet, by class; a table beside each chart has the same data.

use weir_ledger::Credits;

/// The size of a chart, in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 160.0;

/// The free share of a bar's width.
const GAP: f64 = 0.25;

/// Bars side by side, such as one for each day.
pub(super) struct Bars {
    /// The chart's description for screen readers.
    pub(super) label: String,
    pub(super) bars: Vec<ChartBar>,
    /// The value of the tallest bar.
    pub(super) most: String,
    pub(super) first: String,
    pub(super) last: String,
}

/// A bar: its position and its label.
pub(super) struct ChartBar {
    pub(super) x: String,
    pub(super) y: String,
    pub(super) width: String,
    pub(super) height: String,
    pub(super) title: String,
}

pub(super) struct Point {
    pub(super) name: String,
    pub(super) credits: Credits,
    /// The value's label.
    pub(super) title: String,
}

impl Bars {
    pub(super) fn of(label: impl Into<String>, points: &[Point]) -> Self {
        let value = |point: &Point| point.credits.to_json().as_f64().unwrap_or_default();
        let most = points.iter().map(value).fold(0.0, f64::max);
        let place = WIDTH / points.len().max(1) as f64;
        let bar = |(index, point): (usize, &Point)| {
            let share = if most > 0.0 { value(point) / most } else { 0.0 };
            // Small positive values stay visible.
            let height = match share {
                share if share > 0.0 => (share * HEIGHT).max(2.0),
                _ => 0.0,
            };
            ChartBar {
                x: format!("{:.2}", (index as f64 + GAP / 2.0) * place),
                y: format!("{:.2}", HEIGHT - height),
                width: format!("{:.2}", place * (1.0 - GAP)),
                height: format!("{height:.2}"),
                title: point.title.clone(),
            }
        };
        let name = |point: Option<&Point>| point.map_or(String::new(), |point| point.name.clone());
        let dearest = points.iter().map(|point| point.credits).max();
        Self {
            label: label.into(),
            bars: points.iter().enumerate().map(bar).collect(),
            most: super::format::credits(dearest.unwrap_or(Credits::ZERO)),
            first: name(points.first()),
            last: name(points.last()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(credits: &str) -> Point {
        Point {
            name: credits.to_owned(),
            credits: Credits::parse(credits).expect("credits"),
            title: String::new(),
        }
    }

    #[test]
    fn the_dearest_is_the_tallest_and_the_cheapest_is_seen() {
        let chart = Bars::of("x", &["0", "0.000001", "50", "100"].map(point));
        let heights: Vec<_> = chart.bars.iter().map(|bar| &*bar.height).collect();
        assert_eq!(heights, ["0.00", "2.00", "80.00", "160.00"]);
        assert_eq!(
            (&*chart.first, &*chart.last, &*chart.most),
            ("0", "100", "100")
        );
        assert!(Bars::of("x", &[]).bars.is_empty());
        assert_eq!(Bars::of("x", &[point("0")]).bars[0].height, "0.00");
    }
}
