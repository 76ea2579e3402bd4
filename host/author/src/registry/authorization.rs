//! The authentication challenges of a registry, from `www-authenticate`.

use http::{HeaderMap, header};

/// A kind of authentication that a registry offers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// A token from the registry's issuer.
    Bearer {
        realm: String,
        service: Option<String>,
    },
    /// The user's name and password.
    Basic,
}

impl Challenge {
    /// Returns the best challenge: Bearer before Basic, because a lost token does less harm than a lost password.
    pub(crate) fn best(headers: &HeaderMap) -> Option<Self> {
        let offered = headers.get_all(header::WWW_AUTHENTICATE).iter();
        let mut offered: Vec<_> = offered
            .filter_map(|value| Self::parse(value.to_str().ok()?))
            .collect();
        let token = offered
            .iter()
            .position(|challenge| matches!(challenge, Self::Bearer { .. }));
        match token {
            Some(at) => Some(offered.swap_remove(at)),
            None => offered.pop(),
        }
    }

    /// Parses the first challenge of a header. Most headers have only one.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let (scheme, parameters) = text.split_once(' ').unwrap_or((text, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        let mut rest = parameters;
        while let Some((name, value, after)) = parameter(rest) {
            if name.eq_ignore_ascii_case("realm") {
                realm = Some(value);
            } else if name.eq_ignore_ascii_case("service") {
                service = Some(value);
            }
            rest = after;
        }
        Some(Self::Bearer {
            realm: realm?,
            service,
        })
    }
}

/// Splits off the first `name=value` or `name="value"` of a list with commas.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches([' ', '\t', ',']);
    let (name, rest) = text.split_once('=')?;
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find(',').unwrap_or(rest.len());
        return Some((name.trim(), rest[..end].trim().to_owned(), &rest[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((name.trim(), value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            character => value.push(character),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(values: &[&str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(
                header::WWW_AUTHENTICATE,
                value.parse().expect("a header's value"),
            );
        }
        Challenge::best(&headers)
    }

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.to_owned(),
                service: service.map(str::to_owned),
            })
        };
        for (values, expected) in [
            (
                &[
                    r#"Bearer realm="https://a.example/token",service="a, b",scope="repository:x:pull""#,
                ][..],
                bearer("https://a.example/token", Some("a, b")),
            ),
            (
                &[r#"bearer service=s , realm="a\"b""#],
                bearer("a\"b", Some("s")),
            ),
            (&["Basic realm=\"r\"", "Bearer realm=r"], bearer("r", None)),
            (&["Basic"], Some(Challenge::Basic)),
            (&["Negotiate", "Digest realm=r"], None),
            (&["Bearer service=s"], None),
            (&[r#"Bearer realm="never ends"#], None),
            (&[], None),
        ] {
            assert_eq!(best(values), expected, "{values:?}");
        }
    }
}
