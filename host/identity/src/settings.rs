//! Accepted token issuers, and weir's own token for other services: `[identity.…]`.
//!
//! **Invariant:** no two kinds of token share both issuer and audience, so that a token of one kind never passes for
//! another.

use std::path::PathBuf;

use serde::Deserialize;
use weir_outgoing::fetch::parse_url;
use weir_storage::secrets::SecretSource;

use super::roles::Role;

/// The prefix of the names of development mode's issuer; no other issuer may use it.
pub const DEV_ISSUER_PREFIX: &str = "urn:weir:dev";

/// The scopes of services: call models for users, change slots, and run swarms at the executor.
pub const SERVICE_SCOPES: [&str; 3] = ["model:call", "plugins:write", "swarm:run"];

/// Issuers of tokens. weir accepts no token of an issuer that is not set; in development mode, the local issuer
/// replaces it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IdentitySettings {
    /// Identity tokens of web users: `Authorization: Bearer`. Needs `attestation` beside it.
    pub web: Option<IssuerSettings>,
    /// Attestation tokens of the web app: `X-Identity-AppCheck`. Needs `web` beside it.
    pub attestation: Option<IssuerSettings>,
    /// Tokens of other services: `Authorization: Bearer`.
    pub service: Option<ServiceSettings>,
    /// Services that weir accepts by name, with scopes that their tokens do not carry.
    pub services: Vec<NamedService>,
    /// Source of weir's token for other services of its own kind.
    pub outgoing: Option<OutgoingSettings>,
    /// Issuers whose users sign in at the console.
    pub sign_in: Vec<SignInSettings>,
}

/// An issuer and the required claims of its tokens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerSettings {
    /// Exact `iss` claim of the tokens. Required.
    pub issuer: String,
    /// Value that the tokens' `aud` claim is or contains. Required.
    pub audience: String,
    /// URL of the issuer's keys. Default: by OpenID discovery.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// Accepted signature algorithms: `RS256`, `PS256`, `ES256`, `EdDSA`. Default: `["RS256", "ES256"]`.
    #[serde(default = "default_algorithms")]
    pub algorithms: Vec<Algorithm>,
}

/// The issuer of service tokens, and the accepted services.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceSettings {
    /// Exact `iss` claim of the tokens. Required.
    pub issuer: String,
    /// Value that the tokens' `aud` claim is or contains, at the API. Required.
    pub audience: String,
    /// The same at an executor, which accepts no token without it. Default: none.
    #[serde(default)]
    pub executor_audience: Option<String>,
    /// URL of the issuer's keys. Default: by OpenID discovery.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// Accepted signature algorithms: `RS256`, `PS256`, `ES256`, `EdDSA`. Default: `["RS256", "ES256"]`.
    #[serde(default = "default_algorithms")]
    pub algorithms: Vec<Algorithm>,
    /// Verified e-mail addresses of accepted services. Default: none.
    #[serde(default)]
    pub allowed_emails: Vec<String>,
    /// Claim with the token's scopes, as a list or a text with spaces. Default: `scope`.
    #[serde(default = "default_scope_claim")]
    pub scope_claim: String,
}

/// An accepted service with scopes besides its token's: Google's service accounts have tokens without scopes,
/// Kubernetes' also without an e-mail address. Each entry has a `subject` or an `email`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedService {
    /// Exact `sub` claim, such as `system:serviceaccount:NAMESPACE:NAME`. Default: none.
    #[serde(default)]
    pub subject: Option<String>,
    /// Exact verified `email` claim. Default: none.
    #[serde(default)]
    pub email: Option<String>,
    /// Scopes: `model:call`, `plugins:write`, `swarm:run`. Required.
    pub scopes: Vec<String>,
}

/// The source of weir's token for other services.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OutgoingSettings {
    /// A file that another program updates, such as a projected service account token.
    File(PathBuf),
    /// An OAuth 2.0 token endpoint, by the client credentials grant.
    ClientCredentials(ClientCredentialsSettings),
}

/// A client at an OAuth 2.0 token endpoint.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientCredentialsSettings {
    /// OAuth 2.0 token endpoint. Required.
    pub token_url: String,
    /// Client id. Required.
    pub client_id: String,
    /// Secret source of the client secret. Required.
    pub client_secret: SecretSource,
    /// `audience` parameter of the token request. Default: none.
    #[serde(default)]
    pub audience: Option<String>,
    /// `scope` parameter of the token request. Default: none.
    #[serde(default)]
    pub scope: Option<String>,
}

