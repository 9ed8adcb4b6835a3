//! What `kernels/README.md` says the kernels take, each held by a case that must pass; and run-time
//! sizes: what a launch is not told to multiply is not read.

use super::{ask, runs};
use padproof::case::Case;
use padproof::compare::same_bits;
use padproof::fill::fill;
use padproof::layout::{PackedInputs, Pads, map, pack_layer, set_pads};
use padproof::num::Dtype;
use padproof::plan::{Plan, Role, plan};
use padproof::property::find;
use padproof::subject::{CudaHost, Fault, HostOptions, Paths, Subject};
use padproof::tensor::RouterInput;
use padproof::terms::{Activation, Extent, WeightFormat};

/// Every line passes, vacuous only where `fill=wild` proves nothing more.
fn all_pass(lines: &[String], options: impl Fn(usize) -> HostOptions + Sync) {
    let cases: Vec<Case> = lines
        .iter()
        .map(|line| line.parse().expect("a case line"))
        .collect();
    let property = [find("pad-identity").expect("it is listed")];
    let tally = ask(&cases, &property, 1, options);
    tally.tell("promised");
    assert_eq!(
        tally.passed,
        cases.len() as u64,
        "every case proves something"
    );
}

#[test]
fn every_format_runs_with_every_input_type_order_and_nibble() {
    if !runs() {
        return;
    }
    let mut lines = Vec::new();
    for w in WeightFormat::ALL {
        for order in ["gate-up", "up-gate", "int1", "int8"] {
            // Interleaved rows cannot share a scale.
            let shares = matches!(w.scale(), Some(s) if matches!(s.rows, Extent::Block(2..)));
            if order.starts_with("int") && shares {
                continue;
            }
            for nib in ["low", "high"] {
                lines.push(format!(
                    "t=5,e=3,h=96,i=40,w={w},order={order},nib={nib},bias=both,pad=h128.i32"
                ));
            }
        }
    }
    let inputs = [None, Some(Dtype::F16), Some(Dtype::F32)];
    for input in inputs {
        all_pass(&lines, |_| HostOptions {
            inputs: input,
            ..HostOptions::default()
        });
    }
}

#[test]
fn every_activation_runs_with_biases_and_both_intermediates() {
    if !runs() {
        return;
    }
    let mut lines = Vec::new();
    for act in Activation::ALL {
        for mid in ["f32", "bf16"] {
            lines.push(format!(
                "t=5,h=64,i=50,act={act},w=bf16,mid={mid},bias=both,pad=h96.i32"
            ));
        }
    }
    all_pass(&lines, |_| HostOptions::default());
}

#[test]
fn experts_of_other_ranks_are_passed_over_with_ids_and_with_minus_one() {
    if !runs() {
        return;
    }
    let mut lines = Vec::new();
    for w in ["bf16", "fp8", "fp8-block", "nvfp4", "mxfp4"] {
        for (tp, ep) in [(2, 2), (4, 2), (4, 4)] {
            lines.push(format!(
                "t=9,e=8,k=3,h=64,i=100,tp={tp},ep={ep},w={w},pad=i32"
            ));
        }
    }
    for masked in [false, true] {
        all_pass(&lines, |_| HostOptions {
            masked,
            ..HostOptions::default()
        });
    }
}

#[test]
fn scales_in_tiles_of_128x4_run_for_both_four_bit_formats_and_eight() {
    if !runs() {
        return;
    }
    let lines: Vec<String> = ["nvfp4", "mxfp4", "mxfp8"]
        .iter()
        .flat_map(|w| {
            [(96, 40), (288, 150)]
                .map(|(h, i)| format!("t=5,e=3,h={h},i={i},w={w},store=128x4,pad=i32"))
        })
        .collect();
    all_pass(&lines, |_| HostOptions::default());
}

