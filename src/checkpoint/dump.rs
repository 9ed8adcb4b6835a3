//! The padded parameters of ranks, as an engine holds them after loading.

use super::convert::{codes_in, widened, widened_len};
use super::error::{CheckpointError, file_error, shown, tensor_error};
use super::file::count;
use super::find::{Kind, changes_meaning};
use super::names::SHARED;
use super::place::{LayerId, layer_of, refuse_odd_numbers};
use super::set::Checkpoint;
use crate::num::Dtype;
use crate::plan::Role;
use safetensors::Dtype as Element;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What a role's tensor is called: our word first, then the engines' parameters.
fn names(role: Role) -> &'static [&'static str] {
    match role {
        Role::W13 => &[
            "w13",
            "w13_weight",
            "w13_weight_packed",
            "gemm1_weights_fp4_shuffled",
        ],
        Role::W2 => &[
            "w2",
            "w2_weight",
            "w2_weight_packed",
            "gemm2_weights_fp4_shuffled",
        ],
        Role::W13Scale => &[
            "w13_scale",
            "w13_weight_scale",
            "w13_weight_scale_inv",
            "w13_blockscale_swizzled",
            "gemm1_scales_fp4_shuffled",
        ],
        Role::W2Scale => &[
            "w2_scale",
            "w2_weight_scale",
            "w2_weight_scale_inv",
            "w2_blockscale_swizzled",
            "gemm2_scales_fp4_shuffled",
        ],
        Role::W13Global => &["w13_scale_2", "w13_weight_scale_2"],
        Role::W2Global => &["w2_scale_2", "w2_weight_scale_2"],
        Role::W13Bias => &["w13_bias", "w13_weight_bias"],
        Role::W2Bias => &["w2_bias", "w2_weight_bias"],
    }
}

/// What a role's tensor of shared experts is called behind `shared_experts.` and the like.
fn shared_role(name: &str) -> Option<Role> {
    let below = |word: &str| Some(name.rsplit_once(word)?.1);
    let rest = SHARED.into_iter().chain(["shared."]).find_map(below)?;
    let ours = Role::ALL.into_iter().find(|&r| names(r).contains(&rest));
    if ours.is_some() {
        return ours;
    }
    for (word, second) in [
        ("gate_up_proj", false),
        ("up_proj", false),
        ("down_proj", true),
    ] {
        let Some(suffix) = rest.strip_prefix(word) else {
            continue;
        };
        let kinds = [
            (Kind::Weight, Role::W13, Role::W2),
            (Kind::Scale, Role::W13Scale, Role::W2Scale),
            (Kind::Global, Role::W13Global, Role::W2Global),
            (Kind::Bias, Role::W13Bias, Role::W2Bias),
        ];
        let found = kinds
            .iter()
            .find(|(kind, ..)| kind.suffixes().0.contains(&suffix));
        return found.map(|&(_, w13, w2)| if second { w2 } else { w13 });
    }
    None
}

/// Whether a name lies below shared experts.
fn is_shared(name: &str) -> bool {
    let words = || SHARED.iter().map(|word| word.trim_end_matches('.'));
    name.split('.')
        .any(|part| part == "shared" || words().any(|word| word == part))
}

/// One padded tensor of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The rank.
    pub rank: usize,
    /// Which tensor.
    pub role: Role,
    /// Its name in the file.
    pub name: String,
}

/// Which rank is meant where names of tensors say none, or not all are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// This rank alone is asked for, of which tensors are whose names say none.
    Only(usize),
    /// Tensors are of the rank that their names say, and of this one where they say none.
    Unnamed(usize),
}

/// A file of padded parameters.
pub struct Dump<'a> {
    checkpoint: &'a Checkpoint,
    /// The tensors, by rank and role.
    pub tensors: Vec<Stored>,
    /// Names that mean no tensor of a plan, or one of another layer or rank.
    pub unread: Vec<String>,
}

impl<'a> Dump<'a> {
    /// The layers that names in a file speak of.
    pub fn layers(checkpoint: &Checkpoint) -> BTreeSet<LayerId> {
        checkpoint.names().filter_map(layer_of).collect()
    }

