//! A subject's orders of summation as lines for people.

use super::words::plural;
use crate::subject::Orders;
use std::io::{self, Write};

/// Writes what was found of one axis.
///
/// # Errors
/// Those of `out`.
pub fn orders_human(subject: &str, found: &Orders, out: &mut dyn Write) -> io::Result<()> {
    let setup = &found.setup;
    let (axis, n) = (setup.axis, setup.n);
    writeln!(
        out,
        "{axis}: {}, {subject}, asked with {}",
        plural(n, "product"),
        found.case
    )?;
    let name = found
        .named
        .map_or("no order with a name".to_owned(), |name| name.to_string());
    writeln!(out, "  order       {name}")?;
    let [bare, wider] = found.sizes;
    let of = |n: u64, size: u64| match n == size {
        true => n.to_string(),
        false => format!("{n} in {size}"),
    };
    writeln!(out, "  {:<10}  {}", of(n, bare), found.bare.tree.describe())?;
    let mut probes = found.bare.probes;
    if let Some(padded) = &found.padded {
        probes += padded.probes;
        let to = format!("-> {wider}");
        match found.moved {
            None if bare == wider => writeln!(
                out,
                "  {to:<10}  nothing is padded: {} asks for {bare} of both {n} and {}",
                setup.weights, setup.padded
            )?,
            None => {
                writeln!(out, "  {to:<10}  the same")?;
                writeln!(
                    out,
                    "  pad-stable  yes: padding may not change a bit, so far as the order goes"
                )?;
            }
            Some(moved) => {
                writeln!(out, "  {to:<10}  {}", padded.tree.describe())?;
                let (i, j) = moved.pair;
                writeln!(
                    out,
                    "  pad-stable  no: products {i} and {j} meet in a sum of {}, padded in one of {}: \
                     bits may differ, the derived bound holds",
                    moved.terms, moved.terms_other
                )?;
            }
        }
    }
    writeln!(
        out,
        "  asked       {} in {}",
        plural(probes as u64, "sum"),
        plural(found.runs as u64, "layer")
    )?;
    Ok(())
}
