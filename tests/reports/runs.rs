//! Right answers of reports that only a run of the layer shows.

use super::parsed;
use padproof::case::Case;
use padproof::compare::same_bits;
use padproof::fill::fill;
use padproof::layout::{self, PackedInputs, Pads, pack_layer};
use padproof::num::Dtype;
use padproof::plan::{Plan, Role, plan};
use padproof::property::{Tier, Trial, Verdict, find};
use padproof::subject::{Cpu, Subject};
use padproof::tensor::Output;

fn output(values: Vec<f32>, tokens: usize) -> Output {
    Output {
        tokens,
        hidden: values.len() / tokens,
        values,
        ids: Vec::new(),
        weights: Vec::new(),
    }
}

/// B55: [T, 2816] added to [T, 2688] is an error, also where the rest of it is zero.
#[test]
fn an_output_of_the_padded_size_is_no_output() {
    let row: Vec<f32> = (0..2688).map(|n| n as f32).collect();
    let padded: Vec<f32> = (0..2816)
        .map(|n| row.get(n).copied().unwrap_or(0.0))
        .collect();
    let found = same_bits(&output(row.repeat(2), 2), &output(padded.repeat(2), 2));
    assert!(!found.agree);
    let (wanted, actual) = found.shapes.expect("shapes differ");
    assert_eq!((wanted.hidden, actual.hidden), (2688, 2816));
    let case = parsed("t=2,e=2,k=1,h=2688,i=32,act=relu2,w=nvfp4,pad=h256");
    let (made, packed) = packed(&case);
    assert_eq!(
        (made.hidden_padded, packed.x.shape()),
        (2816, &[2, 2816][..])
    );
    let got = ran(&made, &packed);
    assert_eq!(
        (got.tokens, got.hidden, got.values.len()),
        (2, 2688, 2 * 2688)
    );
}

fn packed(case: &Case) -> (Plan, PackedInputs) {
    let made = plan(case).unwrap_or_else(|e| panic!("{case}: {e}"));
    let logical = fill(case).unwrap_or_else(|e| panic!("{case}: {e}"));
    let packed = pack_layer(&made, &logical).unwrap_or_else(|e| panic!("{case}: {e}"));
    (made, packed)
}

fn ran(made: &Plan, packed: &PackedInputs) -> Output {
    Cpu::default()
        .run(made, packed)
        .unwrap_or_else(|e| panic!("{e}"))
}

/// B73: K = 1504 has 47 scale columns and N is 256; the 48th may hold 0x00, 0x7f or 0xff.
#[test]
fn no_byte_in_a_scale_pad_changes_a_bit() {
    let with = |line: &str, pads: Pads, byte: u32| {
        let (made, mut packed) = packed(&parsed(line));
        let scale = made.w13_scale.expect("mxfp4 has scales");
        let map = layout::map(&made, Role::W13Scale, 0).expect("mapped");
        let tensor = packed.ranks[0].get_mut(Role::W13Scale).expect("there");
        layout::set_pads(&map, tensor, pads, byte);
        (
            (scale.cols_logical, scale.cols_padded, scale.cols_stored),
            ran(&made, &packed),
        )
    };
    // A column that only storage adds: not even NaN may be read.
    let stored = "t=2,e=2,k=1,h=1504,i=256,act=relu2,w=mxfp4,store=128x4,fill=wild";
    let (columns, clean) = with(stored, Pads::Storage, 0x00);
    assert_eq!(columns, (47, 47, 48));
    for byte in [0x7f, 0xff] {
        let (_, dirty) = with(stored, Pads::Storage, byte);
        assert!(same_bits(&clean, &dirty).agree, "{byte:#x}");
    }
    // A column of padded K: zero payload makes any finite scale harmless, but 0 * NaN is NaN.
    let padded = "t=2,e=2,k=1,h=1504,i=256,act=relu2,w=mxfp4,pad=h128,fill=wild";
    let (columns, one) = with(padded, Pads::Logical, 0x7f);
    assert_eq!(columns, (47, 48, 48));
    assert!(same_bits(&clean, &one).agree);
    assert!(same_bits(&one, &with(padded, Pads::Logical, 0x00).1).agree);
    let (_, nan) = with(padded, Pads::Logical, 0xff);
    assert!(nan.values.iter().all(|v| v.is_nan()));
}

/// B75: 17 of 128 rows are real; rows 17..128 hold NaN, and rows 0..17 what zeros there give.
#[test]
fn stale_rows_change_no_row_before_them() {
    let nan = Dtype::E4m3.decode(0x7f);
    assert!(nan.is_nan());
    for qx in ["none", "token", "group"] {
        let case = parsed(&format!(
            "t=17,e=4,k=2,h=64,i=40,act=relu2,w=nvfp4,qx={qx},pad=i64.t128"
        ));
        let (made, mut stale) = packed(&case);
        let clean = ran(&made, &stale);
        assert_eq!((made.tokens_padded, clean.tokens), (128, 17));
        let row = made.hidden_padded as usize;
        stale.x.f32s_mut()[17 * row..].fill(nan);
        let dirty = ran(&made, &stale);
        assert!(same_bits(&clean, &dirty).agree, "qx={qx}");
        assert!(dirty.values.iter().all(|v| v.is_finite()), "qx={qx}");
    }
}

/// B79: zero tails of 928..1024 are exact, with an amax over them too; dirty ones raise it.
#[test]
fn a_dirty_tail_is_seen_by_the_amax() {
    let identity = find("pad-identity").expect("listed");
    let line = "t=4,e=2,k=1,h=64,i=1856,tp=2,act=relu2,w=fp8,qh=token,rule=sglang.flashinfer_trtllm.fp8,fill=wild";
    let mut cpu = Cpu::default();
    let verdict = (identity.check)(&parsed(line), &mut Trial::new(&mut cpu));
    assert_eq!(verdict, Verdict::Pass(Tier::SameOrder));
    // w2 is zero there: only the amax lets the fault through.
    let (made, clean) = packed(&parsed(line));
    let mut dirty = clean.clone();
    for rank in 0..2 {
        let map = layout::map(&made, Role::W13, rank).expect("mapped");
        let tensor = dirty.ranks[rank].get_mut(Role::W13).expect("there");
        layout::set_pads(&map, tensor, Pads::Logical, 0x7e);
    }
    let raised = ran(&made, &dirty);
    assert!(raised.values.iter().all(|v| v.is_finite()));
    assert!(!same_bits(&ran(&made, &clean), &raised).agree);
}
