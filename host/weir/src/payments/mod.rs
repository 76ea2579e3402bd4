//! Payments: how users buy plans and credits, and what the processor's events come to.
