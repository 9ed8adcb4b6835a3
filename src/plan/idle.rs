//! Words of a spelled scheme that say nothing of a layer.
//!
//! It must not derive sizes. Layer 3.

use super::types::LayerSpec;
use crate::case::PadSpec;
use crate::terms::Extent;

/// The first word of a scheme that says nothing of this format or layer, and why.
pub fn idle_word(spec: &PadSpec, part: &LayerSpec) -> Option<String> {
    let (bare, weight) = (PadSpec::default(), part.weight);
    let blocks = weight.scale().is_some_and(|grid| {
        let extents = [grid.rows, grid.cols];
        extents.iter().any(|e| matches!(e, Extent::Block(_)))
    });
    if spec.store.scales != bare.store.scales && !blocks {
        let word = spec.store.scales;
        return Some(format!(
            "store={word} says how block scales lie, and {weight} has none"
        ));
    }
    if spec.nib != bare.nib && weight.element().bits() != 4 {
        let nib = spec.nib;
        return Some(format!(
            "nib={nib} says which half of a byte is first, and {weight} has no two elements in one"
        ));
    }
    let orders = [
        ("order", spec.order != bare.order),
        ("place", spec.place != bare.place),
    ];
    let (word, _) = orders.into_iter().find(|(_, said)| *said)?;
    (part.activation.halves() == 1)
        .then(|| format!("{word}= says how gate and up lie, and these experts have no gate"))
}