    /// Finds the parameters of a layer, of all ranks that names say (`rank3.w13`) or of those that
    /// `whose` says.
    ///
    /// # Errors
    /// When nothing is found, a rank is not below `ranks`, or two names mean one tensor.
    pub fn find(
        checkpoint: &'a Checkpoint,
        layer: Option<LayerId>,
        whose: Option<Whose>,
        ranks: usize,
    ) -> Result<Dump<'a>, CheckpointError> {
        let role = |name: &str| {
            let last = name.rsplit('.').next().unwrap_or(name);
            let mut all = Role::ALL.into_iter().filter(|_| !is_shared(name));
            all.find(|&r| names(r).contains(&last))
        };
        let none = "no tensor is called w13, w13_weight, w2 or the like";
        Dump::find_by(checkpoint, (layer, whose, ranks), (role, false), none)
    }

    /// The same of a layer's shared experts.
    ///
    /// # Errors
    /// As [`Dump::find`].
    pub fn find_shared(
        checkpoint: &'a Checkpoint,
        layer: Option<LayerId>,
        whose: Option<Whose>,
        ranks: usize,
    ) -> Result<Dump<'a>, CheckpointError> {
        let none = "no tensor is called shared_experts.gate_up_proj.weight or the like";
        Dump::find_by(checkpoint, (layer, whose, ranks), (shared_role, true), none)
    }

    fn find_by(
        checkpoint: &'a Checkpoint,
        (layer, whose, ranks): (Option<LayerId>, Option<Whose>, usize),
        (role_of, shared): (impl Fn(&str) -> Option<Role>, bool),
        none: &str,
    ) -> Result<Dump<'a>, CheckpointError> {
        let (only, unnamed) = match whose {
            Some(Whose::Only(rank)) => (Some(rank), Some(rank)),
            Some(Whose::Unnamed(rank)) => (None, Some(rank)),
            None => (None, (ranks == 1).then_some(0)),
        };
        let mut found: BTreeMap<(usize, Role), String> = BTreeMap::new();
        let mut unread = Vec::new();
        // The first tensor of the layer's kind that another layer or rank has.
        let mut other = None;
        let ours = || checkpoint.names().filter(|n| !n.starts_with("before."));
        refuse_odd_numbers(checkpoint.place(), ours())?;
        for name in ours() {
            let (of_layer, named) = (layer_of(name), rank_of(name));
            let Some(role) = role_of(name) else {
                // Engines keep an empty one where nothing is permuted.
                if changes_meaning(name)
                    && is_shared(name) == shared
                    && layer.zip(of_layer).is_none_or(|(wanted, is)| is.is(wanted))
                    && only.zip(named).is_none_or(|(wanted, is)| wanted == is)
                    && checkpoint.entry(name)?.1.bytes > 0
                {
                    let why = "zero points and permuted groups are not audited";
                    return Err(tensor_error(checkpoint.place(), name, why));
                }
                unread.push(name.to_owned());
                continue;
            };
            let elsewhere = match (layer.zip(of_layer), only.zip(named)) {
                (Some((wanted, is)), _) if !is.is(wanted) => {
                    Some(("layer", wanted.to_string(), is.to_string()))
                }
                (_, Some((wanted, is))) if wanted != is => {
                    Some(("rank", wanted.to_string(), is.to_string()))
                }
                _ => None,
            };
            if let Some(elsewhere) = elsewhere {
                unread.push(name.to_owned());
                other.get_or_insert((name, elsewhere));
                continue;
            }
            let at = named.or(unnamed).ok_or_else(|| {
                let why = "neither its name nor --rank says which rank it is of";
                tensor_error(checkpoint.place(), name, why)
            })?;
            if at >= ranks {
                let why = format!("rank {at} of {ranks}");
                return Err(tensor_error(checkpoint.place(), name, why));
            }
            if let Some(other) = found.insert((at, role), name.to_owned()) {
                let shown = shown(&other);
                let why = match (layer_of(&other), of_layer) {
                    (a, b) if a == b => format!("`{shown}` is the same tensor of rank {at}"),
                    (None, _) => format!(
                        "`{shown}` is the same tensor of rank {at}, and its name says no layer"
                    ),
                    _ => format!(
                        "its name says no layer, and `{shown}` is the same tensor of rank {at}"
                    ),
                };
                return Err(tensor_error(checkpoint.place(), name, why));
            }
        }
        if found.is_empty() {
            let why = match other {
                Some((name, (what, wanted, is))) => {
                    let name = shown(name);
                    format!("no tensor is of {what} {wanted}: `{name}` is of {what} {is}")
                }
                None => none.to_owned(),
            };
            return Err(file_error(checkpoint.place(), why));
        }
        let stored = |((rank, role), name)| Stored { rank, role, name };
        Ok(Dump {
            checkpoint,
            tensors: found.into_iter().map(stored).collect(),
            unread,
        })
    }

    /// Names of tensors that seem to be a role's, and are not taken as it: of the same projection and kind.
    pub fn near(&self, role: Role) -> Vec<&str> {
        let stems = if role.is_second() {
            ["w2_", "gemm2_"]
        } else {
            ["w13_", "gemm1_"]
        };
        let is = |name: &&str| {
            let last = name.rsplit('.').next().unwrap_or(name);
            let known = Role::ALL
                .into_iter()
                .any(|role| names(role).contains(&last));
            let rest = stems.iter().find_map(|stem| last.strip_prefix(stem));
            !known
                && rest.is_some_and(|rest| {
                    kind_of(rest).is_some_and(|kind| kind == kind_of_role(role))
                })
        };
        self.unread.iter().map(String::as_str).filter(is).collect()
    }

    /// The ranks that tensors are of, in order.
    pub fn ranks(&self) -> BTreeSet<usize> {
        self.tensors.iter().map(|t| t.rank).collect()
    }

    /// Bytes of a tensor whose elements are of `dtype`, bf16 and f16 counted as f32 where that is wanted.
    ///
    /// # Errors
    /// When it is of a type that cannot mean `dtype`.
    pub fn bytes(&self, stored: &Stored, dtype: Dtype) -> Result<u64, CheckpointError> {
        let (file, entry) = self.checkpoint.entry(&stored.name)?;
        // DeepGEMM holds four E8M0 in an int32 (facts/upstream-padding.md, L-deepgemm).
        let words = dtype == Dtype::E8m0 && matches!(entry.dtype, Element::I32 | Element::U32);
        if !words && codes_in(dtype, entry.dtype).is_none() {
            let cast = match (dtype, entry.dtype) {
                (Dtype::F16 | Dtype::F32, Element::BF16)
                | (Dtype::Bf16, Element::F16 | Element::F32) => {
                    ", as the checkpoint stores it: a cast rounds, and what it made is not held bit for bit"
                }
                _ => "",
            };
            let why = format!("{} where {dtype} is wanted{cast}", entry.dtype);
            return Err(tensor_error(file.name(), &stored.name, why));
        }
        Ok(widened_len(dtype, entry.dtype, entry.bytes))
    }

    /// The bytes of some of the `all` experts that a tensor holds, as the engine has them.
    ///
    /// # Errors
    /// As [`Dump::bytes`], and when its bytes are not a multiple of `all`.
    pub fn read(
        &self,
        stored: &Stored,
        dtype: Dtype,
        experts: Range<usize>,
        all: usize,
    ) -> Result<Vec<u8>, CheckpointError> {
        self.bytes(stored, dtype)?;
        let (file, entry) = self.checkpoint.entry(&stored.name)?;
        let all = count(all);
        if all == 0 || !entry.bytes.is_multiple_of(all) || count(experts.end) > all {
            let why = format!("{} bytes are not those of {all} experts", entry.bytes);
            return Err(tensor_error(file.name(), &stored.name, why));
        }
        let slab = entry.bytes / all;
        let part = count(experts.start) * slab..count(experts.end) * slab;
        let bytes = file.data(&stored.name, part)?;
        Ok(widened(dtype, entry.dtype, bytes))
    }
}

