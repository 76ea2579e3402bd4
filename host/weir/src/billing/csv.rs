//! Tables as CSV (RFC 4180), written as they are read.

use std::fmt::Write as _;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, header};

/// Whether a client wants CSV rather than JSON.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok())
        .any(|accept| accept.contains("text/csv"))
}

/// A table as a file to be saved, in pieces of whole lines as they come.
pub fn attachment(
    file: &str,
    headings: impl Into<String>,
    lines: impl Stream<Item = sqlx::Result<String>> + Send + 'static,
) -> Response {
    let headings = stream::iter([Ok(headings.into())]);
    let lines = lines.inspect(|lines| {
        if let Err(error) = lines {
            tracing::error!(%error, "reading a table");
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{file}\""),
        ),
    ];
    (headers, Body::from_stream(headings.chain(lines))).into_response()
}

/// Adds a line.
pub fn line<'a>(lines: &mut String, cells: impl IntoIterator<Item = &'a str>) {
    for (index, text) in cells.into_iter().enumerate() {
        if index > 0 {
            lines.push(',');
        }
        cell(lines, text);
    }
    lines.push_str("\r\n");
}

/// Adds a cell. It may be a text that somebody else has chosen: a spreadsheet must not take it for a formula. A number
/// below zero is none.
pub fn cell(lines: &mut String, text: &str) {
    let is_number = text.strip_prefix('-').is_some_and(|digits| {
        !digits.is_empty()
            && digits
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.')
    });
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && !is_number;
    let is_plain = !text.contains(['"', ',', '\r', '\n']);
    match (is_formula, is_plain) {
        (false, true) => lines.push_str(text),
        _ => {
            let apostrophe = if is_formula { "'" } else { "" };
            let _ = write!(lines, "\"{apostrophe}{}\"", text.replace('"', "\"\""));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_every_text_comes_back_whole() {
        for (text, written) in [
            ("plain text", "plain text"),
            ("", ""),
            ("-0.5", "-0.5"),
            ("-1+cmd|' /C calc'!A0", "\"'-1+cmd|' /C calc'!A0\""),
            ("=1+1", "\"'=1+1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("+1", "\"'+1\""),
            ("\t=1", "\"'\t=1\""),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\r\nlines", "\"two\r\nlines\""),
        ] {
            let mut lines = String::new();
            cell(&mut lines, text);
            assert_eq!(lines, written);
        }
    }
}
