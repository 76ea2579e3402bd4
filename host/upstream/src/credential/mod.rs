//! Credentials of providers: a fixed secret, or one that weir obtains and renews.
//!
//! - [`settings`]: how the configuration names them.
//! - [`mint`]: the requests that obtain a token, one for each kind of issuer.
//! - [`aws`]: AWS's credentials and its signature of a request.
//!
//! A token is renewed once, before it ends, by the first request that sees the time; the others go on with the old one. If
//! the renewal fails, the old token serves until it ends.
//!
//! **Invariant:** no token reaches a guest, a log or an error.

pub mod aws;
pub mod mint;
pub mod settings;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use weir_storage::secrets::Secret;

use self::aws::AwsScope;
use self::mint::{Mint, MintError, Minted};

/// A token is renewed when this share of its lifetime is over.
const RENEWED_AFTER: f64 = 0.8;

/// A token is renewed at least this long before it ends, if it lives longer.
const RENEWED_BEFORE_END: Duration = Duration::from_secs(300);

/// A pause after a failed renewal.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The least age of a token that is renewed because the provider refused it: a provider that refuses each new token must
/// not cause a renewal for each request.
const LEAST_REFUSED_AGE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub enum Credential {
    /// A secret of the configuration.
    Fixed(Secret),
    /// A token for the provider's credential slot.
    Token(Arc<Renewed>),
    /// Keys that sign each request.
    Aws(Arc<Renewed>, AwsScope),
}

/// The authorization of one request.
#[derive(Debug, Clone)]
pub enum Authorization<'a> {
    /// A secret of the configuration.
    Fixed(&'a Secret),
    Token(Arc<Minted>),
    /// Keys that sign the request.
    Aws(Arc<Minted>, &'a AwsScope),
}

/// A credential that is obtained and renewed.
pub struct Renewed {
    mint: Mint,
    current: Mutex<Option<Current>>,
    /// Permits one renewal at a time.
    renewal: tokio::sync::Mutex<()>,
}

/// The state of a renewed credential.
struct Current {
    latest: Result<Arc<Minted>, MintError>,
    asked_at: Instant,
    renew_at: Instant,
    ends_at: Instant,
}

impl Credential {
    /// Returns the authorization of a request that is sent now.
    ///
    /// # Errors
    ///
    /// The reason for which no token can be obtained.
    pub async fn authorize(&self) -> Result<Authorization<'_>, MintError> {
        Ok(match self {
            Self::Fixed(secret) => Authorization::Fixed(secret),
            // Boxed, so that a request with a fixed secret has no room for it.
            Self::Token(renewed) => Authorization::Token(Box::pin(renewed.current()).await?),
            Self::Aws(renewed, scope) => {
                Authorization::Aws(Box::pin(renewed.current()).await?, scope)
            }
        })
    }

    /// Renews the credential before the next request, because the provider has refused it, unless it is fixed or new.
    pub fn refuse(&self) {
        match self {
            Self::Fixed(_) => {}
            Self::Token(renewed) | Self::Aws(renewed, _) => renewed.expire(),
        }
    }

    /// Whether both are the same secret. Tokens of two issuers always differ: their sources are not compared.
    pub fn is_same_secret(&self, other: &Self) -> bool {
        match (self.fixed(), other.fixed()) {
            (Some(one), Some(other)) => one.expose() == other.expose(),
            _ => false,
        }
    }

    /// Returns the fixed secret, if it is one.
    pub fn fixed(&self) -> Option<&Secret> {
        match self {
            Self::Fixed(secret) => Some(secret),
            Self::Token(_) | Self::Aws(..) => None,
        }
    }
}

impl Authorization<'_> {
    /// Returns the secret that the request shows to the provider, if it shows one.
    pub fn shown(&self) -> Option<&str> {
        match self {
            Self::Fixed(secret) => Some(secret.expose()),
            Self::Token(minted) => minted.token(),
            Self::Aws(minted, _) => minted.aws()?.session_token.as_ref().map(Secret::expose),
        }
    }

    /// Returns the secret for the provider's credential slot, if it has one.
    pub fn for_slot(&self) -> Option<&str> {
        match self {
            Self::Fixed(_) | Self::Token(_) => self.shown(),
            Self::Aws(..) => None,
        }
    }

    /// Signs a request, if the credential is a signature.
    pub fn sign(&self, request: &mut http::Request<Bytes>) {
        if let Self::Aws(minted, scope) = self
            && let Some(keys) = minted.aws()
        {
            aws::sign(request, keys, scope, std::time::SystemTime::now());
        }
    }
}

impl Renewed {
    /// A credential of this issuer, which is obtained for the first request.
    pub fn new(mint: Mint) -> Arc<Self> {
        Arc::new(Self {
            mint,
            current: Mutex::default(),
            renewal: tokio::sync::Mutex::default(),
        })
    }

    async fn current(self: &Arc<Self>) -> Result<Arc<Minted>, MintError> {
        let now = Instant::now();
        if let Some(usable) = self.usable(now) {
            let (minted, is_due) = usable?;
            if is_due && self.renewal.try_lock().is_ok() {
                let renewed = self.clone();
                tokio::spawn(async move { renewed.renew().await });
            }
            return Ok(minted);
        }
        self.renew().await;
        match self.usable(Instant::now()) {
            Some(usable) => Ok(usable?.0),
            None => Err(MintError::Expired),
        }
    }

    /// Returns the latest token, and whether it must be renewed; `None` if none is valid.
    fn usable(&self, now: Instant) -> Option<Result<(Arc<Minted>, bool), MintError>> {
        let current = self.lock();
        let current = current.as_ref()?;
        if now >= current.ends_at {
            return None;
        }
        let is_due = now >= current.renew_at;
        Some(current.latest.clone().map(|minted| (minted, is_due)))
    }

    /// Obtains a token, unless another request has done so meanwhile.
    async fn renew(&self) {
        let _turn = self.renewal.lock().await;
        let asked_at = Instant::now();
        if let Some(Ok((_, false)) | Err(_)) = self.usable(asked_at) {
            return;
        }
        let minted = self.mint.obtain().await;
        let mut current = self.lock();
        match minted {
            Ok((minted, lifetime)) => {
                let early = lifetime.mul_f64(RENEWED_AFTER);
                let early = match lifetime > RENEWED_BEFORE_END * 2 {
                    true => early.min(lifetime - RENEWED_BEFORE_END),
                    false => early,
                };
                *current = Some(Current {
                    latest: Ok(Arc::new(minted)),
                    asked_at,
                    renew_at: asked_at + early,
                    ends_at: asked_at + lifetime,
                });
            }
            Err(error) => {
                tracing::error!(issuer = self.mint.name(), %error, "cannot obtain a provider's credential");
                let retry_at = Instant::now() + RETRY_PAUSE;
                match &mut *current {
                    Some(current) if current.latest.is_ok() && asked_at < current.ends_at => {
                        current.renew_at = retry_at;
                    }
                    current => {
                        // Requests within the pause get the same error.
                        *current = Some(Current {
                            latest: Err(error),
                            asked_at,
                            renew_at: retry_at,
                            ends_at: retry_at,
                        });
                    }
                }
            }
        }
    }

    fn expire(&self) {
        let mut current = self.lock();
        let is_old = |current: &Current| current.asked_at.elapsed() >= LEAST_REFUSED_AGE;
        if current.as_ref().is_some_and(is_old) {
            *current = None;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Current>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Renewed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Renewed({})", self.mint.name())
    }
}
