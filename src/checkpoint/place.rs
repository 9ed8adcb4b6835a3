//! Which layer a name is of, and the words in which a layer is asked for.
//!
//! It must not look at tensors. Layer 4.

use super::error::{CheckpointError, shown, tensor_error};
use super::find::prefix_of;
use super::set::Checkpoint;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// What layers are counted after in names.
const COUNTED: [&str; 5] = ["layers", "layer", "blk", "h", "blocks"];
/// What names of a draft's layers (multi-token prediction) begin with.
const DRAFT: &str = "mtp";

/// A layer as names number it. Drafts whose names stand in front of the number (`mtp.layers.0`) have
/// numbers of their own; those behind the model's layers (`layers.61`) go on with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LayerId {
    /// One of the model.
    Model(u64),
    /// One of a draft; its only or first one, where no number is said.
    Draft(Option<u64>),
}

impl LayerId {
    /// Whether one that is asked for is this one.
    pub(super) fn is(self, asked: LayerId) -> bool {
        asked == self || matches!((asked, self), (LayerId::Draft(None), LayerId::Draft(_)))
    }
}

impl fmt::Display for LayerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayerId::Model(number) => write!(f, "{number}"),
            LayerId::Draft(Some(number)) => write!(f, "{DRAFT}.{number}"),
            LayerId::Draft(None) => f.write_str(DRAFT),
        }
    }
}

/// Why a word names no layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no layer: a number as names have it (5), or a draft's (mtp.0, mtp)")]
pub struct NoLayerId;

impl FromStr for LayerId {
    type Err = NoLayerId;

    fn from_str(word: &str) -> Result<LayerId, NoLayerId> {
        let of = |text: &str| number(text).ok_or(NoLayerId);
        match word.strip_prefix(DRAFT) {
            None => of(word).map(LayerId::Model),
            Some("") => Ok(LayerId::Draft(None)),
            Some(rest) => {
                let rest = rest.strip_prefix('.').ok_or(NoLayerId)?;
                of(rest).map(|number| LayerId::Draft(Some(number)))
            }
        }
    }
}

/// A number as checkpoints write it: `01` and `+1` are none.
pub(super) fn number<N: FromStr + ToString>(text: &str) -> Option<N> {
    let number: N = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Whether a name is a draft's, and the word behind what layers are counted after.
fn said(name: &str) -> (bool, Option<&str>) {
    let mut draft = false;
    let mut parts = name.split('.').peekable();
    while let Some(part) = parts.next() {
        draft |= part.starts_with(DRAFT);
        let counted = part.starts_with(DRAFT) || COUNTED.contains(&part);
        let numeric = |next: &&str| {
            let digits = next.strip_prefix('+').unwrap_or(next);
            !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
        };
        if let Some(&number) = parts.peek().filter(|next| counted && numeric(next)) {
            return (draft, Some(number));
        }
    }
    (draft, None)
}

/// The layer that a name says: by the number after `layers` (or `blk`, `h`, `blocks`), or a draft's.
pub fn layer_of(name: &str) -> Option<LayerId> {
    let (draft, text) = said(name);
    let number = text.and_then(number);
    match draft {
        true => Some(LayerId::Draft(number)),
        false => number.map(LayerId::Model),
    }
}

/// Refuses a name whose layer's number is not written as checkpoints do: readers differ in whether
/// `layers.00` is `layers.0`.
pub(super) fn refuse_odd_numbers<'n>(
    place: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Result<(), CheckpointError> {
    for name in names {
        if let (_, Some(text)) = said(name)
            && number::<u64>(text).is_none()
        {
            let why = format!("`{}` is no number as names of layers have it", shown(text));
            return Err(tensor_error(place, name, why));
        }
    }
    Ok(())
}

/// A layer by what its experts' names begin with, in the order in which layers are looked at: the
/// layer, a draft's behind the model's, and the prefix.
pub type Place<'a> = (Option<LayerId>, &'a str);

/// The layer of a prefix.
pub fn place_of(prefix: &str) -> Place<'_> {
    (layer_of(prefix), prefix)
}

