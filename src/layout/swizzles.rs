//! The closed forms of the storage layouts against reshape-and-permute, as the stacks write them.

use super::samples::{Sample, logical};
use super::*;
use crate::plan::Role;
use crate::tensor::Tensor;
use crate::terms::{Bias, Nibble, Storage, WeightFormat};

/// The row-major indices of a tensor of `shape`, flattened after its axes are permuted.
fn permuted<const N: usize>(shape: [usize; N], axes: [usize; N]) -> Vec<usize> {
    let strides: [usize; N] = std::array::from_fn(|n| shape[n + 1..].iter().product());
    let mut order = vec![0];
    for axis in axes {
        order = order
            .iter()
            .flat_map(|&base| (0..shape[axis]).map(move |digit| base + digit * strides[axis]))
            .collect();
    }
    order
}

/// Asks `grid` for the place of every element of two experts, and compares with `order`, which
/// says for each place of one expert which element stands there.
fn check(name: &str, grid: Grid, order: &[usize]) {
    let size = grid.rows * grid.cols;
    assert_eq!(order.len(), size, "{name}");
    for e in 0..2 {
        for (place, &element) in order.iter().enumerate() {
            let (r, c) = (element / grid.cols, element % grid.cols);
            assert_eq!(
                grid.index(e, r, c),
                e * size + place,
                "{name}: ({e}, {r}, {c})"
            );
        }
    }
}

#[test]
fn scales_lie_where_reshaping_and_permuting_puts_them() {
    for (r, c) in [(256, 8), (512, 24), (256, 40)] {
        let grid = |storage| Grid {
            rows: r,
            cols: c,
            bits: 8,
            nibble: Nibble::Low,
            storage,
        };
        // (r/128, c/4, r%32, (r/32)%4, c%4): facts/upstream-padding.md 1.0.
        let tiles = permuted([r / 128, 4, 32, c / 4, 4], [0, 3, 2, 1, 4]);
        // (row block of 32, column block of 8, 4 columns, 16 rows, 2 columns, 2 rows).
        let of_32x8 = permuted([r / 32, 2, 16, c / 8, 2, 4], [0, 3, 5, 2, 4, 1]);
        for (storage, order) in [
            (Storage::Linear, permuted([r, c], [0, 1])),
            (Storage::Tiled128x4, tiles.clone()),
            (Storage::TritonBlackwell, tiles),
            (
                Storage::Tiled8x4,
                permuted([r / 8, 8, c / 4, 4], [0, 2, 1, 3]),
            ),
            (
                Storage::TritonHopper,
                permuted([r / 256, 2, 8, 2, 8, c / 2, 2], [0, 2, 5, 1, 4, 6, 3]),
            ),
            (Storage::TritonCdna4, of_32x8.clone()),
            (Storage::Aiter256x8, of_32x8),
            (
                Storage::AiterN32k4,
                permuted([r / 32, 32, c / 4, 4], [0, 2, 1, 3]),
            ),
            // Words of four scales, then the words column by column.
            (Storage::DeepGemm, permuted([r, c / 4, 4], [1, 0, 2])),
        ] {
            check(storage.name(), grid(storage), &order);
        }
    }
}

#[test]
fn the_16x16_shuffle_is_row_block_column_block_sub_column_row_and_sixteen_bytes() {
    // facts/peers.md 2.2: columns in blocks of 32, of 2 sub-columns for one-byte types, 4 for bf16.
    for (r, blocks) in [(16, 1), (48, 3)] {
        for (bits, block, parts) in [(4, 64, 2), (8, 32, 2), (16, 32, 4)] {
            let cols = blocks * block;
            let grid = Grid {
                rows: r,
                cols,
                bits,
                nibble: Nibble::Low,
                storage: Storage::Shuffle16x16,
            };
            let shape = [r / 16, 16, blocks, parts, block / parts];
            assert_eq!(block / parts * bits, 128, "sixteen bytes");
            check(
                &format!("{bits} bits"),
                grid,
                &permuted(shape, [0, 2, 3, 1, 4]),
            );
        }
    }
}

#[test]
fn hopper_values_are_permuted_bytes_with_the_bits_of_four_interleaved() {
    let (rows, cols) = (256, 256);
    let bytes = cols / 2;
    for nibble in [Nibble::Low, Nibble::High] {
        let grid = Grid {
            rows,
            cols,
            bits: 4,
            nibble,
            storage: Storage::TritonHopperValue,
        };
        // Two axes of (rest, tile of K, tile of a warp, thread, pair of rows), those of one left out.
        let order = permuted(
            [rows / 16, 2, 4, 2, bytes / 32, 4, 2, 4],
            [0, 2, 4, 3, 7, 5, 6, 1],
        );
        // The source's byte at each place, element 2b in the nibble that comes first.
        let code = |element: usize| (element * 7 + element / 16) as u32 % 16;
        let mut packed = vec![0u8; rows * bytes];
        for r in 0..rows {
            for c in 0..cols {
                let at = grid.address(grid.index(0, r, c));
                grid.write(&mut packed, at, code(r * cols + c));
            }
        }
        for (n, word) in packed.as_chunks::<4>().0.iter().enumerate() {
            let mut wanted = 0u32;
            for (j, &byte) in order[4 * n..4 * n + 4].iter().enumerate() {
                let (mut low, mut high) = (code(2 * byte), code(2 * byte + 1));
                if nibble == Nibble::High {
                    (low, high) = (high, low);
                }
                for (code, half) in [(low, 0), (high, 16)] {
                    // Bits 3, 2, 1, 0 of a code: facts of the source, as places.
                    let places = [[15, 8, 7, 6], [12, 5, 4, 3], [9, 2, 1, 0], [14, 11, 10, 13]][j];
                    for (bit, place) in [3, 2, 1, 0].iter().zip(places) {
                        wanted |= (code >> bit & 1) << (place + half);
                    }
                }
            }
            assert_eq!(u32::from_le_bytes(*word), wanted, "word {n}");
        }
    }
}

