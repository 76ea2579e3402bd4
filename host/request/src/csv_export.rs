//! Exports: CSV tables (RFC 4180) and JSON documents, written while they are read.
//!
//! **Invariant:** all exports of a node together use one database connection at a time: an export reads one piece, then
//! the next export has its turn. A slow client holds no turn.
//! **Invariant:** only a complete export ends normally. If the database fails midway, weir aborts the connection.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use weir_errors::ApiError;

use crate::query::ListQuery;
use crate::shares::{Share, Shares};

/// Maximum concurrent exports of a node; each waits for its turn to read.
const MAX_EXPORTS: usize = 16;

/// Maximum concurrent exports of one account, so that no account takes all places.
const MAX_EXPORTS_OF_ACCOUNT: u32 = 2;

/// The exports of a node. Cheap to clone.
#[derive(Clone)]
pub struct Exports {
    places: Arc<Semaphore>,
    by_account: Arc<Shares>,
    /// The mutex whose holder may read.
    turn: Arc<Mutex<()>>,
}

/// A place among the exports of a node. Dropping it returns the place.
pub struct ExportPlace {
    turn: Arc<Mutex<()>>,
    _place: OwnedSemaphorePermit,
    _share: Share,
}

impl Default for Exports {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(MAX_EXPORTS)),
            by_account: Arc::default(),
            turn: Arc::default(),
        }
    }
}

impl Exports {
    /// Takes a place for an export of an account.
    ///
    /// # Errors
    ///
    /// 429 `TOO_MANY_AT_ONCE` if the account has too many exports in progress, 503 `OVERLOADED` if the node has.
    pub fn begin(&self, account: &str) -> Result<ExportPlace, ApiError> {
        let share = self.by_account.take_one(account, MAX_EXPORTS_OF_ACCOUNT);
        let share = share.ok_or_else(|| {
            ApiError::too_many_at_once(format!(
                "{MAX_EXPORTS_OF_ACCOUNT} exports of this account are in progress; try again when one has ended."
            ))
        })?;
        let place = self.places.clone().try_acquire_owned();
        Ok(ExportPlace {
            turn: self.turn.clone(),
            _place: place.map_err(|_| ApiError::overloaded())?,
            _share: share,
        })
    }
}

/// Returns whether a client prefers CSV over JSON.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok())
        .any(|accept| accept.contains("text/csv"))
}

/// Returns the headers of a request that prefers CSV.
pub fn preferring_csv() -> HeaderMap {
    HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static("text/csv"))])
}

/// Items per read of a complete list.
const ITEMS_AT_ONCE: u32 = 250;

pub struct CsvTable {
    pub file: &'static str,
    /// The fields of an item in JSON that are columns, separated by commas.
    pub columns: &'static str,
    /// The parameter with the position of a page, such as `before`.
    pub position: &'static str,
}

pub trait ListPage: Serialize {
    type Item: Serialize + Send;

    /// Returns the items, and the position of the next page.
    fn into_items(self) -> (Vec<Self::Item>, Option<String>);
}

/// Reads the page of a query from the stores.
type ReadPage<S, P> = for<'a> fn(&'a S, ListQuery) -> BoxFuture<'a, Result<P, ApiError>>;

impl CsvTable {
    /// Returns a list in the format of the request's headers: the page of a query as JSON, or all items as CSV.
    ///
    /// # Errors
    ///
    /// The error of the first page. 400 if a table has the parameters of a page.
    pub async fn respond<S: Clone + Send + Sync + 'static, P: ListPage + 'static>(
        &'static self,
        exports: &Exports,
        account: &str,
        headers: &HeaderMap,
        query: ListQuery,
        stores: S,
        read: ReadPage<S, P>,
    ) -> Result<Response, ApiError> {
        if !is_wanted(headers) {
            return Ok(Json(read(&stores, query).await?).into_response());
        }
        for name in ["limit", self.position] {
            if query.has_any(&[name]) {
                let what = "A table has no pages.";
                return Err(ApiError::invalid_request(name, what));
            }
        }
        let place = exports.begin(account)?;
        let mut query = query;
        query.set("limit", ITEMS_AT_ONCE.to_string());
        // An invalid filter gets an error response.
        let first = read(&stores, query.clone()).await?.into_items();
        let pieces = stream::try_unfold(TablePart::Page(first), move |part| {
            let (stores, mut query) = (stores.clone(), query.clone());
            async move {
                let (items, next) = match part {
                    TablePart::Page(page) => page,
                    TablePart::Next(position) => {
                        query.set(self.position, position);
                        let page = read(&stores, query).await.map_err(|error| {
                            sqlx::Error::Decode(error.message().to_owned().into())
                        })?;
                        page.into_items()
                    }
                    TablePart::End => return Ok(None),
                };
                let next = next.map_or(TablePart::End, TablePart::Next);
                Ok(Some((self.lines(&items).finish(), next)))
            }
        });
        attachment(place, self.file, CsvLines::of(self.columns), pieces).await
    }

