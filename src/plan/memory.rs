//! What the ranks of a plan hold of a layer's weights, and what they would hold without padding.
//!
//! It must not judge either. Layer 3.

use super::derive::set_grids;
use super::tensors::tensors;
use super::{Plan, PlanError, RankPlan, TensorPlan};
use crate::rule::PadValue;
use crate::terms::{LayerKind, Storage};

/// Bytes of a layer's tensors on all ranks, activations left out: weights, scales, zero points,
/// biases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// What is allocated, storage padding and wider rows included.
    pub held: u64,
    /// What the ranks' own shares take: without padding, on the checkpoint's grid of scales, in
    /// rows one after the other. Where scales are repeated on a finer grid, the checkpoint's count once.
    pub needed: u64,
}

impl TensorPlan {
    /// Whether it is an activation, sized by the tokens of a batch, and no part of the model.
    pub fn is_activation(&self) -> bool {
        is_activation(self.name)
    }
}

/// Whether a tensor of this name is an activation.
pub fn is_activation(name: &str) -> bool {
    matches!(name, "x" | "intermediate" | "y")
}

fn sum<'t>(tensors: impl Iterator<Item = &'t TensorPlan>) -> u64 {
    tensors.fold(0, |all, t| all.saturating_add(t.bytes))
}

impl Plan {
    /// Bytes of the weights, scales, zero points and biases that one rank holds.
    pub fn weight_bytes(&self) -> u64 {
        sum(self.tensors.iter().filter(|t| !t.is_activation()))
    }

    /// Bytes of a rank's activations for the tokens of the plan.
    pub fn activation_bytes(&self) -> u64 {
        sum(self.tensors.iter().filter(|t| t.is_activation()))
    }

    /// The memory of all ranks.
    ///
    /// # Errors
    /// [`PlanError::Overflow`]; cannot happen for a plan that was made.
    pub fn memory(&self) -> Result<Memory, PlanError> {
        let ranks = self.ranks.len() as u64;
        // Most ranks hold as much as others do.
        let mut known: Vec<((u64, u64, u64), u64)> = Vec::new();
        let shared = self.repeats_scales();
        let block = self.w2_scale.map_or(1, |s| s.col_block_source.max(1));
        let mut needed = 0u64;
        for rank in &self.ranks {
            let offset = if shared { rank.start % block } else { 0 };
            let share = (rank.len, rank.expert_len, offset);
            let found = known.iter().find(|(other, _)| *other == share);
            let bytes = match found {
                Some((_, bytes)) => *bytes,
                None if rank.len == 0 || rank.expert_len == 0 => 0,
                None => {
                    let mut own = self.clone();
                    own.ranks = vec![*rank];
                    let bytes = own.bare_bytes(*rank, shared)?;
                    known.push((share, bytes));
                    bytes
                }
            };
            needed = needed.saturating_add(bytes);
        }
        Ok(Memory {
            held: self.weight_bytes().saturating_mul(ranks),
            needed,
        })
    }

    /// Whether the kernel is told at run time that some of what it holds is padding, and leaves it
    /// out.
    pub fn is_told(&self) -> bool {
        let padded = [self.width_padded, self.hidden_padded];
        self.computed().iter().any(|stage| *stage != padded)
    }

    /// Width and hidden size that the first and the second GEMM multiply.
    fn computed(&self) -> [[u64; 2]; 2] {
        [
            [self.width_computed, self.hidden_computed],
            [self.w2_width_computed, self.w2_hidden_computed],
        ]
    }

    /// Multiplications of all ranks over those without padding, minus 1, in millionths: of the
    /// sizes that the kernel multiplies, which are less than those it holds where it is told.
    pub fn arithmetic_millionths(&self) -> u64 {
        if !self.is_told() {
            return self.overhead_millionths;
        }
        let shards = match self.layer.follows() {
            LayerKind::Routed => self.parallel.tp / self.parallel.ep.max(1),
            _ => self.parallel.tp,
        };
        let [first, second] = self.computed().map(|[w, h]| u128::from(w) * u128::from(h));
        let halves = u128::from(self.dims.halves);
        let each = halves.saturating_mul(first).saturating_add(second);
        let done = each.saturating_mul(u128::from(shards));
        let logical = u128::from(self.dims.i) * u128::from(self.dims.h) * (halves + 1);
        let logical = logical.max(1);
        let extra = done.saturating_sub(logical).saturating_mul(1_000_000);
        u64::try_from((extra + logical / 2) / logical).unwrap_or(u64::MAX)
    }

    /// Whether scales of the checkpoint are held several times, on a finer grid.
    fn repeats_scales(&self) -> bool {
        self.w2_scale
            .is_some_and(|s| s.col_block < s.col_block_source)
    }

    /// Counts those of the checkpoint's scales alone that begin in the rank's share, so that all
    /// ranks together need each of them once.
    fn share_scales(&mut self, rank: RankPlan) {
        let end = rank.start.saturating_add(rank.len);
        let begun = |block: u64| {
            end.div_ceil(block)
                .saturating_sub(rank.start.div_ceil(block))
        };
        let halves = self.dims.halves;
        if let Some(s) = self.w13_scale.as_mut().filter(|s| s.row_block_source > 1) {
            s.rows_padded = halves.saturating_mul(begun(s.row_block_source));
            s.rows_stored = s.rows_padded;
        }
        if let Some(s) = self.w2_scale.as_mut().filter(|s| s.col_block_source > 1) {
            s.cols_padded = begun(s.col_block_source);
            s.cols_stored = s.cols_padded;
        }
    }