/// An OpenID Connect issuer whose users sign in at the console.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignInSettings {
    /// Text of the button on the sign-in page. Required.
    pub name: String,
    /// URL of the issuer, exactly as in its tokens' `iss` claim. Required.
    pub issuer: String,
    /// Client id of weir at the issuer. Required.
    pub client_id: String,
    /// Secret source of that client's secret; a public client has none. Default: none.
    #[serde(default)]
    pub client_secret: Option<SecretSource>,
    /// Scopes that weir requests. Default: `["openid", "email", "profile"]`.
    #[serde(default = "default_sign_in_scopes")]
    pub scopes: Vec<String>,
    /// Claim that names the user; Entra's directory knows users by `oid`. Default: `sub`.
    #[serde(default = "default_subject_claim")]
    pub subject_claim: String,
    /// Claim with the user's groups, as a list or a text. Default: `groups`.
    #[serde(default = "default_groups_claim")]
    pub groups_claim: String,
    /// Secret source of the token with which the issuer's directory provisions users and groups by SCIM 2.0, at
    /// `/scim/v2`. Groups then come from the directory instead of the claim. At least 32 bytes. Default: none.
    #[serde(default)]
    pub scim_token: Option<SecretSource>,
    /// Groups of administrators. Default: none.
    #[serde(default)]
    pub admin_groups: Vec<String>,
    /// Roles of groups in organisations, each `{ group = "…", organisation = "…", role = "…" }`. Default: none.
    #[serde(default)]
    pub roles: Vec<GroupRole>,
}

/// The role of a group's users in an organisation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRole {
    /// The group's name in the claim.
    pub group: String,
    /// The organisation's id.
    pub organisation: String,
    /// The role; of several groups, the highest counts.
    pub role: Role,
}

/// A signature algorithm. Algorithms with a shared secret, and `none`, are not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    RS256,
    /// RSASSA-PSS with SHA-256.
    PS256,
    /// ECDSA on P-256 with SHA-256.
    ES256,
    /// EdDSA on Ed25519.
    EdDSA,
}

impl Algorithm {
    /// All algorithms.
    pub(super) const ALL: [Self; 4] = [Self::RS256, Self::PS256, Self::ES256, Self::EdDSA];

    /// Parses a name in a header, by exact match.
    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RS256 => "RS256",
            Self::PS256 => "PS256",
            Self::ES256 => "ES256",
            Self::EdDSA => "EdDSA",
        }
    }
}

impl IdentitySettings {
    /// Returns the problems of the settings that their types do not exclude; each sentence names the setting.
    pub fn problems(&self, is_dev: bool) -> Vec<String> {
        let mut problems = Vec::new();
        if self.web.is_some() != self.attestation.is_some() {
            problems.push(
                "`identity.web` and `identity.attestation` need each other: a web request proves both"
                    .to_owned(),
            );
        }
        let mut accepted = Vec::new();
        for (name, issuer) in [("web", &self.web), ("attestation", &self.attestation)] {
            if let Some(issuer) = issuer {
                accepted.push((format!("identity.{name}"), issuer.clone()));
            }
        }
        if let Some(service) = &self.service {
            if service.allowed_emails.is_empty() && self.services.is_empty() {
                problems.push(
                    "`identity.service.allowed_emails` is empty and there is no `[[identity.services]]`: weir would reject every service"
                        .to_owned(),
                );
            }
            accepted.push(("identity.service".into(), service.api()));
            if let Some(executor) = service.executor() {
                accepted.push(("identity.service.executor_audience".into(), executor));
            }
        }
        problems.extend(self.service_problems());
        for (setting, issuer) in &accepted {
            problems.extend(issuer.problem(setting));
        }
        problems.extend(self.sign_in_problems(is_dev));
        for (index, sign_in) in self.sign_in.iter().enumerate() {
            accepted.push((format!("identity.sign_in[{index}]"), sign_in.id_tokens()));
        }
        for (index, (setting, issuer)) in accepted.iter().enumerate() {
            for (other, same) in &accepted[..index] {
                if (&issuer.issuer, &issuer.audience) == (&same.issuer, &same.audience) {
                    problems.push(format!(
                        "`{setting}` has the issuer and the audience of `{other}`: \
                         a token of one kind would pass for the other"
                    ));
                }
            }
        }
        if let Some(OutgoingSettings::ClientCredentials(client)) = &self.outgoing
            && let Err(problem) = parse_url(&client.token_url)
        {
            problems.push(format!(
                "`identity.outgoing.client_credentials.token_url` {problem}"
            ));
        }
        problems
    }
}

