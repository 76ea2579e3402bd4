//! Charts over time, which a script draws with uPlot from the element's data. A table beside each chart has the same
//! figures, also without the script.

use serde_json::json;
use weir_storage::clock::Millis;

pub(super) struct Plot {
    /// The id of the chart's elements.
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    /// The data for the script.
    pub(super) data: String,
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<PlotRow>,
}

/// A row of a chart's table.
pub(super) struct PlotRow {
    pub(super) at: String,
    pub(super) cells: Vec<String>,
}

pub(super) struct PlotLine {
    pub(super) label: &'static str,
    /// Colours of the stylesheet by number: lines of one meaning have the same colour in each chart.
    pub(super) colour: u8,
    /// `None` leaves a gap.
    pub(super) values: Vec<Option<f64>>,
    /// The values as people read them.
    pub(super) cells: Vec<String>,
}

impl Plot {
    /// Makes a chart of lines with a value at each of these moments, in ISO 8601.
    pub(super) fn of<'a>(
        id: &'static str,
        title: &'static str,
        unit: &'static str,
        moments: impl Iterator<Item = &'a str>,
        lines: Vec<PlotLine>,
    ) -> Self {
        let moments: Vec<_> = moments.collect();
        let seconds = |iso: &&str| Millis::parse(iso).map(Millis::seconds);
        let series: Vec<_> = lines
            .iter()
            .map(
                |line| json!({ "label": line.label, "colour": line.colour, "values": line.values }),
            )
            .collect();
        let at: Vec<_> = moments.iter().map(seconds).collect();
        Self {
            id,
            title,
            unit,
            data: json!({ "unit": unit, "at": at, "series": series }).to_string(),
            columns: lines.iter().map(|line| line.label).collect(),
            rows: moments
                .iter()
                .enumerate()
                .map(|(index, iso)| PlotRow {
                    at: readable(iso),
                    cells: lines.iter().map(|line| line.cells[index].clone()).collect(),
                })
                .collect(),
        }
    }
}

/// Returns a moment as `2026-01-31 12:00`, or as its day at midnight.
fn readable(iso: &str) -> String {
    let text = iso.replace('T', " ");
    let text = text.get(.."2026-01-31 12:00".len()).unwrap_or(&text);
    text.to_owned()
}
