//! The lemmas of the layout, as tests.

use super::samples::{Sample, logical, samples};
use super::*;
use crate::plan::Role;
use crate::tensor::{Pool, Tensor};
use crate::terms::{Nibble, Order, Place, Storage, WeightFormat};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn each(packed: &mut PackedInputs, mut change: impl FnMut(&mut Tensor)) {
    for rank in &mut packed.ranks {
        for role in Role::ALL {
            rank.get_mut(role).map(&mut change);
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn maps_of_weights_are_injective_and_fill_all_that_is_not_padding(sample in samples()) {
        let plan = sample.plan();
        for role in roles(&plan) {
            for rank in 0..plan.ranks.len() {
                let map = map(&plan, role, rank).expect("a sample is laid out");
                let mut places = BTreeSet::new();
                let mut held = BTreeMap::new();
                let mut bytes = BTreeSet::new();
                for_each(&map, |p, at, l| {
                    assert!(places.insert((at.byte, at.shift)), "two positions at {at:?}");
                    bytes.extend(at.byte..at.byte + map.grid.span());
                    assert_eq!(map.logical(p.0, p.1, p.2), l, "inverse");
                    if let Some(l) = l {
                        *held.entry(l).or_insert(0) += 1;
                        let first = map.physical(l.0, l.1, l.2).expect("it is held");
                        if held[&l] == 1 {
                            assert_eq!(first, at, "forward");
                        }
                    }
                });
                for_each_storage_pad(&map, |_, at| {
                    assert!(places.insert((at.byte, at.shift)), "two positions at {at:?}");
                    bytes.extend(at.byte..at.byte + map.grid.span());
                });
                assert_eq!(bytes.len(), map.bytes(), "every byte is a position");
                assert_eq!(bytes.last().map_or(0, |b| b + 1), map.bytes());
                let share = plan.ranks[rank];
                if matches!(role, Role::W13 | Role::W2) {
                    assert!(held.values().all(|&n| n == 1), "injective");
                    let rows = if role == Role::W13 { plan.dims.halves } else { 1 };
                    let wanted = share.expert_len * rows * share.len * plan.dims.h;
                    assert_eq!(held.len() as u64, wanted, "onto");
                }
            }
        }
    }

    #[test]
    fn unpacking_every_rank_restores_every_element(sample in samples()) {
        let plan = sample.plan();
        let layer = logical(&plan);
        let packed = pack_layer(&plan, &layer).expect("a sample is packed");
        for role in roles(&plan) {
            let wanted = logical_of(&layer, role).expect("the sample has it");
            let mut restored = Tensor::zeroed("restored", wanted.shape(), wanted.bits());
            restored.bytes_mut().fill(0xEE);
            let mut times = BTreeMap::new();
            for (rank, inputs) in packed.ranks.iter().enumerate() {
                let map = map(&plan, role, rank).expect("laid out");
                let tensor = inputs.get(role).expect("packed");
                assert_eq!(tensor.bytes().len(), map.bytes());
                unpack(&map, tensor, &mut restored);
                for_each(&map, |_, _, l| {
                    if let Some(l) = l {
                        *times.entry(l).or_insert(0u32) += 1;
                    }
                });
            }
            assert_eq!(restored.bytes(), wanted.bytes(), "{}", role.name());
            if matches!(role, Role::W13 | Role::W2 | Role::W13Bias | Role::W2Bias) {
                assert!(times.values().all(|&n| n == 1), "{} once", role.name());
            }
            let elements: usize = wanted.shape().iter().product();
            assert_eq!(times.len(), elements, "{} wholly", role.name());
        }
        assert!(packed.guards_intact());
    }

    #[test]
    fn packing_agrees_with_the_map_element_by_element(sample in samples()) {
        let plan = sample.plan();
        let layer = logical(&plan);
        for role in roles(&plan) {
            let source = logical_of(&layer, role).expect("the sample has it");
            for rank in 0..plan.ranks.len() {
                let map = map(&plan, role, rank).expect("laid out");
                let mut wanted = vec![0u8; map.bytes()];
                let [_, rows, cols] = map.logical_shape();
                let wide = map.grid.bits.max(8) / 8;
                for_each(&map, |_, at, l| {
                    let code = l.map_or(pad_code(&plan, role), |(e, r, c)| {
                        let start = ((e * rows + r) * cols + c) * wide;
                        let mut le = [0; 4];
                        le[..wide].copy_from_slice(&source.bytes()[start..start + wide]);
                        u32::from_le_bytes(le)
                    });
                    map.grid.write(&mut wanted, at, code);
                });
                for_each_storage_pad(&map, |_, at| map.grid.write(&mut wanted, at, map.storage_pad()));
                let mut packed = pack(&map, role.name(), source, pad_code(&plan, role));
                assert!(packed.bytes() == wanted, "{} packed", role.name());
                set_pads(&map, &mut packed, Pads::Both, 0xffff_ffff);
                pack_into(&map, source, pad_code(&plan, role), &mut packed);
                assert!(packed.bytes() == wanted, "{} packed again over poison", role.name());
            }
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn packing_in_the_memory_of_another_layer_leaves_no_trace_of_it(
        sample in samples(),
        other in samples(),
    ) {
        let (plan, other) = (sample.plan(), other.plan());
        let layer = logical(&plan);
        let wanted = pack_layer(&plan, &layer).expect("a sample is packed");
        let mut old = pack_layer(&other, &logical(&other)).expect("a sample is packed");
        each(&mut old, |tensor| {
            tensor.bytes_mut().fill(0x5A);
            tensor.break_guard();
        });
        let mut pool = Pool::default();
        old.give_back(&mut pool);
        let mut reused = pack_layer_in(&plan, &layer, &mut pool).expect("a sample is packed");
        assert!(reused.guards_intact());
        assert!(same(&wanted, &reused));
        each(&mut reused, |tensor| tensor.bytes_mut().fill(0x5A));
        pack_layer_into(&plan, &layer, &mut reused).expect("a sample is packed");
        assert!(same(&wanted, &reused));
    }

    #[test]
    fn stretches_cover_the_padded_grid_as_the_map_does(sample in samples()) {
        let plan = sample.plan();
        for role in roles(&plan) {
            let map = map(&plan, role, 0).expect("laid out");
            let mut one = Vec::new();
            for_each(&map, |p, _, l| one.push((p, l)));
            let mut other = Vec::new();
            for_each_stretch(&map, 0..map.shape()[1], |e, r, cols, l| {
                other.extend(cols.enumerate().map(|(n, c)| {
                    ((e, r, c), l.map(|(e, r, c)| (e, r, c + n)))
                }));
            });
            assert!(one == other, "{}", role.name());
        }
    }
}

/// Equal bytes everywhere; tensors of NaN bits are not equal as numbers, nor need capacities be.
fn same(a: &PackedInputs, b: &PackedInputs) -> bool {
    let bytes = |p: &PackedInputs| {
        let tensors = p.ranks.iter().flat_map(|r| r.iter().map(|(_, t)| t));
        tensors
            .chain([&p.x])
            .map(|t| (t.name(), t.shape().to_vec(), t.bits(), t.bytes().to_vec()))
            .collect::<Vec<_>>()
    };
    bytes(a) == bytes(b)
}

/// The row order of w13 as a reader sees it: logical rows, `-` for padding.
fn rows_of(sample: Sample, rank: usize) -> Vec<Option<usize>> {
    let map = map(&sample.plan(), Role::W13, rank).expect("laid out");
    (0..map.rows.physical_len())
        .map(|r| map.rows.to_logical(r))
        .collect()
}

#[test]
fn rows_lie_as_each_order_and_place_says() {
    let sample = Sample {
        weight: WeightFormat::F32,
        i: 3,
        tp: 1,
        width: 4,
        ..Sample::default()
    };
    let with = |order, place| {
        rows_of(
            Sample {
                order,
                place,
                ..sample
            },
            0,
        )
    };
    let (g, u) = ([Some(0), Some(1), Some(2)], [Some(3), Some(4), Some(5)]);
    let flat = |parts: &[&[Option<usize>]]| parts.concat();
    let pad = [None];
    assert_eq!(
        with(Order::GateUp, Place::PerHalf),
        flat(&[&g, &pad, &u, &pad])
    );
    assert_eq!(
        with(Order::UpGate, Place::PerHalf),
        flat(&[&u, &pad, &g, &pad])
    );
    assert_eq!(
        with(Order::GateUp, Place::Tail),
        flat(&[&g, &u, &pad, &pad])
    );
    assert_eq!(
        with(Order::UpGate, Place::Tail),
        flat(&[&u, &g, &pad, &pad])
    );
    let mut int1 = [0, 3, 1, 4, 2, 5].map(Some).to_vec();
    int1.extend([None, None]);
    assert_eq!(with(Order::Int1, Place::PerHalf), int1);
    assert_eq!(with(Order::Int1, Place::Tail), int1);
    let mut up_first = int1.clone();
    up_first.chunks_mut(2).for_each(|pair| pair.swap(0, 1));
    assert_eq!(with(Order::Int1Up, Place::PerHalf), up_first);
}

#[test]
fn int64_puts_sixty_four_up_rows_first_and_whole_groups_of_padding_last() {
    let sample = Sample {
        weight: WeightFormat::F32,
        i: 70,
        tp: 1,
        width: 64,
        order: Order::Int64,
        ..Sample::default()
    };
    let rows = rows_of(sample, 0);
    assert_eq!(rows.len(), 256);
    assert_eq!(rows[0], Some(70));
    assert_eq!(rows[64], Some(0));
    assert_eq!(
        rows[128..135],
        [
            Some(134),
            Some(135),
            Some(136),
            Some(137),
            Some(138),
            Some(139),
            None
        ]
    );
    assert_eq!(rows[192], Some(64));
    assert_eq!(rows[198], None);
}

#[test]
fn both_ranks_hold_their_part_of_each_half() {
    // facts/reports.md: fused 16 rows, F=8, TP2.
    let sample = Sample {
        weight: WeightFormat::F32,
        i: 8,
        tp: 2,
        cut: 4,
        width: 1,
        ..Sample::default()
    };
    let wanted = |r: usize| {
        let gate = 4 * r..4 * r + 4;
        gate.clone()
            .chain(gate.map(|n| n + 8))
            .map(Some)
            .collect::<Vec<_>>()
    };
    assert_eq!(rows_of(sample, 0), wanted(0));
    assert_eq!(rows_of(sample, 1), wanted(1));
}

#[test]
fn odd_widths_do_not_shift_nibbles() {
    // facts/reports.md B47: codes 2 and 9.
    for (nibble, bytes) in [(Nibble::Low, [0x92, 0x02]), (Nibble::High, [0x29, 0x20])] {
        let sample = Sample {
            weight: WeightFormat::Mxfp4,
            gated: false,
            e: 1,
            h: 3,
            i: 2,
            tp: 1,
            hidden: 1,
            width: 1,
            nibble,
            ..Sample::default()
        };
        let map = map(&sample.plan(), Role::W13, 0).expect("laid out");
        let mut codes = Tensor::zeroed("w13", &[1, 2, 3], 8);
        codes.bytes_mut().copy_from_slice(&[2, 9, 2, 2, 9, 2]);
        let packed = pack(&map, "w13", &codes, 0);
        assert_eq!(packed.shape(), [1, 2, 3]);
        assert_eq!(packed.bytes(), [bytes, bytes].concat());
        let mut back = Tensor::zeroed("w13", &[1, 2, 3], 8);
        unpack(&map, &packed, &mut back);
        assert_eq!(back.bytes(), codes.bytes());
    }
}

#[test]
fn tiles_of_128x4_follow_the_index_of_the_layout() {
    // facts/reports.md B51: scales [2880, 180] need 2944 x 180.
    let sample = Sample {
        weight: WeightFormat::Nvfp4,
        gated: false,
        e: 1,
        h: 2880,
        i: 2880,
        tp: 1,
        hidden: 1,
        width: 1,
        storage: Storage::Tiled128x4,
        ..Sample::default()
    };
    let plan = sample.plan();
    let map = map(&plan, Role::W13Scale, 0).expect("laid out");
    assert_eq!(map.shape(), [1, 2880, 180]);
    assert_eq!(map.stored_shape(), [1, 2944, 180]);
    assert_eq!(map.bytes(), 529_920);
    for_each(&map, |(_, r, c), at, _| {
        let shape = [23, 45, 32, 4, 4];
        let index = [r / 128, c / 4, r % 32, (r / 32) % 4, c % 4];
        let flat = shape.iter().zip(index).fold(0, |a, (n, i)| a * n + i);
        assert_eq!(
            at,
            Address {
                byte: flat,
                shift: 0
            }
        );
    });
    let layer = logical(&plan);
    let source = logical_of(&layer, Role::W13Scale).expect("it has scales");
    let packed = pack(&map, "w13_scale", source, 0);
    for_each_storage_pad(&map, |_, at| assert_eq!(packed.bytes()[at.byte], 0));
    let mut back = Tensor::zeroed("w13_scale", source.shape(), 8);
    unpack(&map, &packed, &mut back);
    assert_eq!(back.bytes(), source.bytes());
}

#[test]
fn a_rank_that_starts_inside_a_scale_block_repeats_the_scale() {
    // 1536/8 = 192 with blocks of 128: refined to 64 (facts/upstream-padding.md M12).
    let sample = Sample {
        weight: WeightFormat::Fp8Block,
        h: 128,
        i: 1536,
        tp: 8,
        cut: 192,
        width: 1,
        hidden: 1,
        ..Sample::default()
    };
    let mut plan = sample.plan();
    let map = map(&plan, Role::W2Scale, 1).expect("laid out");
    let columns: Vec<_> = (0..3).map(|c| map.cols.to_logical(c)).collect();
    assert_eq!(columns, [Some(1), Some(2), Some(2)]);
    let coarse = plan.w2_scale.as_mut().expect("it has scales");
    (coarse.col_block, coarse.cols_padded, coarse.cols_stored) = (128, 2, 2);
    assert!(matches!(
        super::map(&plan, Role::W2Scale, 1),
        Err(LayoutError::Straddle { block: 0, .. })
    ));
}

#[test]
fn w2_bias_lies_on_the_first_rank_of_each_group_only() {
    let plan = Sample {
        e: 4,
        tp: 4,
        ep: 2,
        ..Sample::default()
    }
    .plan();
    let held = |rank| {
        map(&plan, Role::W2Bias, rank)
            .expect("laid out")
            .rows
            .to_logical(0)
    };
    assert_eq!(
        [held(0), held(1), held(2), held(3)],
        [Some(0), None, Some(0), None]
    );
}

#[test]
fn wrong_sizes_are_errors() {
    let plan = Sample::default().plan();
    let mut short = plan.clone();
    short.w13_rows -= 20;
    assert!(matches!(
        map(&short, Role::W13, 0),
        Err(LayoutError::TooSmall { .. })
    ));
    let mut beyond = plan.clone();
    beyond.ranks[1].start = 40;
    assert!(matches!(
        map(&beyond, Role::W2, 1),
        Err(LayoutError::Range { .. })
    ));
    assert!(matches!(
        map(&plan, Role::W13, 2),
        Err(LayoutError::NoRank { .. })
    ));
    let mut huge = plan.clone();
    huge.width_padded = u64::MAX;
    huge.w13_rows = u64::MAX;
    for role in Role::ALL {
        let _ = map(&huge, role, 0);
    }
    let mut many = plan.clone();
    (many.dims.i, many.ranks[0].len, many.order) = (1 << 40, 1 << 40, Order::Int1);
    assert!(matches!(
        map(&many, Role::W13, 0),
        Err(LayoutError::TooLarge { .. })
    ));
    let mut blocks = Sample {
        weight: WeightFormat::Fp8Block,
        ..Sample::default()
    }
    .plan();
    blocks.order = Order::Int8;
    assert!(matches!(
        map(&blocks, Role::W13Scale, 0),
        Err(LayoutError::Unsupported { .. })
    ));
    let mut layer = logical(&plan);
    layer.w2 = layer.w13.clone();
    layer.w13_bias = None;
    assert!(matches!(
        pack_layer(&plan, &layer),
        Err(LayoutError::NoTensor { .. } | LayoutError::Size { .. })
    ));
}

#[test]
fn poison_reaches_only_padding() {
    let plan = Sample {
        storage: Storage::Tiled128x4,
        ..Sample::default()
    }
    .plan();
    let layer = logical(&plan);
    for role in roles(&plan) {
        let map = map(&plan, role, 0).expect("laid out");
        let source = logical_of(&layer, role).expect("the sample has it");
        let clean = pack(&map, role.name(), source, pad_code(&plan, role));
        let code = 0x7f7f_7f7f >> (32 - map.grid.bits);
        for which in [Pads::Logical, Pads::Storage, Pads::Both] {
            let mut packed = clean.clone();
            set_pads(&map, &mut packed, which, code);
            for_each(&map, |_, at, l| {
                let read = map.grid.read(packed.bytes(), at);
                if l.is_none() && which != Pads::Storage {
                    assert_eq!(read, code);
                } else {
                    assert_eq!(read, map.grid.read(clean.bytes(), at));
                }
            });
            for_each_storage_pad(&map, |_, at| {
                let wanted = if which == Pads::Logical {
                    map.storage_pad()
                } else {
                    code
                };
                assert_eq!(map.grid.read(packed.bytes(), at), wanted);
            });
            assert!(packed.guards_intact());
        }
    }
}
