//! The check that a component loads on every live node, before a slot serves with it.
//!
//! Nodes run different binaries during an upgrade, and may trust different publishers. The node that activates a component asks all
//! live nodes, and writes nothing unless each has loaded the component.

use std::time::Duration;

use tokio::time::Instant;
use weir_ledger::BootId;
use weir_ledger::Ledger;
use weir_sandbox::Digest;
use weir_storage::clock::Clock;
use weir_storage::database::SqlDialect;
use weir_storage::{Cache, Database};

use super::Plugins;
use super::operate::Stores;
use crate::OperationError;
use crate::store::{self, LoadAnswer, Question};

/// How long nodes have for their answers. One may compile the component first, behind others.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often answers are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The nodes that are live, as one of them sees it.
#[derive(Clone, Copy)]
pub struct Fleet<'a> {
    /// Knows which nodes are live.
    pub ledger: &'a Ledger,
    /// Tells the time by which old questions are forgotten.
    pub clock: &'a Clock,
}

impl Plugins {
    /// Asks all other live nodes whether they can load a component that this one has loaded, and waits for their answers.
    ///
    /// # Errors
    ///
    /// [`OperationError::NotEverywhere`] names a node that cannot, or has not answered in time.
    pub async fn ask_all(
        &self,
        Stores { database, cache }: Stores<'_>,
        fleet: Fleet<'_>,
        slot: &str,
        digest: Digest,
    ) -> Result<(), OperationError> {
        if is_alone(database) || fleet.others().await?.is_empty() {
            return Ok(());
        }
        let question = store::ask(database, slot, digest, fleet.clock.now()).await?;
        let answered = fleet.wait(database, cache, &question).await;
        if let Err(error) = store::take_back(database, &question, fleet.clock.now()).await {
            tracing::warn!(%error, "taking back a question to all nodes");
        }
        answered
    }

    /// Answers what other nodes have asked, each question in a task of its own: a component may have to be compiled.
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

/// Whether no node of another binary can share the database: the processes of a SQLite file run on one machine.
fn is_alone(database: &Database) -> bool {
    database.dialect() == SqlDialect::Sqlite
}

impl Fleet<'_> {
    async fn others(&self) -> sqlx::Result<Vec<BootId>> {
        let own = self.ledger.boot_id();
        let mut live = self.ledger.live_runs().await?;
        live.retain(|node| node != own);
        Ok(live)
    }

    /// Waits until each node that is live by then has answered that it can.
    async fn wait(
        &self,
        database: &Database,
        cache: &Cache,
        question: &str,
    ) -> Result<(), OperationError> {
        if let Err(error) = cache.announce().await {
            tracing::warn!(%error, "telling other nodes that they are asked");
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let answers = store::answers(database, question).await?;
            let others = self.others().await?;
            let is_live = |answer: &LoadAnswer| others.iter().any(|o| o.as_str() == answer.boot_id);
            let cannot = answers.iter().filter(|answer| is_live(answer));
            let mut cannot = cannot.filter_map(|answer| {
                let problem = answer.problem.as_ref()?;
                Some(format!("on the node {}, {problem}", answer.boot_id))
            });
            if let Some(problem) = cannot.next() {
                return Err(OperationError::NotEverywhere(problem));
            }
            let has_answered = |node: &&BootId| answers.iter().any(|a| a.boot_id == node.as_str());
            let Some(silent) = others.iter().find(|node| !has_answered(node)) else {
                return Ok(());
            };
            if Instant::now() >= until {
                let silent = silent.as_str();
                return Err(OperationError::NotEverywhere(format!(
                    "the node {silent} has not answered within {} s; one of an earlier release cannot",
                    PATIENCE.as_secs()
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
