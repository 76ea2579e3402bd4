//! The admin socket, through which commands on this machine contact a running gateway.
//!
//! A Unix socket in the data folder, of mode 0600: a process that may open it operates the gateway as an administrator,
//! without a key or a token. The kernel reports the peer's user, and the audit log records changes with that user. The
//! socket exists unless `admin_socket = false`.
//!
//! **Invariant:** another user can never connect: the socket listens only once its mode is set.
//! **Invariant:** the socket belongs to one gateway, which holds the lock beside it. A new gateway replaces the socket
//! of a crashed one.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{UnixListener, UnixSocket};
use tokio::sync::Semaphore;
use tower_service::Service;
use weir_identity::admin::LocalPeer;
use weir_storage::file_lock::FileLock;

use super::connection_closer::ConnectionCloser;

/// Concurrent connections; more wait in the kernel's queue, which has as many places.
const CONNECTIONS: u16 = 64;

/// Time limit of a request's head: the client is on this machine.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The bound socket. Dropping it removes the file.
pub struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
    _lock: FileLock,
}

impl AdminSocket {
    /// Binds the socket at this path, and replaces a socket without an owner.
    pub fn bind(path: &Path) -> anyhow::Result<Self> {
        let Some(lock) = FileLock::try_exclusive(&path.with_extension("lock"))? else {
            bail!(
                "another gateway uses the admin socket {}; stop it, or give this gateway its own `data_dir`, or set \
                 `admin_socket = false`",
                path.display()
            );
        };
        remove_stale(path)?;
        let listener = listen(path).with_context(|| format!("listening on {}", path.display()))?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            _lock: lock,
        })
    }

    pub(super) async fn accept(&self, routes: Router, connections: &ConnectionCloser) {
        let mut server = http1::Builder::new();
        server
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT);
        let places = Arc::new(Semaphore::new(CONNECTIONS.into()));
        loop {
            let place = places.clone().acquire_owned().await;
            let accepted = self.listener.accept().await;
            let peer = accepted.and_then(|(stream, _)| Ok((stream.peer_cred()?.uid(), stream)));
            let (uid, stream) = match peer {
                Ok(peer) => peer,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection at the admin socket");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let routes = routes.clone();
            let service = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(LocalPeer { uid });
                routes.clone().call(request)
            });
            let connection = server.serve_connection(TokioIo::new(stream), service);
            let closing = connections.clone();
            connections.spawn(async move {
                let mut connection = pin!(connection);
                let ended = tokio::select! {
                    biased;
                    ended = connection.as_mut() => ended,
                    () = closing.due() => {
                        connection.as_mut().graceful_shutdown();
                        connection.await
                    }
                };
                if let Err(error) = ended {
                    tracing::debug!(%error, "connection closed");
                }
                drop(place);
            });
        }
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, "cannot remove the admin socket");
        }
    }
}

/// This gateway holds the lock, so an existing socket has no owner.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => bail!(
            "{} exists and is not a socket; move it away",
            path.display()
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.with_context(|| format!("replacing {}", path.display()))
}

fn listen(path: &Path) -> std::io::Result<UnixListener> {
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(CONNECTIONS.into())
}
