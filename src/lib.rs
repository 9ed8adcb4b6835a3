//! padproof proves that padding a Mixture-of-Experts layer keeps its outputs.

pub mod audit;
pub mod case;
pub mod checkpoint;
#[cfg(feature = "cli")]
pub mod cli;
pub mod compare;
pub mod fill;
pub mod r#gen;
pub mod layout;
pub mod model;
pub mod mutant;
pub mod num;
pub mod plan;
pub mod proof;
pub mod property;
pub mod reference;
#[cfg(feature = "cli")]
pub mod report;
pub mod rng;
pub mod rule;
pub mod run;
pub mod schedule;
pub mod subject;
pub mod suite;
pub mod tensor;
pub mod terms;
