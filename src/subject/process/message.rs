//! What padproof says: the greeting, and one request a plan.
//!
//! Replies are read in `reply`. Layer 5.

use crate::layout::PackedInputs;
use crate::num::Dtype;
use crate::plan::{Plan, Role, ScalePlan};
use crate::subject::cpu::Routing;
use crate::tensor::{RouterInput, Tensor};
use safetensors::Dtype as Stored;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};

/// Version of the protocol (docs/subject-protocol.md).
pub const PROTOCOL: u64 = 1;

/// A tensor of a request.
struct Sent<'a> {
    name: String,
    dtype: Stored,
    shape: Vec<usize>,
    bytes: &'a [u8],
}

/// The greeting.
pub(super) fn hello() -> Result<Vec<u8>, String> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    blob(
        Vec::new(),
        [
            ("kind", "hello".to_owned()),
            ("protocol", PROTOCOL.to_string()),
            ("padproof", version),
        ],
    )
}

/// One plan with its tensors.
pub(super) fn request(
    number: u64,
    case: &str,
    plan: &Plan,
    inputs: &PackedInputs,
    routing: &Routing,
) -> Result<Vec<u8>, String> {
    let (t, k, choices) = (
        plan.dims.t as usize,
        plan.dims.k as usize,
        plan.choices() as usize,
    );
    let of = |name: &str, dtype, shape: &[usize], bytes| Sent {
        name: name.to_owned(),
        dtype,
        shape: shape.to_vec(),
        bytes,
    };
    let mut sent = vec![
        of("x", Stored::F32, inputs.x.shape(), inputs.x.bytes()),
        // Ids are far below 2^31: bits of u32 and i32 are the same.
        of(
            "topk_ids",
            Stored::I32,
            &[t, k],
            bytemuck::cast_slice(&routing.ids),
        ),
        of(
            "topk_weights",
            Stored::F32,
            &[t, k],
            bytemuck::cast_slice(&routing.weights),
        ),
    ];
    if let RouterInput::Logits { logits, bias } = &inputs.router {
        let bytes = bytemuck::cast_slice(logits);
        sent.push(of("router_logits", Stored::F32, &[t, choices], bytes));
        if !bias.is_empty() {
            let bytes = bytemuck::cast_slice(bias);
            sent.push(of("router_bias", Stored::F32, &[choices], bytes));
        }
    }
    for (rank, tensors) in inputs.ranks.iter().enumerate() {
        for (role, tensor) in tensors.iter() {
            let name = format!("rank{rank}.{}", role.name());
            let (dtype, shape) = stored(element(plan, role), tensor);
            sent.push(of(&name, dtype, &shape, tensor.bytes()));
        }
    }
    blob(
        sent,
        [
            ("kind", "case".to_owned()),
            ("id", number.to_string()),
            ("case", case.to_owned()),
            ("plan", plan_json(plan, inputs).to_string()),
        ],
    )
}

/// The question which sizes are allocated for a width of one half on a rank.
pub(super) fn sizes(number: u64, case: &str, plan: &Plan, width: u64) -> Result<Vec<u8>, String> {
    let d = &plan.dims;
    let element = plan.weight.element();
    let asked = json!({
        "rule": plan.rule,
        "width": width,
        "halves": d.halves,
        "hidden": d.h,
        "experts": d.e,
        "tp": plan.parallel.tp,
        "ep": plan.parallel.ep,
        "weights": plan.weight,
        "element": element.name(),
        "packed": element.bits() < 8,
        "activation": plan.activation,
    });
    blob(
        Vec::new(),
        [
            ("kind", "sizes".to_owned()),
            ("id", number.to_string()),
            ("case", case.to_owned()),
            ("asked", asked.to_string()),
        ],
    )
}

/// Floats of 16 and 32 bits and signed bytes as they are; everything else as its bytes, which every
/// library reads (facts/peers.md 5).
fn stored(dtype: Dtype, tensor: &Tensor) -> (Stored, Vec<usize>) {
    let mut shape = tensor.shape().to_vec();
    let dtype = match dtype {
        Dtype::F32 => Stored::F32,
        Dtype::F16 => Stored::F16,
        Dtype::Bf16 => Stored::BF16,
        Dtype::Int8 => Stored::I8,
        _ => {
            if let Some(last) = shape.last_mut() {
                *last = tensor.row_bytes();
            }
            Stored::U8
        }
    };
    (dtype, shape)
}

fn element(plan: &Plan, role: Role) -> Dtype {
    let of = |scale: Option<ScalePlan>| scale.map_or(Dtype::F32, |s| s.dtype);
    match role {
        Role::W13 | Role::W2 => plan.weight.element(),
        Role::W13Scale => of(plan.w13_scale),
        Role::W2Scale => of(plan.w2_scale),
        Role::W13Global | Role::W2Global | Role::W13Bias | Role::W2Bias => Dtype::F32,
    }
}

/// What a kernel is told: padded sizes, never where padding begins inside them.
fn plan_json(plan: &Plan, inputs: &PackedInputs) -> Value {
    let d = &plan.dims;
    let n = &plan.numerics;
    let scale = |scale: Option<ScalePlan>| {
        scale.map(|s| {
            json!({
                "dtype": s.dtype.name(),
                "row_block": s.row_block,
                "col_block": s.col_block,
                "rows": s.rows_padded,
                "cols": s.cols_padded,
            })
        })
    };
    let rank = |r: &crate::plan::RankPlan| json!({"expert_start": r.expert_start, "expert_len": r.expert_len});
    json!({
        "rule": plan.rule,
        "tokens": d.t,
        "tokens_padded": plan.tokens_padded,
        "hidden": d.h,
        "hidden_padded": plan.hidden_padded,
        "width_padded": plan.width_padded,
        "halves": d.halves,
        "experts": d.e,
        "zero_experts": n.zero,
        "top_k": d.k,
        "tp": plan.parallel.tp,
        "ep": plan.parallel.ep,
        "ranks": plan.ranks.iter().map(rank).collect::<Vec<_>>(),
        "weights": plan.weight,
        "element": plan.weight.element().name(),
        "w13_scale": scale(plan.w13_scale),
        "w2_scale": scale(plan.w2_scale),
        "activation": plan.activation,
        "order": plan.order,
        "interleave": plan.order.interleave(),
        "up_first": plan.order.up_first(),
        "nibble": plan.nibble,
        "store_scales": plan.storage,
        "store_weights": plan.weight_storage,
        "bias": plan.bias,
        "route": n.route,
        "groups": n.groups,
        "keep": n.keep,
        "factor": n.factor as f64 / 1000.0,
        "qx": n.qx,
        "qh": n.qh,
        "mid": if n.mid_bf16 { "bf16" } else { "f32" },
        "x_scale": inputs.x_scale,
        "h_scale": inputs.h_scale,
    })
}

fn blob<const N: usize>(
    sent: Vec<Sent<'_>>,
    metadata: [(&str, String); N],
) -> Result<Vec<u8>, String> {
    let metadata = metadata
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect();
    let views = sent
        .into_iter()
        .map(|s| Ok((s.name, TensorView::new(s.dtype, s.shape, s.bytes)?)))
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>();
    views
        .and_then(|views| safetensors::serialize(views, Some(metadata)))
        .map_err(|error| error.to_string())
}
