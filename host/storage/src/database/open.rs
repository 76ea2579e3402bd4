//! The opening of a database, by the scheme of its URL.

use anyhow::Context;

use super::{Database, SqlDialect, Timeouts, postgres, sqlite};
use crate::secrets::SecretUrl;

impl Database {
    /// Opens a database and updates its schema; any number of processes may do so at once.
    ///
    /// `sqlite:PATH` is a file, created if absent; `sqlite::memory:` lives as long as this value;
    /// `postgres://USER:PASSWORD@HOST[,HOST…]/NAME` is an existing database, on the one of its hosts that accepts writes.
    pub async fn open(url: &SecretUrl) -> anyhow::Result<Self> {
        Self::open_with(url, Timeouts::default()).await
    }

    /// Opens a database as [`Self::open`] does, with other time limits.
    pub async fn open_with(url: &SecretUrl, timeouts: Timeouts) -> anyhow::Result<Self> {
        sqlx::any::install_default_drivers();
        match SqlDialect::of(url)? {
            SqlDialect::Sqlite => sqlite::open(url, timeouts).await,
            SqlDialect::Postgres => postgres::open(url, timeouts).await,
        }
        .with_context(|| format!("opening the database {url}"))
    }

    /// Connects to a database without changing it, and returns a description of its state.
    pub async fn probe(url: &SecretUrl) -> anyhow::Result<String> {
        sqlx::any::install_default_drivers();
        match SqlDialect::of(url)? {
            SqlDialect::Sqlite => sqlite::probe(url),
            SqlDialect::Postgres => postgres::probe(url).await,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use sqlx::Executor;

    use super::*;

    #[tokio::test]
    async fn an_in_memory_database_has_the_schema() {
        let database = Database::open(&SecretUrl::new("sqlite::memory:"))
            .await
            .unwrap();
        let users: i64 = sqlx::query_scalar("SELECT CAST(COUNT(*) AS BIGINT) FROM users")
            .fetch_one(database.reader())
            .await
            .unwrap();
        assert_eq!(users, 0);
        assert!(database.is_reachable().await);
    }

    #[tokio::test]
    async fn a_database_in_memory_is_nobody_elses() {
        let open = async || Database::open(&SecretUrl::new("sqlite::memory:")).await;
        let (first, second) = (open().await.unwrap(), open().await.unwrap());
        let insert = "INSERT INTO users (id, created_at) VALUES ('alice', 1)";
        first.writer().execute(insert).await.unwrap();
        second.writer().execute(insert).await.unwrap();
    }

    #[tokio::test]
    async fn other_databases_are_refused() {
        let error = Database::open(&SecretUrl::new("mysql://a:secret@b/c"))
            .await
            .unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "`database_url` must begin with sqlite: or postgres://"
        );
    }
}
