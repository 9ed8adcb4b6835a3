//! Goal: a checkpoint that advice says to pad is one that `pad` makes, that the rule then takes, and no wider than needed.
//! Method: the advice for every shipped model and real config is followed with `pad`'s own recipe and planned again.

use super::real::configs;
use padproof::model::{Model, WidthKey, builtin, load, width_keys};
use padproof::pad::{Recipe, Request, recipe};
use padproof::plan::{Fit, Parallel};
use padproof::rule::Rules;
use padproof::run::{Instead, Query, Way, survey};
use padproof::terms::{LayerKind, WeightFormat};
use rayon::prelude::*;
use std::fs;

/// The recipe of the request, as the command would make it.
fn made(model: &Model, keys: &[WidthKey], tp: u64, align: u64) -> Option<Recipe> {
    let request = Request::new(tp, None, Some(align), None, &[]);
    recipe(model, keys, &request, None, &[]).ok()
}

/// What the rule makes of the routed experts of a padded checkpoint.
fn then(model: &Model, made: &Recipe, rule: &str, tp: u64) -> Fit {
    let padded = Model {
        intermediate: made.routed.width.to,
        shared: made.shared.as_ref().map(|part| part.width.to),
        ..model.clone()
    };
    let query = Query {
        rule: Some(rule),
        layer: Some(LayerKind::Routed),
        ..Query::of(Parallel { tp, ep: 1 })
    };
    let found = survey(&padded, Rules::builtin(), &query).unwrap();
    let own = found
        .plans
        .iter()
        .filter(|one| one.plan.weight == model.quant.format);
    own.map(|one| one.plan.fit).max().unwrap()
}

/// The model with the finer scale blocks that a recipe makes.
fn regridded(model: &Model, made: &Recipe) -> Model {
    let mut model = model.clone();
    model.quant.format = match (model.quant.format, made.routed.blocks.map(|b| b.to)) {
        (WeightFormat::Fp8Block, Some(64)) => WeightFormat::Fp8Block64,
        (WeightFormat::Fp8Block, Some(_)) => WeightFormat::Fp8Block32,
        (WeightFormat::Int4, Some(_)) => WeightFormat::Int4G32,
        (format, _) => format,
    };
    model
}

/// What is wrong with one way.
fn fault(model: &Model, keys: &[WidthKey], way: &Instead) -> Option<String> {
    let tp = way.tp;
    let told = format!("{} {} tp {tp}: {:?}", model.name, way.rule, way.changed);
    let Some(pad) = way.pad else {
        return Some(format!("{told}: no request"));
    };
    let Some(done) = made(model, keys, pad.tp, pad.align) else {
        return Some(format!("{told}: pad refuses {pad:?}"));
    };
    let shared = done.shared.as_ref().map(|part| part.width.to);
    let wrong = way.changed.iter().any(|one| match one.layer {
        LayerKind::Shared => Some(one.size) != shared,
        _ => one.size != done.routed.width.to,
    });
    if wrong {
        return Some(format!(
            "{told}: pad makes {} and {shared:?}",
            done.routed.width.to
        ));
    }
    if then(model, &done, &way.rule, tp) != Fit::Fits {
        return Some(format!("{told}: does not fit when followed"));
    }
    // By the rule itself, on a finer grid too.
    let own = Rules::builtin().get(&way.rule).unwrap();
    let request = Request::new(tp, Some(own), None, None, &[]);
    let by_rule = recipe(model, keys, &request, Some(own), &[]).ok();
    let by_rule = by_rule.filter(|made| made.routed.width.to < done.routed.width.to);
    if by_rule.is_some_and(|made| then(&regridded(model, &made), &made, &way.rule, tp) == Fit::Fits)
    {
        return Some(format!("{told}: the rule itself makes less"));
    }
    // Multiples of 16 below the advised one. A wider one may be advised for the shared experts.
    let narrower = (1..pad.align / 16).filter_map(|n| made(model, keys, pad.tp, 16 * n));
    let mut narrower = narrower.filter(|less| less.routed.width.to < done.routed.width.to);
    let less = narrower.find(|less| {
        let same = less.shared.as_ref().map(|part| part.width.to) == shared;
        same && then(model, less, &way.rule, tp) == Fit::Fits
    });
    less.map(|less| format!("{told}: {} would do", less.routed.width.to))
}

/// Ways to pad offline that are advised for a model, and what is wrong with some.
fn faults((model, keys): &(Model, Vec<WidthKey>)) -> (usize, Vec<String>) {
    let query = Query {
        all: false,
        advice: true,
        ..Query::of(Parallel { tp: 16, ep: 1 })
    };
    let found = survey(model, Rules::builtin(), &query).unwrap();
    let ways = found.advice.rules.iter().flat_map(|rule| &rule.instead);
    let ways: Vec<&Instead> = ways.filter(|way| way.way == Way::PadOffline).collect();
    let faults = ways.iter().filter_map(|way| fault(model, keys, way));
    (ways.len(), faults.collect())
}

/// Widths that `pad` does not make were advised, for dense layers too, and checkpoints that it refuses.
#[test]
fn a_checkpoint_that_is_advised_is_made_by_pad_and_fits() {
    let shipped = builtin().iter().map(|model| (model.clone(), Vec::new()));
    let mut models: Vec<(Model, Vec<WidthKey>)> = shipped.collect();
    let folders = configs().map(|folder| fs::read_dir(folder).unwrap());
    for folder in folders.into_iter().flatten() {
        let path = folder.unwrap().path();
        let name = path.display().to_string();
        if let (true, Ok(model)) = (path.is_dir(), load(&name)) {
            let text = fs::read_to_string(path.join("config.json")).unwrap();
            models.push((model, width_keys(&text, &name).unwrap()));
        }
    }
    let all: Vec<(usize, Vec<String>)> = models.par_iter().map(faults).collect();
    let count: usize = all.iter().map(|(count, _)| count).sum();
    let faults: Vec<String> = all.into_iter().flat_map(|(_, faults)| faults).collect();
    assert!(
        faults.is_empty(),
        "{} of {count}: {}",
        faults.len(),
        faults.join("\n")
    );
    assert!(count > 20, "{count} ways");
}
