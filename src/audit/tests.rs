//! Tests of the audit: clean layers pass, every planted byte is found.

use super::{Audit, Fault, audit, audit_bytes};
use crate::layout::samples::{Sample, logical, samples};
use crate::layout::{
    PackedInputs, Pads, for_each, for_each_storage_pad, map, pack_layer, roles, set_pads,
};
use crate::plan::{Plan, Role};
use crate::tensor::Logical;
use crate::terms::{Storage, WeightFormat};
use proptest::prelude::*;

fn packed(sample: Sample) -> (Plan, Logical, PackedInputs) {
    let plan = sample.plan();
    let layer = logical(&plan);
    let inputs = pack_layer(&plan, &layer).expect("a sample is packed");
    (plan, layer, inputs)
}

fn run((plan, layer, inputs): &(Plan, Logical, PackedInputs)) -> Audit {
    audit(plan, layer, inputs).expect("a sample is laid out")
}

fn only_fault(audit: &Audit) -> Fault {
    let fault = audit.first[0].fault;
    assert!(audit.first.iter().all(|d| d.fault == fault), "{audit:?}");
    fault
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_packed_layer_is_clean_and_every_byte_of_it_is_looked_at(sample in samples()) {
        let it = packed(sample);
        let found = run(&it);
        assert!(found.clean(), "{:?}", found.first);
        let bytes: usize = it.2.ranks.iter().flat_map(|r| r.iter()).map(|(_, t)| t.bytes().len()).sum();
        assert_eq!(found.checked_bytes, (bytes + it.2.x.bytes().len()) as u64);
    }

    #[test]
    fn a_flipped_bit_of_a_logical_element_is_found(sample in samples(), pick in any::<u64>()) {
        let mut it = packed(sample);
        let role = roles(&it.0).nth(pick as usize % roles(&it.0).count()).expect("a role");
        let rank = (pick >> 8) as usize % it.0.ranks.len();
        let map = map(&it.0, role, rank).expect("laid out");
        let mut held = Vec::new();
        for_each(&map, |physical, at, l| {
            if l.is_some() {
                held.push((physical, at));
            }
        });
        if let Some(&(physical, at)) = held.get((pick >> 16) as usize % held.len().max(1)) {
            let tensor = it.2.ranks[rank].get_mut(role).expect("packed");
            let code = map.grid.read(tensor.bytes(), at);
            map.grid.write(tensor.bytes_mut(), at, code ^ 1);
            let found = run(&it);
            assert_eq!((found.differing, only_fault(&found)), (1, Fault::Element));
            assert_eq!(found.first[0].physical, Some(physical));
            assert_eq!((found.first[0].rank, found.first[0].tensor), (Some(rank), role.name()));
        }
    }

    #[test]
    fn one_loud_padding_element_is_found_wherever_it_is(sample in samples(), pick in any::<u64>()) {
        for role in [Role::W13, Role::W2] {
            let mut it = packed(sample);
            let rank = (pick >> 8) as usize % it.0.ranks.len();
            let map = map(&it.0, role, rank).expect("laid out");
            // Where padding meets elements, and anywhere.
            let mut pads = Vec::new();
            let mut borders = Vec::new();
            let mut last = true;
            for_each(&map, |physical, at, l| {
                if l.is_none() {
                    pads.push((physical, at));
                    if last {
                        borders.push((physical, at));
                    }
                }
                last = l.is_some();
            });
            for places in [pads, borders] {
                let n = (pick >> 16) as usize % places.len().max(1);
                let Some(&(physical, at)) = places.get(n) else { continue };
                let tensor = it.2.ranks[rank].get_mut(role).expect("packed");
                let before = map.grid.read(tensor.bytes(), at);
                map.grid.write(tensor.bytes_mut(), at, 1);
                let found = run(&it);
                assert_eq!((found.differing, only_fault(&found)), (1, Fault::Pad));
                assert_eq!(found.first[0].physical, Some(physical));
                let tensor = it.2.ranks[rank].get_mut(role).expect("packed");
                map.grid.write(tensor.bytes_mut(), at, before);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(sample in samples(), bytes in prop::collection::vec(any::<u8>(), 0..600), fit in any::<bool>()) {
        let plan = sample.plan();
        for role in Role::ALL {
            let Ok(map) = map(&plan, role, 0) else { continue };
            let mut bytes = bytes.clone();
            if fit && map.bytes() < 100_000 {
                bytes = bytes.iter().copied().chain([1]).cycle().take(map.bytes()).collect();
            }
            let found = audit_bytes(&plan, role, 0, &bytes).expect("laid out");
            assert_eq!(found.first.first().is_some_and(|d| d.fault == Fault::Size), bytes.len() != map.bytes());
        }
    }
}

#[test]
fn loud_padding_of_each_kind_is_named() {
    for role in Role::ALL {
        let mut it = packed(Sample {
            h: 20,
            i: 50,
            storage: Storage::Tiled128x4,
            ..Sample::default()
        });
        let map = map(&it.0, role, 1).expect("laid out");
        let tensor = it.2.ranks[1].get_mut(role).expect("packed");
        set_pads(
            &map,
            tensor,
            Pads::Logical,
            0x7f7f_ffff >> (32 - map.grid.bits),
        );
        let mut pads = 0;
        for_each(&map, |_, _, l| pads += u64::from(l.is_none()));
        let found = run(&it);
        if pads == 0 {
            assert!(found.clean());
            continue;
        }
        let wanted = match role {
            // 0x7f is the NaN of E4M3.
            Role::W13Scale | Role::W2Scale => Fault::ScalePad,
            _ => Fault::Pad,
        };
        assert_eq!(only_fault(&found), wanted, "{}", role.name());
        assert_eq!(found.differing, pads);
        assert_eq!(found.first.len() as u64, pads.min(10));
    }
}

#[test]
fn a_lone_loud_nibble_is_found_at_every_padding_place_of_odd_rows() {
    let mut it = packed(Sample {
        e: 1,
        h: 4,
        i: 3,
        tp: 1,
        hidden: 7,
        width: 5,
        ..Sample::default()
    });
    for role in [Role::W13, Role::W2] {
        let map = map(&it.0, role, 0).expect("laid out");
        let mut pads = Vec::new();
        for_each(&map, |_, at, l| pads.extend(l.is_none().then_some(at)));
        assert!(!pads.is_empty());
        for at in pads {
            let tensor = it.2.ranks[0].get_mut(role).expect("packed");
            map.grid.write(tensor.bytes_mut(), at, 1);
            assert_eq!(run(&it).differing, 1, "{} {at:?}", role.name());
            let tensor = it.2.ranks[0].get_mut(role).expect("packed");
            map.grid.write(tensor.bytes_mut(), at, 0);
        }
    }
}

#[test]
fn storage_padding_must_be_zero_though_it_is_finite() {
    let mut it = packed(Sample {
        storage: Storage::Tiled128x4,
        ..Sample::default()
    });
    let map = map(&it.0, Role::W13Scale, 0).expect("laid out");
    let tensor = it.2.ranks[0].get_mut(Role::W13Scale).expect("packed");
    set_pads(&map, tensor, Pads::Storage, 1);
    let mut pads = 0;
    for_each_storage_pad(&map, |_, _| pads += 1);
    let found = run(&it);
    assert!(pads > 0);
    assert_eq!(
        (found.differing, only_fault(&found)),
        (pads, Fault::StoragePad)
    );
}

#[test]
fn minus_zero_pads_are_accepted_and_counted() {
    for weight in [WeightFormat::Nvfp4, WeightFormat::Fp8, WeightFormat::F32] {
        let mut it = packed(Sample {
            weight,
            ..Sample::default()
        });
        let map = map(&it.0, Role::W2, 0).expect("laid out");
        let tensor = it.2.ranks[0].get_mut(Role::W2).expect("packed");
        set_pads(&map, tensor, Pads::Logical, 1 << (map.grid.bits - 1));
        let mut pads = 0;
        for_each(&map, |_, _, l| pads += u64::from(l.is_none()));
        let found = run(&it);
        assert!(found.clean() && pads > 0);
        assert_eq!(found.minus_zero_pads, pads);
    }
}

#[test]
fn int4_zero_nibbles_are_loud() {
    // facts/upstream-padding.md M17: code 0 decodes to -8.
    let mut it = packed(Sample {
        weight: WeightFormat::Int4G32,
        ..Sample::default()
    });
    let map = map(&it.0, Role::W13, 0).expect("laid out");
    let tensor = it.2.ranks[0].get_mut(Role::W13).expect("packed");
    set_pads(&map, tensor, Pads::Logical, 0);
    assert_eq!(only_fault(&run(&it)), Fault::Pad);
}

#[test]
fn broken_guards_missing_and_extra_tensors_and_dirty_inputs_are_found() {
    let mut it = packed(Sample::default());
    it.2.ranks[0]
        .get_mut(Role::W2)
        .expect("packed")
        .break_guard();
    assert_eq!(only_fault(&run(&it)), Fault::Guard);

    let mut it = packed(Sample::default());
    it.2.ranks.pop();
    assert_eq!(only_fault(&run(&it)), Fault::Missing);

    let mut it = packed(Sample::default());
    let more = it.2.ranks[0].clone();
    it.2.ranks.push(more);
    assert_eq!(only_fault(&run(&it)), Fault::Extra);

    let mut it = packed(Sample::default());
    let other = it.2.ranks[0].get(Role::W13).expect("packed").clone();
    it.2.ranks[0].set(Role::W2, other);
    assert_eq!(only_fault(&run(&it)), Fault::Size);

    let mut it = packed(Sample::default());
    let last = it.2.x.f32s().len() - 1;
    it.2.x.f32s_mut()[last] = f32::NAN;
    assert_eq!(only_fault(&run(&it)), Fault::Pad);
    it.2.x.f32s_mut()[last] = 0.0;
    it.2.x.bytes_mut()[0] ^= 1;
    let found = run(&it);
    assert_eq!(only_fault(&found), Fault::Element);
    assert_eq!(found.first[0].logical, Some((0, 0, 0)));
}

#[test]
fn a_difference_reads_as_a_sentence() {
    let mut it = packed(Sample::default());
    it.2.ranks[1]
        .get_mut(Role::W13)
        .expect("packed")
        .bytes_mut()[0] ^= 0x10;
    let text = run(&it).first[0].to_string();
    let wanted =
        "w13 rank 1 [0,0,1] byte 0 (logical [0,32,1]): element is not in its place, wanted ";
    assert!(text.starts_with(wanted), "{text}");
}
