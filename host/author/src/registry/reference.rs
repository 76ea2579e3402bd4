//! References to artifacts: `oci://REGISTRY/NAME:TAG@sha256:DIGEST`.

use std::fmt;

use anyhow::{Context, ensure};
use semver::Version;
use url::{Host, Url};
use weir_sandbox::Digest;

const SCHEME: &str = "oci://";

/// Bytes of the longest name and tag, by the distribution specification.
const NAME_BYTES: usize = 255;
const TAG_BYTES: usize = 128;

/// The form of references, for error messages.
const FORM: &str = "a reference is oci://REGISTRY/NAME:TAG, or oci://REGISTRY/NAME@sha256:DIGEST";

/// Docker Hub, and the host of its API.
const DOCKER_HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactReference {
    /// The registry: its host, and its port if that is not the scheme's.
    pub(crate) registry: String,
    pub(crate) name: String,
    /// The tag. A registry can move it to another artifact.
    pub(crate) tag: Option<String>,
    /// The manifest's digest.
    pub(crate) digest: Option<Digest>,
}

/// Tells whether an argument is a reference, and not a file.
pub(crate) fn is_reference(text: &str) -> bool {
    text.starts_with(SCHEME)
}

impl ArtifactReference {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or(FORM)?;
        let (registry, rest) = rest.split_once('/').ok_or(FORM)?;
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(parse_digest(digest)?)),
            None => (rest, None),
        };
        let (name, tag) = match rest.split_once(':') {
            Some((name, tag)) => (name, Some(tag.to_owned())),
            None => (rest, None),
        };
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        if registry.is_empty()
            || !registry.bytes().all(is_host)
            || Url::parse(&format!("https://{registry}/")).is_err()
        {
            return Err(format!(
                "{registry:?} is not the host of a registry; {FORM}"
            ));
        }
        if name.len() > NAME_BYTES || !name.split('/').all(is_part) {
            return Err(format!(
                "{name:?} is not the name of a repository: it has parts of lower-case letters and digits, with single \
                 . _ - inside, and / between the parts"
            ));
        }
        if let Some(tag) = &tag
            && !is_tag(tag)
        {
            return Err(format!(
                "{tag:?} is not a tag: a tag has 1 to {TAG_BYTES} letters, digits, . _ and -"
            ));
        }
        if tag.is_none() && digest.is_none() {
            return Err(format!(
                "the reference has neither a tag nor a digest; {FORM}"
            ));
        }
        Ok(Self {
            registry: registry.to_ascii_lowercase(),
            name: name.to_owned(),
            tag,
            digest,
        })
    }

    /// Parses a target of a push. It has a tag and no digest, because the push makes the digest.
    ///
    /// # Errors
    ///
    /// The reason, as a sentence about the reference.
    pub fn parse_target(text: &str) -> Result<Self, String> {
        let reference = Self::parse(text)?;
        match reference.digest {
            Some(_) => Err("push to oci://REGISTRY/NAME:TAG, without a digest".to_owned()),
            None => Ok(reference),
        }
    }

    /// Returns the digest, or else the tag. A registry can move the tag, and not the digest.
    pub(crate) fn wanted(&self) -> anyhow::Result<String> {
        let digest = self.digest.map(|digest| format!("sha256:{digest}"));
        digest.or_else(|| self.tag.clone()).context(FORM)
    }

    /// Checks that a tag that is a version equals the signed version. Other tags, such as `latest`, are not checked.
    pub(crate) fn check_version(&self, signed: &Version) -> anyhow::Result<()> {
        let Some(tag) = &self.tag else {
            return Ok(());
        };
        // A tag cannot have a plus sign; other tools write an underscore in its place.
        let text = tag.strip_prefix('v').unwrap_or(tag).replace('_', "+");
        let named = Version::parse(&text);
        ensure!(
            named.as_ref().is_ok_and(|named| named == signed) || named.is_err(),
            "the tag {tag} names another version than the signature, which is for {signed}"
        );
        Ok(())
    }

    pub(crate) fn pinned(&self, digest: Digest) -> Self {
        Self {
            digest: Some(digest),
            ..self.clone()
        }
    }

    /// Returns the root of the registry's API. A registry on this machine has no TLS.
    pub(crate) fn base(&self, plain_http: bool) -> anyhow::Result<Url> {
        let (called, host) = DOCKER_HUB;
        let host = match &*self.registry {
            registry if registry == called => host,
            registry => registry,
        };
        let mut url = Url::parse(&format!("https://{host}/v2/"))?;
        if plain_http || is_loopback(&url) {
            url = Url::parse(&format!("http://{host}/v2/"))?;
        }
        Ok(url)
    }
}

impl fmt::Display for ArtifactReference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{SCHEME}{}/{}", self.registry, self.name)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        match self.digest {
            Some(digest) => write!(formatter, "@sha256:{digest}"),
            None => Ok(()),
        }
    }
}