/// (1 + 2^24) - 2^24 is 0 in f32, and 1 from the other end.
#[test]
fn a_tokens_choices_are_added_in_their_order() {
    if !runs() {
        return;
    }
    let case: Case = "t=1,e=3,k=3,h=16,i=16,act=relu,route=given,w=f32"
        .parse()
        .expect("a case line");
    let plan = plan(&case).expect("it is planned");
    let mut logical = fill(&case).expect("it is filled");
    for tensor in [&mut logical.x, &mut logical.w13, &mut logical.w2] {
        tensor.f32s_mut().fill(0.0);
    }
    logical.x.f32s_mut()[0] = 1.0;
    for (expert, value) in [1.0, 16_777_216.0, -16_777_216.0].into_iter().enumerate() {
        logical.w13.f32s_mut()[expert * 256] = 1.0;
        logical.w2.f32s_mut()[expert * 256] = value;
    }
    logical.router = RouterInput::Given {
        ids: vec![0, 1, 2],
        weights: vec![1.0; 3],
    };
    let packed = pack_layer(&plan, &logical).expect("it is laid out");
    for (fault, wanted) in [(Fault::None, 0.0), (Fault::ChoicesReversed, 1.0)] {
        let mut subject = CudaHost::with(HostOptions {
            fault,
            ..HostOptions::default()
        });
        let found = subject.run(&plan, &packed).expect("it runs");
        assert_eq!(found.values[0], wanted, "{fault:?}");
    }
}

/// The plan, told to multiply what is real alone.
fn told(mut plan: Plan) -> Plan {
    plan.width_computed = plan.width;
    plan.hidden_computed = plan.dims.h;
    plan
}

/// The same bytes with the loudest code, NaN where there is one, in every padded element.
fn poisoned(plan: &Plan, packed: &PackedInputs) -> PackedInputs {
    let mut all = packed.clone();
    for (n, rank) in all.ranks.iter_mut().enumerate() {
        for role in [
            Role::W13,
            Role::W2,
            Role::W13Scale,
            Role::W2Scale,
            Role::W13Bias,
            Role::W2Bias,
        ] {
            let (Ok(map), Some(tensor)) = (map(plan, role, n), rank.get_mut(role)) else {
                continue;
            };
            let code = map.dtype.nan_code().unwrap_or(7);
            set_pads(&map, tensor, Pads::Both, code);
        }
    }
    let (h, padded) = (plan.dims.h as usize, plan.hidden_padded as usize);
    for row in all.x.f32s_mut().chunks_exact_mut(padded) {
        row[h..].fill(f32::NAN);
    }
    all
}

