//! The check that a component loads on every live node, before a slot serves with it.
//!
//! Nodes run different binaries during an upgrade, and may trust different publishers. The node that activates a component asks all
//! live nodes, and writes nothing unless each has loaded the component.

use std::time::Duration;

use tokio::time::Instant;
use weir_ledger::{BootId, Ledger};
use weir_sandbox::Digest;
use weir_storage::database::SqlDialect;
use weir_storage::{Cache, Database};

use super::Plugins;
use super::operate::Stores;
use crate::OperationError;
use crate::store::{self, LoadAnswer, Question};

/// Least time limit for the answers of nodes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time between two polls for answers.
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl Plugins {
    /// Asks all other live nodes whether they can load a component that this node has loaded, and waits for their
    /// answers.
    ///
    /// # Errors
    ///
    /// [`OperationError::NotEverywhere`] names a node that cannot load it, or has not answered in time.
    pub async fn ask_live_nodes(
        &self,
        Stores { database, cache }: Stores<'_>,
        ledger: &Ledger,
        slot: &str,
        digest: Digest,
    ) -> Result<(), OperationError> {
        if is_alone(database) || others(ledger).await?.is_empty() {
            return Ok(());
        }
        let question = store::ask(database, slot, digest, ledger.now()).await?;
        // A node may compile the component first.
        let patience = PATIENCE.max(self.0.loader.compiler.timeout());
        let answered = wait(database, cache, ledger, &question, patience).await;
        if let Err(error) = store::take_back(database, &question, ledger.now()).await {
            tracing::warn!(%error, "taking back a question to all nodes");
        }
        answered
    }

    /// Answers the questions of other nodes, each in a task of its own: a component may have to be compiled.
    pub(super) async fn answer_all(
        &self,
        database: &Database,
        boot_id: &BootId,
    ) -> sqlx::Result<()> {
        if is_alone(database) {
            return Ok(());
        }
        for question in store::unanswered(database, boot_id.as_str()).await? {
            if !self.lock_synced().answering.insert(question.id.clone()) {
                continue;
            }
            let (plugins, database, boot_id) = (self.clone(), database.clone(), boot_id.clone());
            tokio::spawn(async move {
                let Question { id, slot, digest } = question;
                let problem = match plugins.find(&database, &slot, digest).await {
                    Ok(_) => None,
                    Err(error) => Some(error.to_string()),
                };
                let boot_id = boot_id.as_str().to_owned();
                let answer = LoadAnswer { boot_id, problem };
                if let Err(error) = store::answer(&database, &id, &answer).await {
                    tracing::warn!(slot, %digest, %error, "answering whether a component loads here");
                }
                plugins.lock_synced().answering.remove(&id);
            });
        }
        Ok(())
    }
}

/// Returns whether only one binary can use the database: the processes of a SQLite file run on one machine.
fn is_alone(database: &Database) -> bool {
    database.dialect() == SqlDialect::Sqlite
}

/// The other live nodes.
async fn others(ledger: &Ledger) -> sqlx::Result<Vec<BootId>> {
    let own = ledger.boot_id();
    let mut live = ledger.live_runs().await?;
    live.retain(|node| node != own);
    Ok(live)
}

/// Waits until each node that is live by then has answered that it can.
async fn wait(
    database: &Database,
    cache: &Cache,
    ledger: &Ledger,
    question: &str,
    patience: Duration,
) -> Result<(), OperationError> {
    if let Err(error) = cache.announce().await {
        tracing::warn!(%error, "announcing a question to other nodes");
    }
    let until = Instant::now() + patience;
    loop {
        let answers = store::answers(database, question).await?;
        let others = others(ledger).await?;
        let mut silent = None;
        for node in &others {
            match answers
                .iter()
                .find(|answer| answer.boot_id == node.as_str())
            {
                Some(LoadAnswer {
                    problem: Some(problem),
                    ..
                }) => {
                    let node = node.as_str();
                    let problem = format!("on the node {node}, {problem}");
                    return Err(OperationError::NotEverywhere(problem));
                }
                Some(_) => {}
                None => silent = silent.or(Some(node)),
            }
        }
        let Some(silent) = silent else {
            return Ok(());
        };
        if Instant::now() >= until {
            let silent = silent.as_str();
            return Err(OperationError::NotEverywhere(format!(
                "the node {silent} has not answered within {} s; one of an earlier release cannot",
                patience.as_secs()
            )));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