/// Parses `sha256:` and 64 digits.
pub(crate) fn parse_digest(text: &str) -> Result<Digest, String> {
    let digits = text.strip_prefix("sha256:");
    let digest = digits.and_then(|digits| digits.parse().ok());
    digest.ok_or_else(|| {
        format!("{text:?} is not a digest: a digest is sha256: and 64 hexadecimal digits")
    })
}

/// Tells whether a URL names this machine. Its traffic does not leave the machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Tells whether a text is a part of a repository's name. The part goes into the path of a URL.
fn is_part(part: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().is_some_and(|&byte| is_plain(byte))
        && bytes.last().is_some_and(|&byte| is_plain(byte))
        && bytes
            .iter()
            .all(|&byte| is_plain(byte) || b"._-".contains(&byte))
        && !part.contains("..")
}

fn is_tag(tag: &str) -> bool {
    (1..=TAG_BYTES).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    #[test]
    fn a_reference_is_read_and_written_the_same() {
        for (rest, registry, name, wanted) in [
            (
                "ghcr.io/acme/plugins/x:1.0.0",
                "ghcr.io",
                "acme/plugins/x",
                "1.0.0",
            ),
            ("localhost:5000/x_y:v1-a", "localhost:5000", "x_y", "v1-a"),
            ("[::1]:5000/x:1", "[::1]:5000", "x", "1"),
            (&format!("a.example/x@{DIGEST}"), "a.example", "x", DIGEST),
            // The digest decides.
            (&format!("a.example/x:1@{DIGEST}"), "a.example", "x", DIGEST),
        ] {
            let text = format!("oci://{rest}");
            let reference = ArtifactReference::parse(&text).expect(&text);
            assert_eq!(reference.to_string(), text);
            assert_eq!(reference.registry, registry);
            assert_eq!(reference.name, name);
            assert_eq!(reference.wanted().expect("something"), wanted);
        }
    }

    #[test]
    fn a_wrong_reference_is_refused_with_the_reason() {
        for (text, why) in [
            ("oci://ghcr.io", "a reference is"),
            ("oci://ghcr.io/x", "neither a tag nor a digest"),
            ("oci://gh cr.io/x:1", "not the host of a registry"),
            ("oci://user@ghcr.io/x:1", "not the host of a registry"),
            ("oci:///x:1", "not the host of a registry"),
            ("oci://a.example:70000/x:1", "not the host of a registry"),
            ("oci://a.example/X:1", "not the name of a repository"),
            ("oci://a.example/:1", "not the name of a repository"),
            ("oci://a.example/a/../b:1", "not the name of a repository"),
            ("oci://a.example/a?b:1", "not the name of a repository"),
            ("oci://a.example/x:", "not a tag"),
            ("oci://a.example/x:a/b", "not a tag"),
            ("oci://a.example/x@sha256:12", "not a digest"),
            ("oci://a.example/x@sha512:12", "not a digest"),
        ] {
            let refused = ArtifactReference::parse(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
        let pinned = format!("oci://a.example/x:1@{DIGEST}");
        assert!(ArtifactReference::parse_target(&pinned).is_err());
    }

    #[test]
    fn a_tag_that_is_a_version_equals_the_signed_version() {
        let signed = Version::parse("1.2.3+a.4").expect("a version");
        for (tag, is_right) in [
            ("1.2.3_a.4", true),
            ("v1.2.3_a.4", true),
            ("latest", true),
            ("1", true),
            ("1.2.3", false),
            ("v1.2.4_a.4", false),
            ("1.2.3-rc.1", false),
        ] {
            let reference =
                ArtifactReference::parse(&format!("oci://a.example/x:{tag}")).expect(tag);
            assert_eq!(reference.check_version(&signed).is_ok(), is_right, "{tag}");
        }
        let by_digest =
            ArtifactReference::parse(&format!("oci://a.example/x@{DIGEST}")).expect("one");
        assert!(by_digest.check_version(&signed).is_ok());
    }

    #[test]
    fn only_this_machine_is_contacted_without_tls_unless_the_user_asks() {
        for (registry, plain, base) in [
            ("docker.io", false, "https://registry-1.docker.io/v2/"),
            ("a.example:5000", false, "https://a.example:5000/v2/"),
            ("a.example:5000", true, "http://a.example:5000/v2/"),
            ("localhost:5000", false, "http://localhost:5000/v2/"),
            ("127.0.0.1:5000", false, "http://127.0.0.1:5000/v2/"),
            ("[::1]:5000", false, "http://[::1]:5000/v2/"),
            ("localhost.example", false, "https://localhost.example/v2/"),
        ] {
            let reference =
                ArtifactReference::parse(&format!("oci://{registry}/x:1")).expect("one");
            let found = reference.base(plain).expect("a URL");
            assert_eq!(found.as_str(), base);
        }
    }
}