/// The prefixes that are of the layer asked for, or of the first; several, where a checkpoint holds several
/// models that each number their layers.
pub(super) fn chosen<'a>(places: &BTreeSet<Place<'a>>, asked: Option<LayerId>) -> Vec<&'a str> {
    let is = |(at, _): &&Place<'_>| at.zip(asked).is_some_and(|(at, asked)| at.is(asked));
    // A name without a number is of whatever layer is asked for, where no name says that one.
    let may = |(at, _): &&Place<'_>| at.is_none() || asked.is_none();
    let found = places.iter().find(is).or_else(|| places.iter().find(may));
    let Some(&(first, prefix)) = found else {
        return Vec::new();
    };
    match first {
        None => vec![prefix],
        Some(_) => {
            let same = places.iter().filter(|(at, _)| *at == first);
            same.map(|(_, prefix)| *prefix).collect()
        }
    }
}

impl Checkpoint {
    /// The layers that have routed experts, as names number them; nothing of those without a number.
    pub fn expert_layers(&self) -> BTreeSet<LayerId> {
        let prefixes: BTreeSet<&str> = self.names().filter_map(prefix_of).collect();
        prefixes.into_iter().filter_map(layer_of).collect()
    }

    /// Refuses experts whose layer's number is not written as checkpoints do.
    ///
    /// # Errors
    /// When there are some.
    pub fn refuse_odd_layers(&self) -> Result<(), CheckpointError> {
        let experts = self.names().filter(|name| name.contains("expert"));
        refuse_odd_numbers(self.place(), experts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_which_layer_they_are_of() {
        let model = |n| Some(LayerId::Model(n));
        let draft = |n| Some(LayerId::Draft(n));
        for (name, wanted) in [
            ("model.layers.5.mlp.experts.0.w1.weight", model(5)),
            ("blk.5.ffn_up_exps", model(5)),
            ("mtp.layers.0.mlp.experts.", draft(Some(0))),
            ("mtp.1.ffn.experts.", draft(Some(1))),
            ("model.mtp_layers.2.mlp.experts.", draft(Some(2))),
            ("mtp.mlp.experts.3.up_proj.weight", draft(None)),
            // Behind the model's layers, with its numbers.
            (
                "model.layers.61.mtp_block.mlp.experts.w13_weight",
                model(61),
            ),
            ("model.layers.00.mlp.experts.", None),
            ("lm_head.weight", None),
        ] {
            assert_eq!(layer_of(name), wanted, "{name}");
        }
    }

    #[test]
    fn a_layer_is_asked_for_as_it_is_told() {
        for word in ["0", "61", "mtp", "mtp.0", "mtp.12"] {
            let id: LayerId = word.parse().expect("a layer");
            assert_eq!(id.to_string(), word);
        }
        for word in ["", "00", "+1", "-1", "mtp.", "mtp.01", "mtp0", "x"] {
            assert_eq!(word.parse::<LayerId>(), Err(NoLayerId), "{word}");
        }
    }

    #[test]
    fn a_name_without_a_number_stands_back_where_one_has_it() {
        let places: BTreeSet<Place<'_>> = ["m.experts.", "m.layers.1.experts.", "mtp.1.experts."]
            .map(place_of)
            .into();
        for (asked, wanted) in [
            (Some(LayerId::Model(1)), "m.layers.1.experts."),
            (Some(LayerId::Draft(None)), "mtp.1.experts."),
            (Some(LayerId::Model(2)), "m.experts."),
            (None, "m.experts."),
        ] {
            assert_eq!(chosen(&places, asked), [wanted], "{asked:?}");
        }
    }

    #[test]
    fn numbers_with_leading_zeros_are_refused_by_name() {
        let long = "m.layers.99999999999999999999.mlp.experts.0.w1.weight";
        assert!(refuse_odd_numbers("x", [long]).is_err());
        let name = "model.layers.00.mlp.experts.0.w1.weight";
        let error = refuse_odd_numbers("x", ["model.layers.0.a", name]).expect_err("odd");
        let text = error.to_string();
        assert!(text.contains(name) && text.contains("`00`"), "{text}");
    }
}
