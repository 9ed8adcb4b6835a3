//! Checkpoints on disk: families of names, hostile files, and faults that an audit must name.

#![cfg(feature = "cli")]
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod again;
mod command;
mod commands;
mod families;
mod faults;
mod hostile;
mod invent;
mod killed;
mod padded;
mod scene;
mod verified;
