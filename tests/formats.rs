//! Every code of every narrow format, against oracles that share no code with us.

use padproof::num::{Dtype, Encode};

const DECODE: &str = include_str!("data/ml_dtypes/decode.txt");
const ENCODE: &str = include_str!("data/ml_dtypes/encode.txt");

fn dtype(name: &str) -> Dtype {
    Dtype::ALL
        .into_iter()
        .find(|d| d.name() == name)
        .expect("the vectors name our types")
}

/// Type, input and answer of each line.
fn vectors(text: &'static str) -> impl Iterator<Item = (Dtype, u64, u32)> {
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let input = u64::from_str_radix(words[1], 16).expect("hexadecimal input");
            let answer = u32::from_str_radix(words[2], 16).expect("hexadecimal answer");
            (dtype(words[0]), input, answer)
        })
}

/// Equal bits, or both NaN.
fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
}

#[test]
fn ml_dtypes_decodes_every_code_as_we_do() {
    let mut lines = 0;
    for (dtype, code, bits) in vectors(DECODE) {
        let (ours, theirs) = (dtype.decode(code as u32), f32::from_bits(bits));
        assert!(
            same(ours, theirs),
            "{dtype} {code:#04x}: {ours} but ml_dtypes {theirs}"
        );
        lines += 1;
    }
    assert_eq!(lines, 4 * 256 + 16);
}

#[test]
fn ml_dtypes_encodes_every_vector_as_its_policy_says() {
    let mut wrong = Vec::new();
    let mut lines = 0;
    for (dtype, bits, code) in vectors(ENCODE) {
        let value = f64::from_bits(bits);
        let ours = dtype.encode(value, Encode::ML_DTYPES);
        if ours != code {
            wrong.push(format!(
                "{dtype} {value:e} ({bits:016x}): {ours:#04x} but ml_dtypes {code:#04x}"
            ));
        }
        lines += 1;
    }
    assert!(lines > 2000, "only {lines} vectors");
    assert!(
        wrong.is_empty(),
        "{} of {lines}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
