//! Tasks: swarms that their owner defines once, and that are started again and again: by hand, by a queue's message, or by
//! a schedule.
//!
//! A definition ([`definition`]) is kept as its owner wrote it ([`store`]), and read anew at each start, by the very code that
//! reads `POST /swarms`: which models and tools there are, and what the owner's plan allows, is decided then. A start
//! ([`start`]) has a cause, such as a message's id, under which the swarm is asked for: the same cause starts it once.
//! Executors look for schedules that are due ([`timer`]). The agents' tools may prove themselves by what their task keeps
//! for them ([`credentials`]).
//!
//! A task keeps the API key that it was defined with: each start is refused if that key was revoked or has expired, and its
//! swarm has the key's models and budgets.
//!
//! **Invariant:** a cause starts at most one run, however often and wherever it is seen.
//! **Invariant:** a slot of a schedule is claimed by one node, in the transaction that moves the schedule on.
//!
//! | To … | touch |
//! |---|---|
//! | change the fields of a task | [`definition`]; for its swarm, [`crate::swarm::request`] |
//! | change the times of schedules, or the rules for missed ones | [`schedule`], [`timer`] |
//! | change the form of a credential, or its targets | [`credentials`], [`crate::tools::rules::bind`] |
//! | add a trigger | [`store::Trigger`], a migration, and the code that fires it |

pub mod credentials;
pub mod definition;
pub mod routes;
pub mod schedule;
pub mod start;
pub mod store;
pub mod timer;
