//! Offers cases to libFuzzer: its bytes make the choices that the generator makes elsewhere.
//!
//! It must not draw by itself; bytes that run out choose the first of each list. Layer 8.

use super::Domain;
use super::draw::draw_from;
use super::source::Source;
use crate::case::Case;
use arbitrary::{Arbitrary, Result, Unstructured};

struct Bytes<'a, 'b>(&'a mut Unstructured<'b>);

impl Source for Bytes<'_, '_> {
    fn below(&mut self, count: u64) -> u64 {
        self.0.int_in_range(0..=count - 1).unwrap_or(0)
    }
}

impl<'b> Arbitrary<'b> for Case {
    /// A case of [`Domain::SMALL`]; any bytes give a valid one.
    fn arbitrary(bytes: &mut Unstructured<'b>) -> Result<Case> {
        Ok(draw_from(&Domain::SMALL, &mut Bytes(bytes)))
    }

    fn size_hint(_depth: usize) -> (usize, Option<usize>) {
        (0, Some(64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_make_a_valid_case() {
        let mut bytes = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        for length in 0..200_u64 {
            let case = Case::arbitrary(&mut Unstructured::new(&bytes)).expect("never fails");
            assert_eq!(case.validate(), Ok(()), "{case}");
            seen.insert(case.to_string());
            bytes.extend(crate::rng::value(1, 2, length).to_le_bytes());
            bytes.rotate_right(3);
        }
        assert!(seen.len() > 100, "{}", seen.len());
    }
}
