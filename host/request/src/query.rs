//! Queries of lists.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;
use weir_errors::ApiError;

/// Default and maximum number of items.
const ITEMS: u32 = 100;
const MOST_ITEMS: u32 = 1_000;

/// A list's query. Handlers take parameters one by one; [`Self::finish`] rejects the rest.
#[derive(Clone)]
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

/// Makes a query of parameters from another source than a request.
impl<const N: usize> From<[(&str, String); N]> for ListQuery {
    fn from(parameters: [(&str, String); N]) -> Self {
        let parameters = parameters.map(|(name, value)| (name.to_owned(), vec![value]));
        Self(parameters.into())
    }
}

impl ListQuery {
    /// Makes a query of the parameters that are not empty; an HTML form sends unused fields as empty texts.
    pub fn filled<const N: usize>(parameters: [(&str, String); N]) -> Self {
        let mut query = Self::from(parameters);
        query
            .0
            .retain(|_, values| values.iter().all(|value| !value.is_empty()));
        query
    }

    pub fn set(&mut self, name: &str, value: String) {
        self.0.insert(name.to_owned(), vec![value]);
    }

    /// Returns whether any of these parameters is present.
    pub fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.0.contains_key(*name))
    }

    pub fn text(&mut self, name: &str) -> Result<Option<String>, ApiError> {
        let mut values = self.0.remove(name).unwrap_or_default();
        if values.len() > 1 {
            return Err(ApiError::invalid_request(
                name,
                "The parameter is given twice.",
            ));
        }
        Ok(values.pop())
    }

    /// Takes a yes or no.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        self.parsed(name, "The value must be true or false.")
    }

    /// Takes a whole number that is not negative.
    pub fn number(&mut self, name: &str) -> Result<Option<i64>, ApiError> {
        let what = "The value must be a non-negative integer.";
        let number: Option<i64> = self.parsed(name, what)?;
        match number {
            Some(..0) => Err(ApiError::invalid_request(name, what)),
            number => Ok(number),
        }
    }

    /// Takes `limit`, the maximum number of items.
    pub fn limit(&mut self) -> Result<u32, ApiError> {
        let what = format!("The limit must be a number from 1 to {MOST_ITEMS}.");
        let limit = self.parsed("limit", &what)?.unwrap_or(ITEMS);
        match (1..=MOST_ITEMS).contains(&limit) {
            true => Ok(limit),
            false => Err(ApiError::invalid_request("limit", what)),
        }
    }

    /// Rejects unknown parameters: a mistyped filter must not list all items.
    pub fn finish(self) -> Result<(), ApiError> {
        match self.0.into_keys().next() {
            None => Ok(()),
            Some(unknown) => Err(ApiError::invalid_request(
                unknown,
                "The parameter does not exist.",
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

/// Cuts a list that has one item more than the page, and returns the start of the next page, if one exists.
pub fn cut<T>(items: &mut Vec<T>, limit: u32, id: impl Fn(&T) -> String) -> Option<String> {
    let is_more = items.len() > limit as usize;
    items.truncate(limit as usize);
    items.last().filter(|_| is_more).map(id)
}
