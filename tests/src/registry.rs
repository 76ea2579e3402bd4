//! `Registry`: a real OCI registry on a free port, with its blobs in a folder of its own.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use crate::stores::{Folder, Server, as_unprivileged};

/// The user of a registry with a password.
pub const REGISTRY_USER: &str = "alice";

/// The password of that user. No output may contain it.
pub const REGISTRY_PASSWORD: &str = "registry-secret-123";

/// The password in bcrypt, the only form that the registry reads.
const PASSWORD_FILE: &str = "alice:$2b$05$abcdefghijklmnopqrstuuhxPeeyH3786o9NEHeIBG0hXkC1uUepC\n";

/// An empty registry. Stopped when dropped.
pub struct Registry {
    server: Server,
}

impl Registry {
    /// Starts a registry without authentication.
    pub fn start() -> Self {
        Self::with("")
    }

    /// Starts a registry for [`REGISTRY_USER`] alone.
    pub fn with_password() -> Self {
        Self::with("auth: { htpasswd: { realm: it, path: htpasswd } }\n")
    }

    fn with(auth: &str) -> Self {
        let folder = Folder::new();
        let password = folder.write("htpasswd", PASSWORD_FILE);
        let auth = auth.replace("path: htpasswd", &format!("path: {}", password.display()));
        let server = Server::start(folder, |folder, port| {
            let data = folder.path().join("data");
            let config = format!(
                "version: 0.1\nlog: {{ accesslog: {{ disabled: true }} }}\n\
                 storage: {{ filesystem: {{ rootdirectory: {} }} }}\n\
                 http: {{ addr: '127.0.0.1:{port}' }}\n{auth}",
                data.display()
            );
            let config = folder.write("config.yml", &config);
            let mut command = as_unprivileged(Path::new("docker-registry"));
            command.arg("serve").arg(config);
            command
        });
        server.wait_until(|port| TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { server }
    }

    /// The registry's address.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.server.port()).into()
    }

    /// Returns the reference of an artifact.
    pub fn reference(&self, name_and_tag: &str) -> String {
        format!("oci://{}/{name_and_tag}", self.address())
    }
}
