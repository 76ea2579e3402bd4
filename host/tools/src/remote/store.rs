//! The pinned definitions of remote tools: the table `mcp_tools`.

use serde::{Deserialize, Serialize};
use sqlx::Row;
use sqlx::any::AnyRow;
use utoipa::ToSchema;
use weir_storage::Database;
use weir_storage::clock::Millis;

#[derive(Clone)]
pub struct PinStore {
    database: Database,
}

/// A known tool.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PinnedTool {
    /// The server's name in the configuration.
    pub server: String,
    /// The tool's own name.
    pub tool: String,
    /// Digest of the pinned definition.
    pub digest: String,
    /// Pinned definition, as canonical JSON.
    pub definition: String,
    /// Digest of the server's later, unapproved definition; null while it is unchanged.
    pub changed_digest: Option<String>,
    /// Unapproved definition.
    pub changed_definition: Option<String>,
}

/// The result of a comparison with the pin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ToolChange {
    /// The tool is unchanged.
    Same,
    /// The tool has changed, and this node is the first to see it.
    Changed,
    /// The tool has changed before, without approval.
    Disabled,
}

impl PinStore {
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// Compares a tool with its pin; pins a new tool.
    pub(super) async fn look(
        &self,
        (server, tool): (&str, &str),
        (digest, definition): (&str, &str),
        now: Millis,
    ) -> sqlx::Result<ToolChange> {
        sqlx::query(
            "INSERT INTO mcp_tools (server, tool, digest, definition, pinned_at) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (server, tool) DO NOTHING",
        )
        .bind(server)
        .bind(tool)
        .bind(digest)
        .bind(definition)
        .bind(now.0)
        .execute(self.database.writer())
        .await?;
        if self.serves(server, tool, digest).await? {
            return Ok(ToolChange::Same);
        }
        // A changed tool stays disabled, even if the server reverts the change.
        let changed = sqlx::query(
            "UPDATE mcp_tools SET changed_digest = $3, changed_definition = $4, changed_at = $5 \
             WHERE server = $1 AND tool = $2 AND (changed_digest IS NULL OR changed_digest <> $3) \
             AND (digest <> $3 OR changed_digest IS NOT NULL)",
        )
        .bind(server)
        .bind(tool)
        .bind(digest)
        .bind(definition)
        .bind(now.0)
        .execute(self.database.writer())
        .await?;
        Ok(match changed.rows_affected() {
            0 => ToolChange::Disabled,
            _ => ToolChange::Changed,
        })
    }

    /// Whether a tool matches its pin, as far as any node has seen.
    pub(super) async fn serves(
        &self,
        server: &str,
        tool: &str,
        digest: &str,
    ) -> sqlx::Result<bool> {
        let row = sqlx::query(
            "SELECT 1 FROM mcp_tools WHERE server = $1 AND tool = $2 AND digest = $3 AND changed_digest IS NULL",
        )
        .bind(server)
        .bind(tool)
        .bind(digest)
        .fetch_optional(self.database.reader())
        .await?;
        Ok(row.is_some())
    }

    /// Returns all pins, by name.
    pub(super) async fn list(&self) -> sqlx::Result<Vec<PinnedTool>> {
        let rows = sqlx::query(
            "SELECT server, tool, digest, definition, changed_digest, changed_definition FROM mcp_tools \
             ORDER BY server, tool",
        )
        .fetch_all(self.database.reader())
        .await?;
        let read = |row: &AnyRow| {
            Ok(PinnedTool {
                server: row.try_get("server")?,
                tool: row.try_get("tool")?,
                digest: row.try_get("digest")?,
                definition: row.try_get("definition")?,
                changed_digest: row.try_get("changed_digest")?,
                changed_definition: row.try_get("changed_definition")?,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Approves a change. Returns `false` if the digest is not the latest change.
    pub(super) async fn approve(
        &self,
        (server, tool): (&str, &str),
        digest: &str,
        now: Millis,
    ) -> sqlx::Result<bool> {
        let approved = sqlx::query(
            "UPDATE mcp_tools SET digest = changed_digest, definition = changed_definition, pinned_at = $4, \
             changed_digest = NULL, changed_definition = NULL, changed_at = NULL \
             WHERE server = $1 AND tool = $2 AND changed_digest = $3",
        )
        .bind(server)
        .bind(tool)
        .bind(digest)
        .bind(now.0)
        .execute(self.database.writer())
        .await?;
        Ok(approved.rows_affected() > 0)
    }
}
