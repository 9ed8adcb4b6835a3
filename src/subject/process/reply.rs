//! What a process says, checked before it is believed.
//!
//! It must not panic or allocate by a number that was not checked. Layer 5.

use super::message::PROTOCOL;
use super::supports::Supports;
use crate::plan::Plan;
use crate::subject::error::Misbehaviour;
use crate::tensor::{StageOutputs, StageShare};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;

/// Bytes of a reply's header and of a complaint that are taken.
pub(super) const HEADER_MAX: u64 = 1 << 20;

/// Characters of a name that are kept: it stands in every line of a report.
const NAME_MAX: usize = 60;

/// What a process says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) name: String,
    pub(super) supports: Supports,
}

/// What it computed.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reply {
    /// Each rank's share, [ranks, t, h], padding cut.
    pub(super) shares: Vec<Vec<f32>>,
    /// Expert ids [t, k], if it routes by itself, else none.
    pub(super) ids: Vec<u32>,
    /// Routing weights [t, k], likewise.
    pub(super) weights: Vec<f32>,
    /// What it shows of its way.
    pub(super) stages: StageOutputs,
}

fn wrong(part: &str, why: impl Into<String>) -> Misbehaviour {
    Misbehaviour::Reply {
        part: part.to_owned(),
        why: why.into(),
    }
}

/// A blob and its metadata, which says of which kind it is.
fn open<'a>(
    bytes: &'a [u8],
    kind: &str,
) -> Result<(SafeTensors<'a>, BTreeMap<String, String>), Misbehaviour> {
    let broken = |e: safetensors::SafeTensorError| Misbehaviour::NotSafetensors(e.to_string());
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(broken)?;
    let metadata: BTreeMap<String, String> = header
        .metadata()
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let said = metadata.get("kind").map_or("", String::as_str);
    if said == "error" {
        let message = metadata.get("message").map_or("an error", String::as_str);
        return Err(Misbehaviour::Said(crate::terms::plain(message)));
    }
    if said != kind {
        return Err(wrong(
            "metadata `kind`",
            format!("`{}`, wanted `{kind}`", crate::terms::plain(said)),
        ));
    }
    let blob = SafeTensors::deserialize(bytes).map_err(broken)?;
    Ok((blob, metadata))
}

/// Reads the answer to the greeting.
pub(super) fn hello(bytes: &[u8]) -> Result<Hello, Misbehaviour> {
    let (_, metadata) = open(bytes, "hello")?;
    let get = |key: &str| metadata.get(key).map_or("", String::as_str);
    if get("protocol") != PROTOCOL.to_string() {
        return Err(wrong(
            "metadata `protocol`",
            format!(
                "`{}`, padproof speaks {PROTOCOL}",
                crate::terms::plain(get("protocol"))
            ),
        ));
    }
    let said = |key: &str, what: &str| match get(key).trim() {
        "" => Err(wrong(
            &format!("metadata `{key}`"),
            format!("there is none: {what}"),
        )),
        text => Ok(text.to_owned()),
    };
    let name = said("name", "what reports call the subject")?;
    let supports = said("supports", "what it can be asked, `{}` for the plain words")?;
    Ok(Hello {
        name: crate::terms::plain(&name).chars().take(NAME_MAX).collect(),
        supports: Supports::parse(&supports)?,
    })
}

/// Longest reply to a request of this plan.
pub(super) fn limit(plan: &Plan) -> u64 {
    let d = &plan.dims;
    let ranks = plan.ranks.len() as u64;
    let routed = ranks.saturating_mul(d.t).saturating_mul(d.k);
    let columns = [plan.w13_rows, plan.width_padded, plan.hidden_padded];
    let stages = columns.into_iter().fold(4, u64::saturating_add);
    let outputs = ranks
        .saturating_mul(plan.tokens_padded)
        .saturating_mul(plan.hidden_padded);
    routed
        .saturating_mul(stages)
        .saturating_add(outputs)
        .saturating_mul(4)
        .saturating_add(HEADER_MAX)
}

/// Reads the reply to request `number`.
pub(super) fn reply(
    bytes: &[u8],
    number: u64,
    plan: &Plan,
    routes_itself: bool,
) -> Result<Reply, Misbehaviour> {
    let (blob, metadata) = open(bytes, "reply")?;
    identified(&metadata, number)?;
    let d = &plan.dims;
    let tensor = |name: &str| {
        let there = blob.tensor(name);
        there.map_err(|_| wrong(name, "there is no such tensor"))
    };
    let y = tensor("y")?;
    let ranks = plan.ranks.len() as u64;
    let bare = [ranks, d.t, d.h];
    let padded = [ranks, plan.tokens_padded, plan.hidden_padded];
    let values = floats("y", &y, &[padded, bare])?;
    let columns = y.shape().last().copied().unwrap_or(0);
    let rows = y.shape().get(1).copied().unwrap_or(0);
    let (t, h) = (d.t as usize, d.h as usize);
    let shares = (0..plan.ranks.len())
        .map(|rank| {
            let share = &values[rank * rows * columns..][..rows * columns];
            let rows = share.chunks_exact(columns.max(1)).take(t);
            rows.flat_map(|row| &row[..h]).copied().collect()
        })
        .collect();
    let chosen = [d.t, d.k];
    let (mut ids, mut weights) = (Vec::new(), Vec::new());
    if routes_itself {
        ids = integers("topk_ids", &tensor("topk_ids")?, &chosen)?;
        if let Some(id) = ids.iter().find(|id| u64::from(**id) >= plan.choices()) {
            let why = format!("{} is none of {} experts", *id as i32, plan.choices());
            return Err(wrong("topk_ids", why));
        }
        weights = floats("topk_weights", &tensor("topk_weights")?, &[chosen])?;
    }
    Ok(Reply {
        shares,
        ids,
        weights,
        stages: stages(&blob, plan)?,
    })
}