    /// The weights of a plan of one rank, without any padding; `shared` where scales are repeated.
    fn bare_bytes(mut self, rank: RankPlan, shared: bool) -> Result<u64, PlanError> {
        let width = self.ranks.iter().map(|r| r.len).max().unwrap_or(0);
        self.width = width;
        self.width_padded = width;
        self.w13_rows = self.dims.halves.saturating_mul(width);
        self.hidden_padded = self.dims.h;
        self.storage = Storage::Linear;
        self.weight_storage = Storage::Linear;
        set_grids(&mut self, (None, None, None), PadValue::Zero)?;
        if shared {
            self.share_scales(rank);
        }
        self.tensors = tensors(&self, [0, 0])?;
        Ok(self.weight_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;

    fn memory(line: &str) -> Memory {
        let case = line.parse().expect("a case");
        plan(&case).expect("a plan").memory().expect("sizes")
    }

    #[test]
    fn what_is_not_padded_holds_what_it_needs() {
        for line in [
            "e=8,h=256,i=512,w=bf16,bias=both",
            "e=8,h=256,i=512,w=nvfp4,tp=4",
            "e=8,h=256,i=512,w=fp8-block,tp=4,ep=2",
            "e=8,h=256,i=512,w=mxfp4,tp=8,ep=8",
        ] {
            let found = memory(line);
            assert_eq!(found.held, found.needed, "{line}");
        }
    }

    /// 33 channels in bytes, and their scales and biases, on buffers of 64.
    #[test]
    fn scales_and_biases_are_counted_with_the_weights() {
        let found = memory("e=2,h=64,i=33,w=mxfp8,bias=both,split=floor,pad=i64,act=relu2");
        // w13 and w2, their scales, the biases in f32.
        assert_eq!(
            found.held,
            2 * (64 * 64 + 64 * 64 + 64 * 2 + 64 * 2 + 64 * 4 + 64 * 4)
        );
        assert_eq!(
            found.needed,
            2 * (33 * 64 + 64 * 33 + 33 * 2 + 64 * 2 + 33 * 4 + 64 * 4)
        );
    }

    /// gpt-oss under trtllm-gen: 2944 x 3072 are held, and multiplied up to the next 128.
    #[test]
    fn what_the_kernel_is_told_is_no_arithmetic() {
        let line = "e=32,k=4,h=2880,i=2880,w=mxfp4,rule=flashinfer.trtllm_gen.mxfp4";
        let told = plan(&line.parse().unwrap()).unwrap();
        assert_eq!((told.width_padded, told.hidden_padded), (2944, 3072));
        assert_eq!((told.width_computed, told.hidden_computed), (2944, 2944));
        assert!(told.is_told());
        assert_eq!(told.overhead_millionths, 90_370);
        assert_eq!(told.arithmetic_millionths(), 44_938);
        let whole = plan(&"i=33,h=64,w=bf16,pad=i64".parse().unwrap()).unwrap();
        assert!(!whole.is_told());
        assert_eq!(whole.arithmetic_millionths(), whole.overhead_millionths);
    }

    fn shipped(rule: &str, line: &str) -> Plan {
        let case = format!("{line},rule={rule}").parse().expect("a case");
        plan(&case).expect("a plan")
    }

    /// facts/upstream-padding.md 1.5 AI1: stage 2 leaves out whole 128s of the width, stage 1 whole
    /// 64s. A pad of 64 is computed by w2: (2 * 192 + 256) / (3 * 192).
    #[test]
    fn a_pad_of_64_is_multiplied_by_the_second_stage_of_aiter() {
        let line = "e=128,k=8,h=4096,i=1536,tp=8,w=mxfp4";
        for rule in ["vllm.aiter.mxfp4", "sglang.aiter.mxfp4"] {
            let made = shipped(rule, line);
            let computed = [made.width_computed, made.w2_width_computed];
            assert_eq!((made.width_padded, computed), (256, [192, 256]), "{rule}");
            assert_eq!(made.arithmetic_millionths(), 111_111, "{rule}");
        }
        // facts/reports.md B94: 384 -> 512 is a pad of 128, which both leave out.
        let made = shipped("sglang.aiter.mxfp4", "e=8,h=4096,i=3072,tp=8,w=mxfp4");
        assert_eq!((made.width_padded, made.arithmetic_millionths()), (512, 0));
    }

    /// facts/upstream-padding.md 1.3 V9: scales on blocks of 64 along both axes; the checkpoint has
    /// 24 x 32 and 32 x 12 of them.
    #[test]
    fn repeated_scales_are_counted_against_those_of_the_checkpoint() {
        let line = "e=128,k=8,h=4096,i=1536,tp=8,w=fp8-block";
        let made = shipped("vllm.triton.fp8-block.refined", line);
        let found = made.memory().expect("sizes");
        let weights = 8 * 128 * 3 * 192 * 4096;
        let scales = |rows: u64, cols: u64| 4 * 128 * rows * cols;
        let held = weights + 8 * (scales(6, 64) + scales(64, 3));
        let needed = weights + scales(24, 32) + scales(32, 12);
        assert_eq!((found.held, found.needed), (held, needed));
    }

    /// facts/upstream-padding.md 1.10: 1536 over 8 ranks of 256 leaves two empty.
    #[test]
    fn empty_ranks_need_nothing_and_hold_as_much() {
        let found = memory("e=1,k=1,h=64,i=1536,tp=8,w=bf16,split=stride,pad=i128,act=relu2");
        assert_eq!(found.held, 8 * 2 * (2 * 256 * 64));
        assert_eq!(found.needed, 2 * (2 * 1536 * 64));
    }
}