impl IdentitySettings {
    fn service_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.service.is_none() && !self.services.is_empty() {
            problems.push(
                "`identity.services` names services, and `identity.service`, the issuer of their tokens, is not set"
                    .to_owned(),
            );
        }
        for (index, service) in self.services.iter().enumerate() {
            let setting = format!("identity.services[{index}]");
            let name = match (&service.subject, &service.email) {
                (Some(name), None) | (None, Some(name)) => name,
                _ => {
                    problems.push(format!(
                        "`{setting}` needs either a `subject` or an `email` to identify the service"
                    ));
                    continue;
                }
            };
            if name.is_empty() {
                problems.push(format!("`{setting}`: the name is empty"));
            }
            let names = |other: &NamedService| (other.subject.clone(), other.email.clone());
            let others = &self.services[..index];
            if others.iter().any(|other| names(other) == names(service)) {
                problems.push(format!(
                    "`{setting}` names {name:?}, which an earlier entry names already"
                ));
            }
            if service.scopes.is_empty() {
                problems.push(format!(
                    "`{setting}.scopes` is empty: the service could do nothing"
                ));
            }
            let scopes = service.scopes.iter();
            for unknown in scopes.filter(|scope| !SERVICE_SCOPES.contains(&scope.as_str())) {
                problems.push(format!(
                    "`{setting}.scopes`: there is no scope {unknown:?}; use one of {}",
                    SERVICE_SCOPES.join(", ")
                ));
            }
        }
        problems
    }
}

impl IdentitySettings {
    fn sign_in_problems(&self, is_dev: bool) -> Vec<String> {
        let mut problems = Vec::new();
        for (index, sign_in) in self.sign_in.iter().enumerate() {
            let setting = format!("identity.sign_in[{index}]");
            let earlier = &self.sign_in[..index];
            if earlier.iter().any(|other| other.name == sign_in.name) {
                problems.push(format!(
                    "`{setting}.name` is {:?}, as in an earlier entry: users could not tell the buttons apart",
                    sign_in.name
                ));
            }
            if earlier.iter().any(|other| other.issuer == sign_in.issuer) {
                problems.push(format!(
                    "`{setting}.issuer` is {:?}, as in an earlier entry: an issuer has one client and one mapping of groups",
                    sign_in.issuer
                ));
            }
            let own = sign_in.problems(is_dev);
            problems.extend(own.map(|(field, problem)| format!("`{setting}.{field}` {problem}")));
        }
        problems
    }
}

impl SignInSettings {
    /// Whether a group grants a role.
    pub fn has_group(&self, name: &str) -> bool {
        let mapped = self.roles.iter().map(|role| &role.group);
        self.admin_groups
            .iter()
            .chain(mapped)
            .any(|group| group == name)
    }

    /// Returns the required claims of the issuer's ID tokens.
    pub(super) fn id_tokens(&self) -> IssuerSettings {
        IssuerSettings {
            issuer: self.issuer.clone(),
            audience: self.client_id.clone(),
            jwks_url: None,
            // Each key of the issuer verifies one of them.
            algorithms: Algorithm::ALL.to_vec(),
        }
    }

    /// Returns fields, each with its problem.
    fn problems(&self, is_dev: bool) -> impl Iterator<Item = (&'static str, String)> {
        let is_scope = |scope: &String| !scope.is_empty() && !scope.contains(char::is_whitespace);
        let roles = &self.roles;
        let checks = [
            ("name", self.name.trim().is_empty(), "is empty"),
            ("client_id", self.client_id.is_empty(), "is empty"),
            ("subject_claim", self.subject_claim.is_empty(), "is empty"),
            ("groups_claim", self.groups_claim.is_empty(), "is empty"),
            (
                "scopes",
                !self.scopes.iter().any(|scope| scope == "openid"),
                "lacks `openid`: the issuer would send no ID token",
            ),
            (
                "scopes",
                !self.scopes.iter().all(is_scope),
                "has a scope that is empty or contains a space",
            ),
            (
                "admin_groups",
                self.admin_groups.iter().any(String::is_empty),
                "has an empty name",
            ),
            (
                "roles",
                roles
                    .iter()
                    .any(|role| role.group.is_empty() || role.organisation.is_empty()),
                "has an entry with an empty group or organisation",
            ),
        ];
        let checks = checks.into_iter().filter(|(_, is_wrong, _)| *is_wrong);
        let checks = checks.map(|(field, _, problem)| (field, problem.to_owned()));
        checks.chain(
            self.issuer_problem(is_dev)
                .map(|problem| ("issuer", problem)),
        )
    }

