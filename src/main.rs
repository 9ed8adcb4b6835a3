//! The padproof command.
fn main() {}
