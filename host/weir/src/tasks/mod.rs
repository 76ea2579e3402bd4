//! Tasks: swarms that their owner defines once, and that are started again and again: by hand, by a queue's message, or by
//! a schedule.
//!
//! A definition ([`definition`]) is kept as its owner wrote it ([`store`]), and read anew at each start, by the very code that
//! reads `POST /swarms`: which models and tools there are, and what the owner's plan allows, is decided then. A start
//! ([`start`]) has a cause, such as a message's id, under which the swarm is asked for: the same cause starts it once.
//! Executors look for schedules that are due ([`timer`]). The agents' tools may prove themselves by what their task keeps
//! for them ([`crate::tools::task_credentials`]).
//!
//! A task keeps the API key that it was defined with: each start is refused if that key was revoked or has expired, and its
//! swarm has the key's models and budgets.
//!
//! **Invariant:** a cause starts at most one run, however often and wherever it is seen.
//! **Invariant:** a slot of a schedule is claimed by one node, in the transaction that moves the schedule on.
//!
//! | To … | touch |
//! |---|---|
//! | change what a task may be | [`definition`]; of its swarm, [`crate::swarm::request`] |
//! | change when schedules fire, or what is skipped | [`schedule`], [`timer`] |
//! | change what a credential may be, or where it is sent | [`crate::tools::task_credentials`], [`crate::tools::rules::bind`] |
//! | take another trigger | [`store::Trigger`], a migration, and who brings it about |

pub mod bodies;
pub mod definition;
pub mod routes;
pub mod schedule;
pub mod start;
pub mod store;
pub mod timer;