    fn issuer_problem(&self, is_dev: bool) -> Option<String> {
        if self.issuer.starts_with(DEV_ISSUER_PREFIX) {
            return Some("is the name of development mode's own issuer".to_owned());
        }
        match parse_url(&self.issuer) {
            Err(problem) => Some(problem.to_owned()),
            Ok(url) if url.scheme() != "https" && !is_dev => {
                Some("must begin with https:// outside development mode".to_owned())
            }
            Ok(_) => None,
        }
    }
}

impl IssuerSettings {
    fn problem(&self, setting: &str) -> Option<String> {
        if self.audience.is_empty() {
            return Some(format!("`{setting}`: the audience is empty"));
        }
        if self.algorithms.is_empty() {
            return Some(format!("`{setting}.algorithms` is empty"));
        }
        if self.issuer.starts_with(DEV_ISSUER_PREFIX) {
            return Some(format!(
                "`{setting}.issuer` is the name of development mode's own issuer"
            ));
        }
        match &self.jwks_url {
            Some(url) => parse_url(url)
                .err()
                .map(|problem| format!("`{setting}.jwks_url` {problem}")),
            None => parse_url(&self.issuer).err().map(|problem| {
                format!(
                    "`{setting}.issuer` {problem}; set `jwks_url` if the issuer's name is not its address"
                )
            }),
        }
    }
}

impl ServiceSettings {
    /// The required claims at the API.
    pub fn api(&self) -> IssuerSettings {
        self.with_audience(self.audience.clone())
    }

    /// The required claims at the executor.
    pub fn executor(&self) -> Option<IssuerSettings> {
        Some(self.with_audience(self.executor_audience.clone()?))
    }

    fn with_audience(&self, audience: String) -> IssuerSettings {
        IssuerSettings {
            issuer: self.issuer.clone(),
            audience,
            jwks_url: self.jwks_url.clone(),
            algorithms: self.algorithms.clone(),
        }
    }
}

fn default_algorithms() -> Vec<Algorithm> {
    vec![Algorithm::RS256, Algorithm::ES256]
}

fn default_scope_claim() -> String {
    "scope".into()
}

fn default_sign_in_scopes() -> Vec<String> {
    ["openid", "email", "profile"].map(str::to_owned).into()
}

fn default_subject_claim() -> String {
    "sub".to_owned()
}