#[test]
fn what_a_launch_is_not_told_to_multiply_is_not_read() {
    if !runs() {
        return;
    }
    let mut seen = 0;
    for w in WeightFormat::ALL {
        for (act, order) in [
            ("swiglu", "gate-up"),
            ("swiglu", "up-gate"),
            ("swigluoai", "int1"),
            ("relu2", "gate-up"),
        ] {
            for (h, i) in [(61, 37), (96, 48), (100, 77)] {
                let line = format!(
                    "t=3,e=2,h={h},i={i},w={w},act={act},order={order},bias=both,pad=h128.i64"
                );
                let case: Case = line.parse().expect("a case line");
                let plan = plan(&case).expect("it is planned");
                let mut subject = CudaHost::new();
                if subject.supports(&plan).is_err() {
                    continue;
                }
                let packed = pack_layer(&plan, &fill(&case).expect("it is filled"));
                let packed = packed.expect("it is laid out");
                let whole = subject.run(&plan, &packed).expect("it runs");
                let told = told(plan);
                let dirty = poisoned(&told, &packed);
                for paths in [Paths::Auto, Paths::General] {
                    let mut subject = CudaHost::with(HostOptions {
                        paths,
                        ..HostOptions::default()
                    });
                    let less = subject.run(&told, &dirty).expect("it runs");
                    assert!(same_bits(&whole, &less).agree, "{line} {paths:?}");
                }
                let dirtied = subject.run(&plan_again(&case), &dirty).expect("it runs");
                assert!(
                    !same_bits(&whole, &dirtied).agree,
                    "{line}: no poison was seen"
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "{seen} cases");
}

/// Byte by byte: with NaN wherever `src/subject/cuda/reads.rs` says that nothing is read, nothing changes; so a watching
/// tool that finds a byte read there (`.ci/compute-sanitizer`) has found a fault, as here.
#[test]
fn nothing_is_read_but_what_a_bare_device_is_given() {
    if !runs() {
        return;
    }
    let mut lines = Vec::new();
    for w in WeightFormat::ALL {
        for (act, order) in [
            ("swiglu", "gate-up"),
            ("swiglu", "up-gate"),
            ("swigluoai", "int1"),
            ("relu2", "gate-up"),
        ] {
            lines.push(format!(
                "t=3,e=3,h=100,i=77,w={w},act={act},order={order},bias=both,pad=h128.i64"
            ));
        }
    }
    lines.extend(
        ["nvfp4", "mxfp4", "mxfp8"]
            .map(|w| format!("t=5,e=3,h=288,i=150,w={w},store=128x4,act=relu2,pad=h384.i64")),
    );
    let mut seen = 0;
    for line in lines {
        let case: Case = line.parse().expect("a case line");
        let whole = plan(&case).expect("it is planned");
        if CudaHost::new().supports(&whole).is_err() {
            continue;
        }
        let packed = pack_layer(&whole, &fill(&case).expect("it is filled"));
        let packed = packed.expect("it is laid out");
        for plan in [whole.clone(), told(whole)] {
            for paths in [Paths::Auto, Paths::General] {
                let with = |fault| HostOptions {
                    paths,
                    fault,
                    ..HostOptions::default()
                };
                let wanted = CudaHost::with(with(Fault::None)).run(&plan, &packed);
                let bare = CudaHost::with(with(Fault::None)).bare().run(&plan, &packed);
                let (wanted, bare) = (wanted.expect("it runs"), bare.expect("it runs"));
                assert!(same_bits(&wanted, &bare).agree, "{line} {paths:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "{seen} runs");
    // A read of a whole group of columns, past those that are told.
    let case: Case = "t=3,e=2,h=64,i=61,act=relu2,w=f32,pad=i64"
        .parse()
        .expect("a case line");
    let plan = told(plan(&case).expect("it is planned"));
    let packed = pack_layer(&plan, &fill(&case).expect("it is filled")).expect("it is laid out");
    let with = |fault| HostOptions {
        fault,
        ..HostOptions::default()
    };
    let wanted = CudaHost::new().run(&plan, &packed).expect("it runs");
    let found = CudaHost::with(with(Fault::TailRead))
        .bare()
        .run(&plan, &packed);
    assert!(!same_bits(&wanted, &found.expect("it runs")).agree);
}

fn plan_again(case: &Case) -> Plan {
    plan(case).expect("it is planned")
}

#[test]
fn a_size_told_too_small_is_obeyed_or_refused() {
    if !runs() {
        return;
    }
    let case: Case = "t=3,e=2,h=64,i=48,act=relu2,w=bf16,pad=i32"
        .parse()
        .expect("a case line");
    let whole = plan(&case).expect("it is planned");
    let packed = pack_layer(&whole, &fill(&case).expect("it is filled")).expect("it is laid out");
    let mut subject = CudaHost::new();
    let right = subject.run(&whole, &packed).expect("it runs");
    let mut short = whole.clone();
    short.width_computed = 40;
    let wrong = subject.run(&short, &packed).expect("it runs");
    assert!(
        !same_bits(&right, &wrong).agree,
        "eight channels are missing"
    );
    let mut short = whole;
    short.hidden_computed = 63;
    let why = subject.supports(&short).unwrap_err().to_string();
    assert_eq!(
        why,
        "unsupported: hidden_computed=63 leaves out columns of h=64"
    );
}
