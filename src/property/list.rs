//! Every property.

use super::{Trial, Verdict, bytes, outputs, paths, plans, poison, sizes};
use crate::case::Case;
use crate::subject::Subject;

/// What a property needs before it can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Integers only.
    Plan,
    /// Packed bytes.
    Bytes,
    /// A subject.
    Subject,
    /// A subject with a fast path and a general one.
    Paths,
    /// A subject that tells the sizes that its stack allocates.
    Sizes,
}

/// A claim about a case.
pub struct Property {
    /// Kebab-case name.
    pub name: &'static str,
    /// The claim, as a sentence.
    pub meaning: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// Asks it of one case.
    pub check: fn(&Case, &mut Trial<'_>) -> Verdict,
}

impl Property {
    /// Whether it can be asked of the subject at all.
    pub fn suits(&self, subject: &dyn Subject) -> bool {
        match self.needs {
            Needs::Paths => subject.has_paths(),
            Needs::Sizes => subject.tells_sizes(),
            Needs::Plan | Needs::Bytes | Needs::Subject => true,
        }
    }
}

const fn property(
    name: &'static str,
    needs: Needs,
    check: fn(&Case, &mut Trial<'_>) -> Verdict,
    meaning: &'static str,
) -> Property {
    Property {
        name,
        meaning,
        needs,
        check,
    }
}

/// Every property, in the order of reports.
pub const ALL: &[Property] = &[
    property(
        "plan-partition",
        Needs::Plan,
        plans::plan_partition,
        "Over the ranks, every channel and every expert is held exactly once.",
    ),
    property(
        "plan-minimal",
        Needs::Plan,
        plans::plan_minimal,
        "The padded width is the least that the rule allows, and padding it again changes nothing.",
    ),
    property(
        "plan-units",
        Needs::Plan,
        plans::plan_units,
        "Elements, bytes and stored units agree: two packed elements make a byte.",
    ),
    property(
        "rule-agrees",
        Needs::Plan,
        plans::rule_agrees,
        "A rule's plan holds the invariants of padding, or its verdict says that it does not.",
    ),
    property(
        "pack-round-trip",
        Needs::Bytes,
        bytes::pack_round_trip,
        "Unpacking every rank restores every logical element, bit by bit.",
    ),
    property(
        "pad-is-inert",
        Needs::Bytes,
        bytes::pad_is_inert,
        "Every byte is a logical element in its place, or padding that decodes to zero, as its code or its scale says.",
    ),
    property(
        "scale-grid",
        Needs::Bytes,
        bytes::scale_grid,
        "Every element, in its place on its rank, finds the scale that the checkpoint gives it.",
    ),
    property(
        "reload-idempotent",
        Needs::Bytes,
        bytes::reload_idempotent,
        "A second load into dirty buffers gives the bytes of the first.",
    ),
    property(
        "pad-identity",
        Needs::Subject,
        outputs::pad_identity,
        "The padded, sharded, packed layer gives the reference's outputs, and the bits of the same shards unpadded.",
    ),
    property(
        "poison-isolated",
        Needs::Subject,
        poison::poison_isolated,
        "Each padded tail may hold any finite value by itself, and all that meet the same zeros at once, without changing a bit of the output.",
    ),
    property(
        "guard-intact",
        Needs::Subject,
        outputs::guard_intact,
        "Nothing outside the buffers is written, and the output has its logical shape.",
    ),
    property(
        "tp-sum",
        Needs::Subject,
        outputs::tp_sum,
        "The ranks' partial outputs add up to the unsharded layer.",
    ),
    property(
        "tp-pad-commute",
        Needs::Subject,
        outputs::tp_pad_commute,
        "Padding before the split and after it gives the same outputs.",
    ),
    property(
        "hidden-pad",
        Needs::Subject,
        outputs::hidden_pad,
        "Padding the hidden axis changes no bit of the output.",
    ),
    property(
        "token-pad",
        Needs::Subject,
        outputs::token_pad,
        "A row's bits depend neither on its batch nor on pad rows.",
    ),
    property(
        "route-unchanged",
        Needs::Subject,
        outputs::route_unchanged,
        "Padding changes neither the experts chosen nor their weights.",
    ),
    property(
        "device-pad-identity",
        Needs::Paths,
        paths::device_pad_identity,
        "Padded on a device's fast path and unpadded on its general path, a layer gives the same bits.",
    ),
    property(
        "sizes-agree",
        Needs::Sizes,
        sizes::sizes_agree,
        "What a stack's own function allocates holds the width, agrees in both projections, and is the rule's.",
    ),
];

/// The property of this name.
pub fn find(name: &str) -> Option<&'static Property> {
    ALL.iter().find(|p| p.name == name)
}