#[test]
fn hopper_values_are_stored_in_256_rows_and_64_bytes() {
    let sample = Sample {
        weight: WeightFormat::Mxfp4,
        weights: Storage::TritonHopperValue,
        gated: false,
        e: 1,
        h: 2880,
        i: 720,
        tp: 1,
        hidden: 1,
        width: 1,
        ..Sample::default()
    };
    let plan = sample.plan();
    let map = map(&plan, Role::W13, 0).expect("laid out");
    assert_eq!(map.shape(), [1, 720, 2880]);
    // 720 to 768 rows, 1440 to 1472 bytes.
    assert_eq!(map.stored_shape(), [1, 768, 2944]);
    assert_eq!(map.bytes(), 768 * 1472);
}

/// facts/upstream-padding.md 1.4 F5, written out: where row n of a block goes.
const OF_32: [usize; 32] = [
    0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27, 4, 12, 20, 28, 5, 13, 21, 29, 6, 14,
    22, 30, 7, 15, 23, 31,
];
const OF_16: [usize; 16] = [0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15];

#[test]
fn rows_of_weights_scales_and_biases_move_together() {
    for (weights, block) in [(Storage::Rows16, &OF_16[..]), (Storage::Rows32, &OF_32)] {
        let sample = Sample {
            weights,
            storage: Storage::Tiled128x4,
            bias: Bias::Both,
            gated: false,
            e: 1,
            i: 50,
            tp: 1,
            width: 1,
            ..Sample::default()
        };
        let plan = sample.plan();
        for role in [Role::W13, Role::W13Scale, Role::W13Bias] {
            let map = map(&plan, role, 0).expect("laid out");
            assert_eq!(map.rows.physical_len(), 64);
            for row in 0..50 {
                let n = block.len();
                let wanted = row / n * n + block[row % n];
                assert_eq!(map.rows.to_physical(row), Some(wanted), "{}", role.name());
            }
        }
        let mut short = plan.clone();
        short.hidden_padded = 40;
        assert!(matches!(
            map(&short, Role::W2, 0),
            Err(LayoutError::Group { value: 40, .. })
        ));
    }
}

#[test]
fn storage_has_the_size_and_the_padding_of_its_layout() {
    // gpt-oss: 2880 rows of 90 scales of 32 elements.
    for (storage, rows, cols, pad) in [
        (Storage::Tiled128x4, 2944, 92, 0),
        (Storage::Tiled8x4, 2880, 92, 0),
        (Storage::TritonBlackwell, 2944, 96, 0),
        (Storage::TritonHopper, 3072, 90, 0),
        (Storage::TritonCdna4, 2880, 96, 0),
        (Storage::Aiter256x8, 3072, 96, 0),
        (Storage::AiterN32k4, 2880, 92, 0x7f),
        (Storage::DeepGemm, 2880, 92, 0x7f),
    ] {
        let sample = Sample {
            weight: WeightFormat::Mxfp4,
            gated: false,
            e: 1,
            h: 2880,
            i: 2880,
            tp: 1,
            hidden: 1,
            width: 1,
            storage,
            ..Sample::default()
        };
        let plan = sample.plan();
        let map = map(&plan, Role::W13Scale, 0).expect("laid out");
        assert_eq!(map.shape(), [1, 2880, 90]);
        assert_eq!(map.stored_shape(), [1, rows, cols], "{storage}");
        let layer = logical(&plan);
        let source = logical_of(&layer, Role::W13Scale).expect("it has scales");
        let mut packed = pack(&map, "w13_scale", source, 127);
        let mut pads = 0;
        for_each_storage_pad(&map, |_, at| {
            assert_eq!(packed.bytes()[at.byte], pad, "{storage}");
            pads += 1;
        });
        assert_eq!(pads, rows * cols - 2880 * 90, "{storage}");
        // A reload over poison restores them.
        let wanted = packed.clone();
        packed.bytes_mut().fill(0xa5);
        pack_into(&map, source, 127, &mut packed);
        assert_eq!(packed, wanted);
        let mut back = Tensor::zeroed("w13_scale", source.shape(), 8);
        unpack(&map, &packed, &mut back);
        assert_eq!(back.bytes(), source.bytes());
    }
}

#[test]
fn deepgemms_words_hold_four_scales_of_a_row_least_byte_first() {
    let grid = Grid {
        rows: 8,
        cols: 8,
        bits: 8,
        nibble: Nibble::Low,
        storage: Storage::DeepGemm,
    };
    let bytes: Vec<u8> = (0..64).collect();
    let (row, word) = (5, 1);
    let at = (word * 8 + row) * 4;
    let packed = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    for k in 0..4 {
        let scale = grid.read(&bytes, grid.address(grid.index(0, row, word * 4 + k)));
        assert_eq!(scale, packed >> (8 * k) & 0xff);
    }
}
