//! Writes what a loader must make of one rank of each plan: every tensor's shape and bytes, and
//! where its halves and pads lie.
//!
//! It must not derive a size: shapes are the plan's, places the layout's. Layer 10.

use super::grid::sentence;
use super::style::{fit_word, lines, table};
use super::words::part;
use crate::layout::{Axis, Map, map};
use crate::num::Dtype;
use crate::plan::{Plan, RankPlan, Role, TensorPlan, ZERO_POINT};
use crate::rule::{BiasShare, Unread};
use crate::run::Survey;
use crate::terms::{LayerKind, Storage};
use std::io::{self, Write};

/// Ranges of one axis that are written out; of more, these and how many there are.
const RANGES_MAX: usize = 6;

/// Writes one rank of every plan of the survey: its share, its tensors, the ranges of their axes.
///
/// # Errors
/// Those of the stream.
pub fn plan_tensors(
    survey: &Survey,
    rank: usize,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for one in &survey.plans {
        let plan = &one.plan;
        if one.uncovered {
            continue;
        }
        if let Some(share) = plan.ranks.get(rank) {
            one_rank((plan, &part(survey, plan)), share, rank, width, out)?;
        }
    }
    Ok(())
}

fn one_rank(
    (plan, layer): (&Plan, &str),
    share: &RankPlan,
    rank: usize,
    width: Option<usize>,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(
        out,
        "\n{}, {layer} layer, rank {rank} of {}: {}\n  channels {} of {}, experts {} of {}",
        plan.rule,
        plan.ranks.len(),
        fit_word(plan.fit),
        range(share.start, share.len),
        plan.dims.i,
        range(share.expert_start, share.expert_len),
        plan.dims.e,
    )?;
    for line in sentence(&words(plan), width) {
        writeln!(out, "{line}")?;
    }
    let mut rows = table(&[
        "tensor",
        "dtype",
        "shape",
        "stored",
        "logical here",
        "bytes",
    ]);
    let mut places = Vec::new();
    for tensor in &plan.tensors {
        let role = Role::ALL.into_iter().find(|r| r.name() == tensor.name);
        let laid = role.map(|role| map(plan, role, rank));
        let logical = match &laid {
            // The whole of it, of which the stack makes a share.
            Some(Ok(map)) if map.role == Role::W2Bias && divides(plan) => {
                [held(&map.experts), plan.dims.h, 1]
            }
            Some(Ok(map)) => [&map.experts, &map.rows, &map.cols].map(held),
            // Activations, whose last axis is the rank's share; and what cannot be laid out.
            _ if tensor.name == "intermediate" => {
                let [one, rows, _] = tensor.logical;
                [one, rows, share.len]
            }
            _ => tensor.logical,
        };
        rows.add_row([
            tensor.name.to_owned(),
            tensor.dtype.to_owned(),
            list(&tensor.shape),
            stored(tensor),
            list(&logical),
            tensor.bytes.to_string(),
        ]);
        match laid {
            // The layout's way to add it once, whatever the stack's is.
            Some(Ok(map)) => {
                places.extend(ranges(plan, &map));
                if map.role == Role::W2Bias {
                    places.extend(bias_share(plan));
                }
            }
            Some(Err(error)) => places.push(format!("{}: not laid out: {error}", tensor.name)),
            None => {}
        }
    }
    writeln!(out)?;
    for line in lines(&rows) {
        writeln!(out, "{line}")?;
    }
    if !places.is_empty() {
        writeln!(out)?;
    }
    for text in places {
        for line in sentence(&text, width) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Ranks that share the intermediate axis of the plan's experts.
fn sharing(plan: &Plan) -> u64 {
    match plan.layer.follows() {
        LayerKind::Routed => plan.parallel.tp / plan.parallel.ep.max(1),
        _ => plan.parallel.tp,
    }
}

/// Whether the stack gives each rank a share of the bias of w2.
fn divides(plan: &Plan) -> bool {
    let whole = matches!(
        plan.w2_bias,
        Some(BiasShare::Divided | BiasShare::EveryRank)
    );
    whole && sharing(plan) > 1
}

/// What a rank holds of the bias of w2, so that the sum of the ranks holds it once.
fn bias_share(plan: &Plan) -> Option<String> {
    let ranks = sharing(plan);
    if ranks < 2 {
        return None;
    }
    let h = plan.dims.h;
    Some(match plan.w2_bias {
        Some(BiasShare::Divided) => format!(
            "w2_bias: on every rank real 0..{h}, divided by {ranks}, so that the sum of the ranks \
             holds it once"
        ),
        Some(BiasShare::EveryRank) => {
            format!("w2_bias: on every rank real 0..{h} in full, so that the sum holds it {ranks} times")
        }
        Some(BiasShare::FirstRank) => {
            "w2_bias: on the first rank of a group alone, so that the sum of the ranks holds it once"
                .to_owned()
        }
        None => "w2_bias: laid here on the first rank of a group alone, so that the sum of the \
                 ranks holds it once; where the stack adds it was not read"
            .to_owned(),
    })
}

/// How bytes are laid: what holds for every tensor of the plan.
fn words(plan: &Plan) -> String {
    let mut all = Vec::new();
    let open = |one| match plan.unread.contains(&one) {
        true => " (unknown)",
        false => "",
    };
    if plan.dims.halves == 2 {
        let unknown = open(Unread::Order);
        all.push(format!(
            "w13 rows {}{unknown}, pads {}",
            plan.order, plan.place
        ));
    }
    let (weights, unknown) = (plan.weight_storage, open(Unread::Weights));
    all.push(format!("storage of weights {weights}{unknown}"));
    if plan.w13_scale.is_some() {
        all.push(format!(
            "of scales {}{}",
            plan.storage,
            open(Unread::Scales)
        ));
    }
    if plan.weight.element().bits() == 4 {
        all.push(format!("even columns in the {} nibble", plan.nibble));
    }
    all.push(format!("pads of weights hold {:#x}", plan.weight_pad));
    for (name, scale) in [("w13", plan.w13_scale), ("w2", plan.w2_scale)] {
        if let Some(scale) = scale {
            all.push(format!("of {name}_scale {:#x}", scale.pad_code));
        }
    }
    if !plan.unread.is_empty() {
        all.push("what is unknown the rule's source does not say".to_owned());
    }
    if (plan.weight_storage, plan.storage) != (Storage::Linear, Storage::Linear) {
        all.push("ranges are after rows are shuffled and before tiles are formed".to_owned());
    }
    all.join("; ")
}

/// The shape in memory: packed FP4 and INT4 in bytes, and the bytes of a row where it is longer
/// than its elements.
fn stored(tensor: &TensorPlan) -> String {
    let dtype = match tensor.dtype {
        ZERO_POINT => Some(Dtype::Int4),
        name => Dtype::ALL.into_iter().find(|d| d.name() == name),
    };
    let (Some(dtype), [e, r, c]) = (dtype, tensor.shape.as_slice()) else {
        return String::new();
    };
    let row = c.saturating_mul(dtype.bits()).div_ceil(8);
    let actual = tensor
        .bytes
        .checked_div(e.saturating_mul(*r))
        .unwrap_or(row);
    match (dtype.bits() == 4, actual > row) {
        (_, true) => format!("{} rows of {actual} bytes", list(&[*e, *r])),
        (true, false) => format!("{} bytes", list(&[*e, *r, row])),
        (false, false) => "as shape".to_owned(),
    }
}

/// Positions of an axis that hold something logical.
fn held(axis: &Axis) -> u64 {
    axis.runs().iter().map(|run| run.len as u64).sum()
}

/// What lies where along the axes of a tensor that are more than one range.
fn ranges(plan: &Plan, map: &Map) -> Vec<String> {
    let gated = plan.dims.halves == 2 && !map.role.is_second();
    let half = map.rows.logical_len() / 2;
    let rows = match gated {
        true => pieces(&map.rows, half, ["gate", "up"]),
        false => pieces(&map.rows, 0, ["", "real"]),
    };
    let axes = [
        ("rows", rows),
        ("columns", pieces(&map.cols, 0, ["", "real"])),
    ];
    axes.into_iter()
        .filter(|(_, pieces)| pieces.iter().any(|piece| piece.0 != "real"))
        .map(|(axis, pieces)| {
            let shown = pieces.iter().take(RANGES_MAX);
            let shown = shown.map(|(what, start, end)| format!("{what} {start}..{end}"));
            let mut text = shown.collect::<Vec<_>>().join(", ");
            if pieces.len() > RANGES_MAX {
                text.push_str(&format!(", … ({} ranges)", pieces.len()));
            }
            format!("{} {axis}: {text}", map.role.name())
        })
        .collect()
}

/// Consecutive positions of one kind: the first name is of logical positions below `half`, the
/// second of the others.
fn pieces(axis: &Axis, half: usize, names: [&'static str; 2]) -> Vec<(&'static str, usize, usize)> {
    let mut all: Vec<(&'static str, usize, usize)> = Vec::new();
    let mut push = |what, start, end| match all.last_mut() {
        _ if start == end => {}
        Some((last, _, until)) if *last == what => *until = end,
        _ => all.push((what, start, end)),
    };
    let mut at = 0;
    for run in axis.runs() {
        push("pad", at, run.physical);
        at = run.physical + run.len;
        // Halves without a pad between them are one run.
        let first = half.saturating_sub(run.logical).min(run.len);
        push(names[0], run.physical, run.physical + first);
        push(names[1], run.physical + first, at);
    }
    push("pad", at, axis.physical_len());
    all
}

fn range(start: u64, len: u64) -> String {
    format!("{start}..{}", start.saturating_add(len))
}

fn list(sizes: &[u64]) -> String {
    let words: Vec<String> = sizes.iter().map(u64::to_string).collect();
    words.join(" x ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Parallel;
    use crate::rule::Rules;
    use crate::run::{Query, survey};

    fn told(rule: &str, rank: usize) -> String {
        let model = crate::model::load("gpt-oss-20b").unwrap();
        let query = Query {
            rule: Some(rule),
            ..Query::of(Parallel { tp: 4, ep: 1 })
        };
        let found = survey(&model, Rules::builtin(), &query).unwrap();
        let mut out = Vec::new();
        plan_tensors(&found, rank, None, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn bias(text: &str) -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains("w2_bias"));
        lines
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect()
    }

    /// facts/upstream-padding.md 1.6 T9, 3.1 V-12: a loader that left it out on ranks 1 to 3, as was
    /// said of every stack, would add a quarter of it.
    #[test]
    fn a_bias_that_the_stack_divides_is_on_every_rank() {
        for rank in [0, 3] {
            let text = told("trtllm.trtllm_gen.mxfp4", rank);
            let [row, place, share] = bias(&text).try_into().expect(&text);
            assert!(row.contains("32 x 2880 x 1"), "{row}");
            assert!(place.contains("real 0..2880") || rank > 0, "{place}");
            assert!(share.contains("on every rank real 0..2880, divided by 4"));
        }
        let rank = bias(&told("sglang.triton_kernels.mxfp4", 3));
        assert!(
            rank.iter()
                .any(|line| line.contains("on the first rank of a group alone"))
        );
        let open = bias(&told("vllm.marlin.mxfp4", 3));
        assert!(
            open.iter().any(|line| line.ends_with("was not read")),
            "{open:?}"
        );
    }
}
