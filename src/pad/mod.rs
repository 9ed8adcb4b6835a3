//! Writes a padded checkpoint with its certificate, streaming, and checks one from its files alone.
//!
//! It must not decide sizes: they are a plan's. Layer 8.

mod axis;
mod before;
mod beside;
mod certificate;
mod change;
mod config;
mod digest;
mod error;
mod files;
mod folder;
mod hold;
mod holders;
mod outputs;
mod recipe;
mod resume;
mod sizes;
mod space;
mod stream;
mod told;
mod treat;
mod turned;
mod verify;
mod write;

pub use certificate::{
    AuditNote, CERTIFICATE, Certificate, DifferentialNote, FileNote, OutputNote, RuleNote,
    TensorNote,
};
pub use error::PadError;
pub use folder::partial;
pub use recipe::{Recipe, Request, recipe, refused};
pub use sizes::{Blocks, Part, Width};
pub use verify::{Fault, Verified, verify};
pub use write::{Outcome, Padded, Progress, Step, pad};
