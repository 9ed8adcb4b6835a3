//! Goal: damage is not called by the name of a fault. Method: change one element of a right dump.

use crate::checkpoint::families::shape;
use crate::checkpoint::invent::{QWEN, after, before, made};
use padproof::audit::{audit_files, diagnose};
use padproof::checkpoint::{Dump, Layer};
use padproof::layout::{map, pack_layer};
use padproof::plan::Role;

/// Damage of a rank's last channel was said to be a remainder that was dropped, though all the others were there.
#[test]
fn damage_of_the_last_channel_is_no_dropped_remainder() {
    for (w, i) in [("bf16", 88), ("nvfp4", 96), ("fp8-channel", 88)] {
        let line = format!("e=3,h=64,i={i},tp=2,w={w},pad=i64,fill=wild");
        let (case, plan, logical) = made(&line);
        let file = before(&case, &logical, QWEN, "model.layers.0.mlp.").open();
        let layer = Layer::find(&file, shape(&plan, QWEN), None).unwrap();
        let of = map(&plan, Role::W2, 1).unwrap();
        let width = of.shape()[2];
        for expert in 0..3 {
            let mut packed = pack_layer(&plan, &logical).unwrap();
            // Row 5 of w2, the last of the rank's real channels.
            let at = of.grid.address((expert * 64 + 5) * width + i / 2 - 1);
            let bytes = packed.ranks[1].get_mut(Role::W2).unwrap().bytes_mut();
            let code = of.grid.read(bytes, at);
            of.grid.write(bytes, at, code ^ 1);
            let dumped = after(&packed, &[0, 1]).open();
            let dump = Dump::find(&dumped, None, None, 2).unwrap();
            let audit = audit_files(&plan, &layer, &dump).unwrap();
            assert_eq!(audit.differing, 1);
            let found = diagnose(&plan, &layer, &dump, &audit).unwrap();
            let names: Vec<_> = found.iter().map(|f| f.name).collect();
            assert_eq!(names, Vec::<&str>::new(), "{line}, expert {expert}");
        }
    }
}