    /// Returns a complete list as a file attachment.
    pub fn whole(&self, items: &[impl Serialize]) -> Response {
        let lines = CsvLines::of(self.columns).finish() + &self.lines(items).finish();
        file_of(self.file, "text/csv; charset=utf-8", Body::from(lines))
    }

    fn lines(&self, items: &[impl Serialize]) -> CsvLines {
        let mut lines = CsvLines::default();
        for item in items {
            let json = serde_json::to_string(item).unwrap_or_default();
            let fields: BTreeMap<&str, &RawValue> = serde_json::from_str(&json).unwrap_or_default();
            let cells = self.columns.split(',');
            let cells = cells.map(|name| fields.get(name).map_or(String::new(), |raw| cell(raw)));
            let cells: Vec<_> = cells.collect();
            lines.add(cells.iter().map(String::as_str));
        }
        lines
    }
}

/// The rest of a table.
enum TablePart<T> {
    Page((Vec<T>, Option<String>)),
    /// The position of the next page.
    Next(String),
    End,
}

/// Returns the cell of a JSON value: numbers as written, so that no credits are rounded, and texts of a list with spaces
/// between them.
fn cell(json: &RawValue) -> String {
    let json = json.get();
    match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str(json).unwrap_or_default(),
        Some(b'n') | None => String::new(),
        Some(b'[') => match serde_json::from_str::<Vec<String>>(json) {
            Ok(texts) => texts.join(" "),
            Err(_) => json.to_owned(),
        },
        Some(_) => json.to_owned(),
    }
}

/// Returns a table as a file attachment, in pieces of complete lines as they are read. The place is returned after the
/// last piece, or when the client disconnects.
///
/// # Errors
///
/// The database's error in the first piece.
pub async fn attachment(
    place: ExportPlace,
    file: &str,
    headings: CsvLines,
    pieces: impl Stream<Item = sqlx::Result<String>> + Send + 'static,
) -> Result<Response, ApiError> {
    let (first, pieces) = read_in_turns(place, pieces).await?;
    let first = stream::iter([Ok(headings.finish()), Ok(first)]);
    let body = Body::from_stream(first.chain(pieces));
    Ok(file_of(file, "text/csv; charset=utf-8", body))
}

/// Returns a JSON document as a file attachment, in pieces as they are read. The place is returned after the last piece,
/// or when the client disconnects.
///
/// # Errors
///
/// The database's error in the first piece.
pub async fn json_attachment(
    place: ExportPlace,
    file: &str,
    pieces: impl Stream<Item = sqlx::Result<String>> + Send + 'static,
) -> Result<Response, ApiError> {
    let (first, pieces) = read_in_turns(place, pieces).await?;
    let body = Body::from_stream(stream::iter([Ok(first)]).chain(pieces));
    Ok(file_of(file, "application/json", body))
}

/// Returns the first piece, and the stream of the further ones. Each piece waits for its turn.
async fn read_in_turns(
    place: ExportPlace,
    pieces: impl Stream<Item = sqlx::Result<String>> + Send + 'static,
) -> Result<(String, impl Stream<Item = sqlx::Result<String>> + Send), ApiError> {
    let begun = (Box::pin(pieces), place);
    let pieces = stream::unfold(begun, async |(mut pieces, place)| {
        let piece = {
            let _turn = place.turn.lock().await;
            pieces.next().await?
        };
        if let Err(error) = &piece {
            tracing::error!(%error, "cannot read an export");
        }
        Some((piece, (pieces, place)))
    });
    let mut pieces = Box::pin(pieces);
    // An immediate failure gets an error response.
    let first = match pieces.next().await {
        Some(Err(error)) => return Err(ApiError::of_database(&error, "reading an export")),
        Some(Ok(first)) => first,
        None => String::new(),
    };
    Ok((first, pieces))
}

/// Returns a complete table as a file attachment.
pub fn whole(file: &str, lines: CsvLines) -> Response {
    file_of(file, "text/csv; charset=utf-8", Body::from(lines.finish()))
}

fn file_of(file: &str, kind: &str, body: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind.to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{file}\""),
        ),
    ];
    (headers, body).into_response()
}

/// The text of some lines.
pub struct CsvLines(csv::Writer<Vec<u8>>);

impl Default for CsvLines {
    fn default() -> Self {
        let mut format = csv::WriterBuilder::new();
        format.terminator(csv::Terminator::CRLF).flexible(true);
        Self(format.from_writer(Vec::new()))
    }
}

impl CsvLines {
    /// Makes the text of the headings, which have commas between them.
    pub fn of(headings: &str) -> Self {
        let mut lines = Self::default();
        lines.add(headings.split(','));
        lines
    }

    pub fn add<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) {
        let written = self.0.write_record(cells.into_iter().map(harmless));
        written.unwrap_or_else(|_| unreachable!("memory takes every line"));
    }

    pub fn finish(self) -> String {
        let bytes = self.0.into_inner();
        let bytes = bytes.unwrap_or_else(|_| unreachable!("memory takes every line"));
        String::from_utf8(bytes).unwrap_or_else(|_| unreachable!("all cells are UTF-8"))
    }
}