/// Reads the answer to question `number`: rows of w13, and columns of w2 in stored units.
pub(super) fn sizes(bytes: &[u8], number: u64) -> Result<[u64; 2], Misbehaviour> {
    let (_, metadata) = open(bytes, "sizes")?;
    identified(&metadata, number)?;
    let size = |key: &str| {
        let text = metadata.get(key).map_or("", String::as_str);
        text.parse().map_err(|_| {
            let text = crate::terms::plain(text);
            wrong(
                &format!("metadata `{key}`"),
                format!("`{text}`, wanted a number"),
            )
        })
    };
    Ok([size("w13_rows")?, size("w2_columns")?])
}

fn identified(metadata: &BTreeMap<String, String>, number: u64) -> Result<(), Misbehaviour> {
    let id = metadata.get("id").map_or("", String::as_str);
    if id != number.to_string() {
        let id = crate::terms::plain(id);
        return Err(wrong("metadata `id`", format!("`{id}`, wanted `{number}`")));
    }
    Ok(())
}

/// The stages that are shown, each of its one shape.
fn stages(blob: &SafeTensors<'_>, plan: &Plan) -> Result<StageOutputs, Misbehaviour> {
    let d = &plan.dims;
    const STAGES: [&str; 4] = ["stage.route_ids", "stage.fc1", "stage.act", "stage.fc2"];
    let unknown = |name: &&str| name.starts_with("stage.") && !STAGES.contains(name);
    if let Some(name) = blob.names().into_iter().find(unknown) {
        let why = format!("no such stage; stages are {}", STAGES.join(", "));
        return Err(wrong(&crate::terms::plain(name), why));
    }
    let share = |name: &str, cols: u64| -> Result<Vec<StageShare>, Misbehaviour> {
        let Ok(tensor) = blob.tensor(name) else {
            return Ok(Vec::new());
        };
        let ranks = plan.ranks.len();
        let values = floats(name, &tensor, &[[ranks as u64, d.t, d.k, cols]])?;
        let size = values.len() / ranks.max(1);
        let of = |rank: usize| StageShare {
            cols: cols as usize,
            values: values[rank * size..(rank + 1) * size].to_vec(),
        };
        Ok((0..ranks).map(of).collect())
    };
    Ok(StageOutputs {
        ids: match blob.tensor("stage.route_ids") {
            Ok(tensor) => integers("stage.route_ids", &tensor, &[d.t, d.k])?,
            Err(_) => Vec::new(),
        },
        first: share("stage.fc1", plan.w13_rows)?,
        middle: share("stage.act", plan.width_padded)?,
        second: share("stage.fc2", plan.hidden_padded)?,
    })
}

/// The values of an f32 tensor of one of the shapes; its bytes fit its shape, as was checked when
/// the blob was opened.
fn floats<const N: usize>(
    name: &str,
    tensor: &TensorView<'_>,
    shapes: &[[u64; N]],
) -> Result<Vec<f32>, Misbehaviour> {
    typed(name, tensor, Dtype::F32, shapes)?;
    let (words, _) = tensor.data().as_chunks::<4>();
    Ok(words.iter().map(|w| f32::from_le_bytes(*w)).collect())
}

fn integers<const N: usize>(
    name: &str,
    tensor: &TensorView<'_>,
    shape: &[u64; N],
) -> Result<Vec<u32>, Misbehaviour> {
    typed(name, tensor, Dtype::I32, &[*shape])?;
    let (words, _) = tensor.data().as_chunks::<4>();
    Ok(words.iter().map(|w| u32::from_le_bytes(*w)).collect())
}

fn typed<const N: usize>(
    name: &str,
    tensor: &TensorView<'_>,
    dtype: Dtype,
    shapes: &[[u64; N]],
) -> Result<(), Misbehaviour> {
    let shape: Vec<u64> = tensor.shape().iter().map(|n| *n as u64).collect();
    if tensor.dtype() != dtype {
        let actual = tensor.dtype();
        return Err(wrong(name, format!("dtype {actual}, wanted {dtype}")));
    }
    if !shapes.iter().any(|wanted| shape == wanted) {
        let mut wanted: Vec<String> = shapes.iter().map(|s| format!("{s:?}")).collect();
        wanted.dedup();
        let wanted = wanted.join(" or ");
        return Err(wrong(name, format!("shape {shape:?}, wanted {wanted}")));
    }
    Ok(())
}
