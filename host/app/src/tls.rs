//! TLS on the public listener: its certificate, and HTTP/2 or HTTP/1.1 by ALPN.
//!
//! The files are read every second rather than watched: the ways to replace them (a rename, a symbolic link with a new
//! target, a mount) differ more than their contents. Connections keep their initial certificate.
//!
//! **Invariant:** an invalid pair of files never replaces a valid one.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio_rustls::TlsAcceptor;

/// The name of HTTP/2 in ALPN.
pub const H2: &[u8] = b"h2";

/// Interval between reads of the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// `[tls]`: the public listener's certificate. If it is set, the listener speaks only TLS.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSettings {
    /// PEM file of the certificate, followed by intermediate certificates. Required.
    pub certificate: PathBuf,
    /// PEM file of the private key. Required.
    pub key: PathBuf,
}

/// The active certificate, and its files.
pub struct Tls {
    settings: TlsSettings,
    config: Arc<ServerConfig>,
    served: Arc<ServedCertificate>,
    /// The digest of the files at their last load.
    taken: [u8; 32],
}

/// The certificate for new connections.
#[derive(Debug)]
struct ServedCertificate(RwLock<Arc<CertifiedKey>>);

/// The contents of both files.
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Tls {
    /// Reads the files; the error names the invalid one.
    pub fn read(settings: &TlsSettings) -> anyhow::Result<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let files = Files::read(settings)?;
        let served = Arc::new(ServedCertificate(RwLock::new(
            files.parse(settings, &provider)?,
        )));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("cannot set up TLS")?
            .with_no_client_auth()
            .with_cert_resolver(served.clone());
        config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            settings: settings.clone(),
            config: Arc::new(config),
            served,
            taken: files.digest(),
        })
    }

    pub fn acceptor(&self) -> TlsAcceptor {
        self.config.clone().into()
    }

    /// Makes an acceptor without HTTP/2.
    pub fn http1_acceptor(&self) -> TlsAcceptor {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Arc::new(config).into()
    }

    /// Reloads the files when they change, for ever.
    pub async fn follow(&self) {
        let mut known = Ok(self.taken);
        let mut doubted = None;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let (settings, provider) =
                (self.settings.clone(), self.config.crypto_provider().clone());
            let look = move || {
                let files = Files::read(&settings).map_err(|error| format!("{error:#}"));
                let found = files.as_ref().map(Files::digest).map_err(String::clone);
                let parsed = files.and_then(|files| {
                    let parsed = files.parse(&settings, &provider);
                    parsed.map_err(|error| format!("{error:#}"))
                });
                (found, parsed)
            };
            let Ok((found, parsed)) = tokio::task::spawn_blocking(look).await else {
                continue;
            };
            if found == known {
                doubted = None;
                continue;
            }
            match parsed {
                Ok(certificate) => {
                    self.served.replace(certificate);
                    tracing::info!("reloaded the certificate; new connections use it");
                    known = found;
                }
                // One of the two files may be incomplete.
                Err(_) if doubted.as_ref() != Some(&found) => doubted = Some(found),
                Err(error) => {
                    tracing::error!(
                        error,
                        "the new files of `tls` are invalid; new connections use the previous certificate"
                    );
                    known = found;
                }
            }
        }
    }
}

impl ServedCertificate {
    fn replace(&self, certificate: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = certificate;
    }
}

impl ResolvesServerCert for ServedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(
            self.0
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        )
    }
}

impl Files {
    fn read(settings: &TlsSettings) -> anyhow::Result<Self> {
        let read = |setting: &str, path: &PathBuf| {
            fs::read(path).with_context(|| format!("`tls.{setting}`: reading {}", path.display()))
        };
        Ok(Self {
            certificate: read("certificate", &settings.certificate)?,
            key: read("key", &settings.key)?,
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for file in [&self.certificate, &self.key] {
            digest.update((file.len() as u64).to_be_bytes());
            digest.update(file);
        }
        digest.finalize().into()
    }

    fn parse(
        &self,
        settings: &TlsSettings,
        provider: &CryptoProvider,
    ) -> anyhow::Result<Arc<CertifiedKey>> {
        let TlsSettings { certificate, key } = settings;
        let (certificate, key) = (certificate.display(), key.display());
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&self.certificate)
            .collect::<Result<_, _>>()
            .with_context(|| format!("`tls.certificate`: {certificate} is not PEM"))?;
        ensure!(
            !chain.is_empty(),
            "`tls.certificate`: {certificate} has no certificate in PEM"
        );
        let private = PrivateKeyDer::from_pem_slice(&self.key)
            .with_context(|| format!("`tls.key`: {key} has no private key in PEM"))?;
        let pair = CertifiedKey::from_der(chain, private, provider)
            .with_context(|| format!("`tls`: {key} is not the key of {certificate}"))?;
        Ok(Arc::new(pair))
    }
}
