//! The queries of lists, whoever asks for one.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;

use weir_errors::ApiError;

/// Items of a list unless asked otherwise, and at most.
const ITEMS: u32 = 100;
const MOST_ITEMS: u32 = 1_000;

/// A list's query. Parameters are taken out of it one by one; [`Self::finish`] refuses what nobody took.
pub struct ListQuery(BTreeMap<String, Vec<String>>);

impl<S: Sync> FromRequestParts<S> for ListQuery {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        let mut parameters = BTreeMap::<_, Vec<_>>::new();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()).into_owned() {
            parameters.entry(name).or_default().push(value);
        }
        Ok(Self(parameters))
    }
}

/// Of parameters that are no request's own.
impl<const N: usize> From<[(&str, String); N]> for ListQuery {
    fn from(parameters: [(&str, String); N]) -> Self {
        let parameters = parameters.map(|(name, value)| (name.to_owned(), vec![value]));
        Self(parameters.into())
    }
}

impl ListQuery {
    /// Of those parameters that are not empty, as a page's form leaves them.
    pub fn filled<const N: usize>(parameters: [(&str, String); N]) -> Self {
        let mut query = Self::from(parameters);
        query
            .0
            .retain(|_, values| values.iter().all(|value| !value.is_empty()));
        query
    }

    /// Sets a parameter.
    pub fn set(&mut self, name: &str, value: String) {
        self.0.insert(name.to_owned(), vec![value]);
    }

    /// Whether any of these parameters is there.
    pub fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.0.contains_key(*name))
    }

    /// Takes a text.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        let mut values = self.0.remove(name).unwrap_or_default();
        if values.len() > 1 {
            return Err(ApiError::invalid_request(name, "It is there twice."));
        }
        Ok(values.pop())
    }

    /// Takes a yes or no.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.parsed(name, "It is true or false.")
    }

    /// Takes a whole number that is not negative.
    pub fn number(&mut self, name: &str) -> Result<Option<i64>, ApiError> {
        let what = "It is a whole number that is not negative.";
        let number: Option<i64> = self.parsed(name, what)?;
        match number {
            Some(..0) => Err(ApiError::invalid_request(name, what)),
            number => Ok(number),
        }
    }

    /// Takes `limit`, how many items are wanted at most.
    pub fn limit(&mut self) -> Result<u32, ApiError> {
        let what = format!("A limit is a number from 1 to {MOST_ITEMS}.");
        let limit = self.parsed("limit", &what)?.unwrap_or(ITEMS);
        match (1..=MOST_ITEMS).contains(&limit) {
            true => Ok(limit),
            false => Err(ApiError::invalid_request("limit", what)),
        }
    }

    /// Refuses what is left: a filter that is mistyped must not show everything.
    pub fn finish(self) -> Result<(), ApiError> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(unknown) => Err(ApiError::invalid_request(
                unknown,
                "There is no such parameter.",
            )),
        }
    }

    fn parsed<T: std::str::FromStr>(
        &mut self,
        name: &str,
        what: &str,
    ) -> Result<Option<T>, ApiError> {
        let text = self.text(name)?;
        text.map(|text| text.parse())
            .transpose()
            .map_err(|_| ApiError::invalid_request(name, what))
    }
}

/// Cuts a list, of which one item more was asked for than is shown, and returns what the next part begins after, if
/// there is one.
pub fn cut<T>(items: &mut Vec<T>, limit: u32, id: impl Fn(&T) -> String) -> Option<String> {
    let is_more = items.len() > limit as usize;
    items.truncate(limit as usize);
    items.last().filter(|_| is_more).map(id)
}
