//! Names rows of the first projection in another order than the kernel reads, whichever that is.
//!
//! It must not pack. Layer 7.

use crate::mutant::{self, Mutant};
use crate::plan::Plan;
use crate::terms::Order;

/// The mutants that write rows in another order, one for each direction; what the order is, a detail says.
const NAMES: [&str; 3] = [
    "interleaved-for-halves",
    "halves-for-interleaved",
    "interleaved-in-other-groups",
];

/// Whether a mutant is looked for here, with every order.
pub(super) fn is_one(mutant: &Mutant) -> bool {
    NAMES.contains(&mutant.name)
}

/// The plan in every other order that its sizes allow, with the mutant of that direction and both orders
/// in words. The other half first is `halves-swapped`, and not here.
pub(super) fn others(plan: &Plan) -> impl Iterator<Item = (&'static Mutant, Plan, String)> {
    let read = plan.order;
    Order::ALL.iter().filter_map(move |&stored| {
        let name = match (stored.interleave(), read.interleave()) {
            (a, b) if a == b => return None,
            (0, _) => NAMES[1],
            (_, 0) => NAMES[0],
            _ => NAMES[2],
        };
        let mutant = mutant::ALL.iter().find(|m| m.name == name)?;
        // Blocks of rows have no rows in turn: weights and biases alone have.
        let scale = plan.w13_scale;
        let rows = Plan {
            w13_scale: scale.filter(|s| s.row_block <= 1),
            ..plan.clone()
        };
        let wrong = Plan {
            w13_scale: scale,
            ..mutant::in_order(&rows, stored)?
        };
        let told = format!("stored: {}; read: {}", phrase(stored), phrase(read));
        Some((mutant, wrong, told))
    })
}

/// Whether scales lie in blocks of rows, which stay in their order.
pub(super) fn scales_stay(plan: &Plan) -> bool {
    plan.w13_scale.is_some_and(|s| s.row_block > 1)
}

/// An order in words.
fn phrase(order: Order) -> String {
    let (first, second) = match order.up_first() {
        true => ("up", "gate"),
        false => ("gate", "up"),
    };
    match order.interleave() {
        0 => format!("all rows of {first}, then those of {second}"),
        1 => format!("rows of {first} and {second} in turn"),
        n => format!("{n} rows of {first} and {n} of {second} in turn"),
    }
}
