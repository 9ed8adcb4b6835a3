//! Wrong plans, layouts and subjects, one per catalogued fault (facts/upstream-padding.md 3.2).
//!
//! It must not be used outside audit's diagnosis, properties and tests. Layer 6.

mod bytes;
mod fused;
mod globals;
mod grids;
mod layouts;
mod list;
mod outputs;
mod plans;
mod quantised;
mod reload;
mod storages;
mod types;

pub use globals::{FORMS, Form, is_of_whole_tensors};
pub use layouts::in_order;
pub use list::ALL;
pub use types::{Mutant, Stage, repack};