impl Dump<'_> {
    /// The bytes of some of the rows, `of` in all, of one of the `all` experts that a tensor holds.
    ///
    /// # Errors
    /// As [`Dump::read`], and when its bytes are not a multiple of `of`.
    pub fn read_rows(
        &self,
        stored: &Stored,
        dtype: Dtype,
        (expert, all): (usize, usize),
        (rows, of): (Range<usize>, usize),
    ) -> Result<Vec<u8>, CheckpointError> {
        self.bytes(stored, dtype)?;
        let (file, entry) = self.checkpoint.entry(&stored.name)?;
        let lines = count(all).saturating_mul(count(of));
        if lines == 0 || !entry.bytes.is_multiple_of(lines) || rows.end > of || expert >= all {
            let why = format!(
                "{} bytes are not those of {all} experts of {of} rows",
                entry.bytes
            );
            return Err(tensor_error(file.name(), &stored.name, why));
        }
        let line = entry.bytes / lines;
        let first = count(expert) * count(of);
        let part = (first + count(rows.start)) * line..(first + count(rows.end)) * line;
        let bytes = file.data(&stored.name, part)?;
        Ok(widened(dtype, entry.dtype, bytes))
    }
}

/// What a name seems to mean by what follows its projection.
fn kind_of(rest: &str) -> Option<Kind> {
    match rest {
        _ if rest.contains("input") || rest.contains("shape") => None,
        _ if rest.contains("bias") => Some(Kind::Bias),
        _ if rest.contains("global") || rest.ends_with("_2") => Some(Kind::Global),
        _ if rest.contains("scale") => Some(Kind::Scale),
        _ if rest.contains("weight") => Some(Kind::Weight),
        _ => None,
    }
}

fn kind_of_role(role: Role) -> Kind {
    match role {
        Role::W13 | Role::W2 => Kind::Weight,
        Role::W13Scale | Role::W2Scale => Kind::Scale,
        Role::W13Global | Role::W2Global => Kind::Global,
        Role::W13Bias | Role::W2Bias => Kind::Bias,
    }
}

/// The rank that a name says: a part `rank3`, `tp3`, or `rank` followed by `3`.
fn rank_of(name: &str) -> Option<usize> {
    let mut parts = name.split('.').peekable();
    while let Some(part) = parts.next() {
        let number = match part {
            "rank" => parts.peek().copied(),
            _ => ["rank", "tp"]
                .iter()
                .find_map(|word| part.strip_prefix(word)),
        };
        if let Some(rank) = number.and_then(|n| n.trim_start_matches('_').parse().ok()) {
            return Some(rank);
        }
    }
    None
}