fn default_groups_claim() -> String {
    "groups".into()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use figment::Figment;
    use figment::providers::{Format, Toml};

    use super::*;

    const WEB: &str = "[identity.web]\nissuer = 'https://id.example'\naudience = 'app'\n";
    const ATTESTATION: &str =
        "[identity.attestation]\nissuer = 'https://check.example'\naudience = 'app'\n";
    const SERVICE: &str = "[identity.service]\nissuer = 'https://id.example'\naudience = 'api'\n\
                           executor_audience = 'executor'\nallowed_emails = ['a@b.example']\n";

    const NAMED: &str = "[[identity.services]]\nsubject = 'robot'\nscopes = ['swarm:run']\n";

    const SIGN_IN: &str =
        "[[identity.sign_in]]\nname = 'Acme'\nissuer = 'https://sso.example'\nclient_id = 'weir'\n";

    fn read(toml: &str) -> Result<IdentitySettings, String> {
        let settings = Figment::from(Toml::string(toml));
        let settings: IdentitySettings = settings
            .extract_inner("identity")
            .map_err(|error| error.to_string())?;
        let problems = settings.problems(false);
        match problems.is_empty() {
            true => Ok(settings),
            false => Err(problems.join("\n")),
        }
    }

    #[test]
    fn settings_that_fit_are_read() {
        let settings = read(&format!(
            "{WEB}algorithms = ['EdDSA', 'PS256']\n{ATTESTATION}{SERVICE}\
             [identity.outgoing.client_credentials]\ntoken_url = 'https://id.example/token'\n\
             client_id = 'weir'\nclient_secret = {{ env = 'SECRET' }}\n"
        ))
        .unwrap();
        let service = settings.service.unwrap();
        assert_eq!(service.scope_claim, "scope");
        assert_eq!(service.executor().unwrap().audience, "executor");
        assert!(read("identity.outgoing.file = '/run/token'").is_ok());
        let sign_in = read(SIGN_IN).unwrap().sign_in.remove(0);
        assert_eq!(sign_in.scopes.join(" "), "openid email profile");
        assert_eq!(sign_in.groups_claim, "groups");
        let by_name = SERVICE.replace("allowed_emails = ['a@b.example']\n", "");
        assert!(read(&format!("{by_name}{NAMED}")).is_ok());
    }

    #[test]
    fn settings_that_let_the_wrong_one_in_are_refused() {
        let dev = "[identity.web]\nissuer = 'urn:weir:dev:identity'\naudience = 'app'\n\
                   jwks_url = 'https://id.example/keys'\n";
        for (toml, problem) in [
            (WEB.to_owned(), "need each other"),
            (ATTESTATION.to_owned(), "need each other"),
            (
                format!("{WEB}{}", ATTESTATION.replace("check", "id")),
                "would pass for the other",
            ),
            (SERVICE.replace("'executor'", "'api'"), "would pass for"),
            (
                format!("{WEB}{ATTESTATION}{}", SERVICE.replace("'api'", "'app'")),
                "would pass for the other",
            ),
            (SERVICE.replace("'a@b.example'", ""), "reject every service"),
            (NAMED.to_owned(), "`identity.service`, the issuer"),
            (
                format!("{SERVICE}{NAMED}{NAMED}"),
                "`identity.services[1]` names",
            ),
            (
                format!("{SERVICE}{NAMED}email = 'a'\n"),
                "either a `subject` or an `email`",
            ),
            (
                format!("{SERVICE}{}", NAMED.replace("subject", "name")),
                "name",
            ),
            (
                format!("{SERVICE}{}", NAMED.replace("robot", "")),
                "the name is empty",
            ),
            (
                format!("{SERVICE}{}", NAMED.replace("'swarm:run'", "")),
                "could do nothing",
            ),
            (
                format!("{SERVICE}{}", NAMED.replace("swarm:run", "swarm:*")),
                "no scope \"swarm:*\"",
            ),
            (SERVICE.replace("https://id", "http://id"), "https://"),
            (SERVICE.replace("https://id.example", "id"), "jwks_url"),
            (format!("{SERVICE}algorithms = []"), "algorithms"),
            (format!("{SERVICE}algorithms = ['HS256']"), "HS256"),
            (format!("{SERVICE}algorithms = ['none']"), "none"),
            (format!("{SERVICE}leeway = 3600"), "leeway"),
            (format!("{dev}{ATTESTATION}"), "development mode"),
            (
                format!("{SIGN_IN}{}", SIGN_IN.replace("sso", "other")),
                "`identity.sign_in[1].name` is \"Acme\"",
            ),
            (
                format!("{SIGN_IN}{}", SIGN_IN.replace("Acme", "Other")),
                "`identity.sign_in[1].issuer` is \"https://sso.example\"",
            ),
            (
                SIGN_IN.replace("Acme", " "),
                "`identity.sign_in[0].name` is empty",
            ),
            (SIGN_IN.replace("'weir'", "''"), "client_id` is empty"),
            (
                SIGN_IN.replace("https://sso.example", "urn:weir:dev:identity"),
                "development mode's own",
            ),
            (SIGN_IN.replace("https", "http"), "https://"),
            (
                SIGN_IN.replace("https://sso.example", "http://127.0.0.1:9"),
                "outside development mode",
            ),
            (format!("{SIGN_IN}scopes = ['email']"), "lacks `openid`"),
            (
                format!("{SIGN_IN}scopes = ['openid email']"),
                "lacks `openid`",
            ),
            (
                format!("{SIGN_IN}groups_claim = ''"),
                "groups_claim` is empty",
            ),
            (format!("{SIGN_IN}admin_groups = ['']"), "empty name"),
            (
                format!("{SIGN_IN}roles = [{{ group = 'a', organisation = '', role = 'owner' }}]"),
                "empty group or organisation",
            ),
            (
                format!("{SIGN_IN}roles = [{{ group = 'a', organisation = 'b', role = 'king' }}]"),
                "king",
            ),
            (
                format!(
                    "{}{ATTESTATION}{}",
                    WEB.replace("id.", "sso."),
                    SIGN_IN.replace("'weir'", "'app'")
                ),
                "would pass for the other",
            ),
        ] {
            let error = read(&toml).unwrap_err();
            assert!(error.contains(problem), "{toml}\n{error}");
        }
    }
}