/// Characters that begin a formula, and their full-width forms, which spreadsheets of some languages read alike; see
/// <https://owasp.org/www-community/attacks/CSV_Injection>.
const FORMULA_STARTS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];

/// Characters that may end a cell. A spreadsheet that separates cells by semicolons or tabs ignores the quotes around a cell
/// in the middle of a line.
const SEPARATORS: [char; 7] = [',', ';', '\t', '|', '\r', '\n', '\0'];

/// Returns the text of a cell. Another user may have chosen it: a spreadsheet must not execute it, or a part behind a
/// separator, as a formula. An apostrophe makes a text of a formula. A negative number is not a formula.
fn harmless(text: &str) -> Cow<'_, [u8]> {
    let is_number = text.strip_prefix('-').is_some_and(|digits| {
        !digits.is_empty()
            && digits
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.')
    });
    if is_number {
        return text.as_bytes().into();
    }
    let mut harmless = String::new();
    let (mut copied, mut begins_cell) = (0, true);
    // A cell that begins with a tab or a line break is a formula for some spreadsheets.
    if text.starts_with(['\t', '\r', '\n', '\0']) {
        harmless.push('\'');
    }
    for (at, one) in text.char_indices() {
        if begins_cell && FORMULA_STARTS.contains(&one) {
            harmless.push_str(&text[copied..at]);
            harmless.push('\'');
            copied = at;
        }
        let is_separator = SEPARATORS.contains(&one);
        let is_skipped = is_ignored(one) || one == '"';
        begins_cell = is_separator || begins_cell && is_skipped;
    }
    match harmless.is_empty() {
        true => text.as_bytes().into(),
        false => (harmless + &text[copied..]).into_bytes().into(),
    }
}

/// Returns whether a spreadsheet may ignore a character at the beginning of a cell: blanks, control characters, and characters
/// without a width.
fn is_ignored(one: char) -> bool {
    one.is_whitespace()
        || one.is_control()
        || matches!(one, '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::body::to_bytes;
    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn one_export_reads_at_a_time_and_a_client_that_waits_keeps_no_turn() {
        static READING: AtomicUsize = AtomicUsize::new(0);
        let exports = Exports::default();
        let export = async |account: &str| {
            let pieces = stream::iter(0..3).then(async |piece| {
                assert_eq!(READING.fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                assert_eq!(READING.fetch_sub(1, Ordering::SeqCst), 1);
                Ok(format!("{piece}\r\n"))
            });
            let place = exports.begin(account)?;
            attachment(place, "x.csv", CsvLines::of("n"), pieces).await
        };
        // The first piece of this export is read, and no further one.
        let unread = export("slow").await;
        let all = ["a", "a", "b", "c"].map(async |account| {
            let response = export(account).await?;
            Ok::<_, ApiError>(to_bytes(response.into_body(), 100).await)
        });
        for body in join_all(all).await {
            let body = body.map(|body| body.map(|body| &*body == b"n\r\n0\r\n1\r\n2\r\n"));
            assert!(matches!(body, Ok(Ok(true))));
        }
        drop(unread);
        let broken = stream::iter([Err(sqlx::Error::RowNotFound)]);
        let headings = CsvLines::of("n");
        let broken = async { attachment(exports.begin("a")?, "x.csv", headings, broken).await };
        assert!(broken.await.is_err_and(|error| error.code() == "INTERNAL"));
    }

    #[test]
    fn no_part_of_a_cell_is_a_formula() {
        for (text, written) in [
            ("plain text", "plain text"),
            ("", ""),
            ("-0.5", "-0.5"),
            ("-1+cmd|' /C calc'!A0", "'-1+cmd|' /C calc'!A0"),
            ("=1+1", "'=1+1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("+1", "'+1"),
            ("\t=1", "'\t'=1"),
            ("\rx", "\"'\rx\""),
            ("\n=1", "\"'\n'=1\""),
            (" =1", " '=1"),
            ("\u{feff}=1", "\u{feff}'=1"),
            ("＝1+1", "'＝1+1"),
            ("＋1", "'＋1"),
            ("－1", "'－1"),
            ("＠SUM(A1)", "'＠SUM(A1)"),
            ("x;=1+1", "x;'=1+1"),
            ("x; ＝1", "x; '＝1"),
            ("x\t=1", "x\t'=1"),
            ("x|@a", "x|'@a"),
            ("x,-1", "\"x,'-1\""),
            ("x;\"=1\"", "\"x;\"\"'=1\"\"\""),
            ("\"=1\"", "\"\"\"'=1\"\"\""),
            ("x\r\n+1", "\"x\r\n'+1\""),
            ("a=b, c-d e@f", "\"a=b, c-d e@f\""),
            ("gpt-5.4-mini", "gpt-5.4-mini"),
            ("a,b", "\"a,b\""),
            ("say \"hi\"", "\"say \"\"hi\"\"\""),
            ("two\r\nlines", "\"two\r\nlines\""),
        ] {
            let mut lines = CsvLines::default();
            lines.add([text, "next"]);
            assert_eq!(lines.finish(), format!("{written},next\r\n"));
        }
    }
}
