//! Which of a model's parts a layer of a checkpoint is, as its tensors say.
//!
//! It must not read data. Layer 7.

use super::error::AuditError;
use crate::checkpoint::{Checkpoint, CheckpointError, Layer, LayerId, LayerShape};
use crate::model::Model;
use crate::num::Dtype;
use crate::plan::{LayerSpec, Plan, layers};
use crate::terms::{Bias, LayerKind, WeightFormat};

/// A part of a model as a checkpoint stores it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredPart {
    /// What is planned: of several formats that layers are stored in the one of this layer's tensors,
    /// with biases where the experts have some.
    pub spec: LayerSpec,
    /// The element type of scales, where it is another than the format's.
    pub scale: Option<Dtype>,
}

impl StoredPart {
    /// The routed experts of a layer, a draft's too, or its shared ones.
    ///
    /// # Errors
    /// When the config says nothing of such experts, or that what their codes mean is nothing that
    /// can be held against bytes.
    pub fn of(
        model: &Model,
        shared: bool,
        (before, layer): (&Checkpoint, Option<LayerId>),
    ) -> Result<StoredPart, AuditError> {
        let kind = match shared {
            true => LayerKind::Shared,
            false => LayerKind::Routed,
        };
        let mut parts = layers(model, 1);
        // A draft's experts are routed ones, in a format that may be another.
        parts.retain(|part| part.kind == kind || !shared && part.kind == LayerKind::Draft);
        let mut parts = parts.into_iter().map(|spec| LayerSpec { kind, ..spec });
        let of = |spec: &LayerSpec| {
            readable(spec, model)?;
            let interleaved = model.interleaved && !shared;
            Ok(stored(spec, interleaved, (before, layer))?)
        };
        let Some(first) = parts.next() else {
            let name = &model.name;
            return Err(AuditError::Refused(format!(
                "the config of {name} says nothing of shared experts"
            )));
        };
        // What no format fits is told of the first.
        of(&first).or_else(|error| parts.find_map(|spec| of(&spec).ok()).ok_or(error))
    }

    /// Its plan with scales of the type that the checkpoint stores.
    pub fn of_stored_scales(&self, plan: Plan) -> Plan {
        match self.scale {
            Some(dtype) => plan.with_scales_of(dtype),
            None => plan,
        }
    }
}

/// Refuses a config whose codes mean what no audit knows.
fn readable(spec: &LayerSpec, model: &Model) -> Result<(), AuditError> {
    let weight = spec.weight;
    let what = match spec.zero_points {
        Some(_) => format!("its {weight} weights have zero points, which are not audited"),
        None if spec.act_order => format!(
            "the groups of its {weight} weights are permuted (desc_act, actorder), which are not audited"
        ),
        None if weight == WeightFormat::Int4Channel => {
            format!("its {weight} weights have one scale a row, which are not audited")
        }
        None => return Ok(()),
    };
    let name = &model.name;
    Err(AuditError::Refused(format!(
        "the config of {name} says that {what}"
    )))
}

/// The part with what files say of it, if the layer's tensors are of its format.
fn stored(
    spec: &LayerSpec,
    interleaved: bool,
    (before, layer): (&Checkpoint, Option<LayerId>),
) -> Result<StoredPart, CheckpointError> {
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let shape = LayerShape {
        experts: size(spec.experts),
        hidden: size(spec.hidden),
        intermediate: size(spec.intermediate),
        gated: spec.activation.halves() == 2,
        interleaved,
        weight: spec.weight,
        scale: None,
        bias: false,
        shared: spec.kind == LayerKind::Shared,
    };
    let found = Layer::find(before, shape, layer)?;
    let scale = found.stored_scale()?;
    let bias = match found.bias() {
        Some(_) => Bias::Both,
        None => spec.bias,
    };
    let shape = LayerShape { scale, ..shape };
    Layer::find(before, shape, layer)?.check()?;
    let spec = LayerSpec {
        bias,
        ..spec.clone()
    };
    Ok(StoredPart { spec, scale })
}
