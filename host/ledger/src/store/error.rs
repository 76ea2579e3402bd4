//! The reasons why a batch has no outcomes.

use super::rows::UnreadableRow;

/// The reason why a batch has no outcomes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerStoreError {
    /// The database could not do the batch now, and has done none of it.
    #[error("the database is unavailable: {0}")]
    Unavailable(String),
    /// The database may have done all of it, or none.
    #[error("the result of a commit was lost: {0}")]
    Unknown(String),
    /// The database rejects the batch, and has done none of it.
    #[error("the database rejects the batch: {0}")]
    Rejected(String),
}

/// An error before the commit, after which nothing is done.
#[derive(Debug, thiserror::Error)]
pub(super) enum CommitFailure {
    #[error(transparent)]
    Sqlx(#[from] sqlx::Error),
    #[error(transparent)]
    Native(#[from] rusqlite::Error),
    #[error(transparent)]
    Unreadable(#[from] UnreadableRow),
    #[error("{written} of {wanted} rows were written: an id belongs to another account")]
    Incomplete { written: u64, wanted: usize },
}

impl CommitFailure {
    pub(super) fn unless_all(written: u64, wanted: usize) -> Result<(), Self> {
        if written == wanted as u64 {
            Ok(())
        } else {
            Err(Self::Incomplete { written, wanted })
        }
    }

    /// Returns whether every retry would fail, too.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Incomplete { .. } | Self::Unreadable(_) => true,
            Self::Sqlx(sqlx::Error::Database(error)) => {
                // PostgreSQL's classes: unsupported features, data exceptions, constraints, syntax errors, exceeded
                // limits.
                let code = error.code().unwrap_or_default();
                ["0A", "21", "22", "23", "42", "54", "P0"]
                    .iter()
                    .any(|class| code.starts_with(class))
            }
            Self::Sqlx(
                sqlx::Error::ColumnDecode { .. }
                | sqlx::Error::Decode(_)
                | sqlx::Error::Encode(_)
                | sqlx::Error::ColumnNotFound(_),
            ) => true,
            Self::Sqlx(_) => false,
            // SQLite's low byte is an error, a constraint, a wrong type, or a value that is too large.
            Self::Native(error) => error
                .sqlite_error()
                .is_none_or(|error| matches!(error.extended_code & 0xff, 1 | 18 | 19 | 20)),
        }
    }
}

impl From<CommitFailure> for LedgerStoreError {
    fn from(failure: CommitFailure) -> Self {
        let text = failure.to_string();
        if failure.is_refusal() {
            Self::Rejected(text)
        } else {
            Self::Unavailable(text)
        }
    }
}
