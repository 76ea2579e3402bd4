//! The parameters of requests: filters, pages, and the selection of attributes (RFC 7644 §3.4.2, §3.9).

use http::Uri;
use scim_v2::filter::{AttrExp, CompValue, CompareOp, Filter};
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::Kind;
use super::document::EXTERNAL_ID;
use super::error::ScimError;

/// Resources on a page, unless the request wants fewer.
const PAGE: i64 = 100;

/// Attributes that every document has.
const ALWAYS: [&str; 2] = ["id", "schemas"];

/// The query of a request.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) filter: Option<Lookup>,
    /// The number of the first resource, from 1.
    pub(super) start: i64,
    /// The maximum resources of the page.
    pub(super) count: i64,
    pub(super) selection: Selection,
}

/// A filter that an index serves: all that directories use to find a resource.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Id(String),
    /// In lower case.
    Name(String),
    ExternalId(String),
}

/// The attributes of a response, in lower case.
#[derive(Debug, Default)]
pub(super) struct Selection {
    only: Vec<String>,
    without: Vec<String>,
}

impl Query {
    /// Reads the query of a request.
    pub(super) fn read(kind: Kind, uri: &Uri) -> Result<Self, ScimError> {
        let mut query = Self {
            filter: None,
            start: 1,
            count: PAGE,
            selection: Selection::default(),
        };
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let number = || -> Result<i64, ScimError> {
                let number = value.trim().parse();
                number.map_err(|_| ScimError::value(&name, "It is a number."))
            };
            match &*name {
                "filter" => query.filter = Some(Lookup::read(kind, &value)?),
                // The standard gives numbers outside the range a meaning.
                "startIndex" => query.start = number()?.max(1),
                "count" => query.count = number()?.clamp(0, PAGE),
                "attributes" => query.selection.only = names(kind, &value),
                "excludedAttributes" => query.selection.without = names(kind, &value),
                _ => {}
            }
        }
        Ok(query)
    }
}

impl Lookup {
    fn read(kind: Kind, text: &str) -> Result<Self, ScimError> {
        let filter: Filter = text
            .parse()
            .map_err(|_| ScimError::filter(format!("{text:?} is no filter.")))?;
        let unknown = || {
            let name = kind.name_attribute();
            ScimError::filter(format!(
                "weir finds resources by `{name} eq`, `{EXTERNAL_ID} eq` or `id eq` with a text."
            ))
        };
        let Filter::Attr(AttrExp::Comparison(attr, CompareOp::Eq, CompValue::Str(wanted))) = filter
        else {
            return Err(unknown());
        };
        let schema = attr.uri.as_deref();
        let is_own = schema.is_none_or(|schema| schema.eq_ignore_ascii_case(kind.schema()));
        let is = |name: &str| attr.name.eq_ignore_ascii_case(name);
        match () {
            () if !is_own || attr.sub_attr.is_some() => Err(unknown()),
            () if is("id") => Ok(Self::Id(wanted)),
            () if is(kind.name_attribute()) => Ok(Self::Name(wanted.to_lowercase())),
            () if is(EXTERNAL_ID) => Ok(Self::ExternalId(wanted)),
            () => Err(unknown()),
        }
    }
}

fn names(kind: Kind, list: &str) -> Vec<String> {
    let prefix = format!("{}:", kind.schema()).to_lowercase();
    let names = list.split(',').map(|name| {
        let name = name.trim().to_lowercase();
        name.strip_prefix(&prefix)
            .map_or(name.clone(), str::to_owned)
    });
    names.filter(|name| !name.is_empty()).collect()
}

impl Selection {
    /// Whether a response has an attribute, at least in part.
    pub(super) fn includes(&self, attribute: &str) -> bool {
        let attribute = attribute.to_lowercase();
        let is_named = |name: &String| name.split('.').next() == Some(&attribute);
        let is_wanted = self.only.is_empty() || self.only.iter().any(is_named);
        is_wanted && !self.without.contains(&attribute)
    }

    /// Removes the attributes that the request does not want.
    pub(super) fn apply(&self, document: Map<String, Value>) -> Value {
        let kept = document.into_iter().filter_map(|(name, value)| {
            if ALWAYS.contains(&&*name) {
                return Some((name, value));
            }
            if !self.includes(&name) {
                return None;
            }
            let lower = name.to_lowercase();
            let is_whole = self.only.is_empty() || self.only.contains(&lower);
            let value = parts(value, &|part: &str| {
                let path = format!("{lower}.{}", part.to_lowercase());
                (is_whole || self.only.contains(&path)) && !self.without.contains(&path)
            });
            Some((name, value))
        });
        Value::Object(kept.collect())
    }
}

/// Keeps some parts of an object, or of each object in a list.
fn parts(value: Value, is_kept: &dyn Fn(&str) -> bool) -> Value {
    match value {
        Value::Object(object) => {
            let kept = object.into_iter().filter(|(name, _)| is_kept(name));
            Value::Object(kept.collect())
        }
        Value::Array(list) => list.into_iter().map(|item| parts(item, is_kept)).collect(),
        value => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(kind: Kind, query: &str) -> Result<Query, ScimError> {
        let uri = format!("/scim/v2/Users?{query}");
        Query::read(kind, &uri.parse().expect("a URI"))
    }

    #[test]
    fn filters_find_by_name_external_id_and_id() {
        let of = |kind, filter: &str| {
            let encoded: String = form_urlencoded::byte_serialize(filter.as_bytes()).collect();
            read(kind, &format!("filter={encoded}")).map(|query| query.filter)
        };
        let name = Some(Lookup::Name("alice".to_owned()));
        assert_eq!(of(Kind::User, "userName eq \"Alice\"").ok(), Some(name));
        let external = Some(Lookup::ExternalId("A".to_owned()));
        assert_eq!(of(Kind::Group, "externalid EQ \"A\"").ok(), Some(external));
        for filter in [
            "",
            "userName",
            "userName sw \"a\"",
            "userName eq 7",
            "displayName eq \"a\"",
            "userName eq \"a\" or userName eq \"b\"",
            "emails[type eq \"work\"]",
            "name.givenName eq \"a\"",
        ] {
            assert!(of(Kind::User, filter).is_err(), "{filter}");
        }
    }

    #[test]
    fn numbers_outside_the_range_have_a_meaning() {
        let query = read(Kind::User, "startIndex=-3&count=100000").expect("a query");
        assert_eq!((query.start, query.count), (1, PAGE));
        let query = read(Kind::User, "count=-1").expect("a query");
        assert_eq!(query.count, 0);
        assert!(read(Kind::User, "count=x").is_err());
    }

    #[test]
    fn a_selection_keeps_the_named_attributes() {
        let Value::Object(document) = json!({
            "schemas": ["s"], "id": "1", "userName": "alice", "name": { "givenName": "A", "familyName": "B" },
            "emails": [{ "value": "a@b.c", "type": "work" }],
        }) else {
            unreachable!()
        };
        let selected = |query| {
            let query = read(Kind::User, query).expect("a query");
            query.selection.apply(document.clone())
        };
        assert_eq!(
            selected("attributes=USERNAME,name.givenName"),
            json!({ "schemas": ["s"], "id": "1", "userName": "alice", "name": { "givenName": "A" } })
        );
        assert_eq!(
            selected("excludedAttributes=id,name,emails.type"),
            json!({ "schemas": ["s"], "id": "1", "userName": "alice", "emails": [{ "value": "a@b.c" }] })
        );
    }
}
