//! Placeholder until its author lands it.
