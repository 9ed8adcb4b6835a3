//! Fills: a value depends on its own place alone.

use super::*;

#[test]
fn a_value_depends_on_its_own_index_alone() {
    for fill_kind in ["exact", "wild", "paint", "edge"] {
        let line = |t| format!("t={t},e=4,k=2,h=40,i=24,w=bf16,fill={fill_kind},seed=5");
        let (few, many) = (
            fill(&case(&line(3))).unwrap(),
            fill(&case(&line(9))).unwrap(),
        );
        assert_eq!(few.w13, many.w13);
        assert_eq!(few.x.f32s()[..], many.x.f32s()[..3 * 40], "{fill_kind}");
        let (RouterInput::Logits { logits: a, .. }, RouterInput::Logits { logits: b, .. }) =
            (&few.router, &many.router)
        else {
            panic!("logits")
        };
        assert_eq!(a[..], b[..a.len()]);
    }
    let given = |t| {
        fill(&case(&format!("t={t},e=8,k=3,route=given")))
            .unwrap()
            .router
    };
    let (RouterInput::Given { ids: a, .. }, RouterInput::Given { ids: b, .. }) =
        (given(2), given(7))
    else {
        panic!("ids")
    };
    assert_eq!(a[..], b[..a.len()]);
}

#[test]
fn padding_sharding_and_the_rule_change_no_value() {
    let plain = fill(&case("w=nvfp4,fill=wild")).unwrap();
    assert_eq!(
        plain,
        fill(&case("w=nvfp4,fill=wild,tp=4,pad=h128.i256.t8,order=int8")).unwrap()
    );
    assert_ne!(plain, fill(&case("w=nvfp4,fill=wild,seed=1")).unwrap());
}

#[test]
fn no_fill_draws_a_nan_code_and_wild_uses_every_other_code() {
    for &w in WeightFormat::ALL {
        for &kind in Fill::ALL {
            let case = Case {
                w,
                fill: kind,
                ..case("t=2,e=4,k=2,h=128,i=128")
            };
            let logical = fill(&case).unwrap();
            let width = logical.w13.bits() / 8;
            let mut seen = std::collections::BTreeSet::new();
            for code in logical.w13.bytes().chunks(width) {
                let code = code.iter().rev().fold(0, |c, &b| c << 8 | u32::from(b));
                assert!(
                    w.element().decode(code).is_finite(),
                    "{w} {kind} code {code:#x}"
                );
                seen.insert(code);
            }
            // Narrow formats draw all their finite codes; wide ones 256 of very many, some twice.
            let least = match w.element() {
                Dtype::E4m3 => 254,
                Dtype::E2m1 | Dtype::Int4 => 16,
                Dtype::Int8 => 256,
                _ => 200,
            };
            if kind == Fill::Wild {
                assert!(seen.len() >= least, "{w} draws {} codes", seen.len());
            }
            for scale in [&logical.w13_scale, &logical.w2_scale]
                .into_iter()
                .flatten()
            {
                let dtype = w.scale().unwrap().dtype;
                for code in scale.bytes().chunks(scale.bits() / 8) {
                    let code = code.iter().rev().fold(0, |c, &b| c << 8 | u32::from(b));
                    let value = dtype.decode(code);
                    assert!(value.is_finite() && value > 0.0, "{w} {kind} scale {value}");
                }
            }
        }
    }
}

#[test]
fn paint_repeats_after_251_elements_and_not_before() {
    let logical = fill(&case("t=1,e=1,k=1,h=256,i=8,fill=paint")).unwrap();
    let w = logical.w13.f32s();
    let distinct: std::collections::BTreeSet<u32> = w[..251].iter().map(|v| v.to_bits()).collect();
    assert_eq!(distinct.len(), 251);
    assert_eq!(w[..251], w[251..502]);
}

#[test]
fn given_ids_are_distinct_and_experts_are_often_empty() {
    let mut empty = 0;
    for seed in 0..200 {
        let case = Case {
            seed,
            ..case("t=16,e=8,k=3,route=given")
        };
        let RouterInput::Given { ids, weights } = fill(&case).unwrap().router else {
            panic!("ids")
        };
        for ids in ids.chunks(3) {
            assert!(ids[0] != ids[1] && ids[1] != ids[2] && ids[0] != ids[2]);
        }
        assert!(weights.iter().all(|w| [1.0, 0.5, 0.25].contains(w)));
        empty += usize::from((0..8).any(|e| !ids.contains(&e)));
    }
    assert!(
        (60..180).contains(&empty),
        "{empty} of 200 cases have an empty expert"
    );
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_allocated() {
    for (line, key, value) in [
        ("h=1099511627776", "h", 1u64 << 40),
        ("i=1099511627776", "i", 1 << 40),
        ("e=1099511627776,h=1,i=1", "e", 1 << 40),
        ("t=1099511627776,h=1,i=1", "t", 1 << 40),
        (
            "t=1099511627776,e=1099511627776,h=1099511627776,i=1099511627776",
            "e",
            1 << 40,
        ),
        (
            "t=1,e=1099511627776,k=1099511627776,h=1,i=1,route=given",
            "e",
            1 << 40,
        ),
    ] {
        let error = fill(&case(line)).unwrap_err();
        let FillError::TooLarge {
            key: named,
            value: at,
            ..
        } = &error
        else {
            panic!("{line}: {error}")
        };
        assert_eq!(*at, value, "{line}");
        assert!(
            line.contains(&format!("{named}={value}")),
            "{line}: {error}"
        );
        assert!(
            error.to_string().starts_with(&format!("{named}={value}")),
            "{key}: {error}"
        );
    }
}
