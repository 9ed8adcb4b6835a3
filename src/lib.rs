//! padproof proves that padding a MoE layer keeps its outputs.
