//! Evaluates a rule's conditions, and chooses among its alignments, for one layer on its ranks.

use super::arith::{lcm, padded, product};
use super::{Effect, Fit, LayerSpec, Parallel, Plan, PlanError, Unit, Violation};
use crate::rule::{
    Condition, Granule, GranuleUnit, Loader, Refusal, Rule, Unread, Verdict, family, same_arch,
};
use crate::terms::{Bias, Extent, LayerKind, Split};

/// What a condition is, as far as config and command line tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Truth {
    No,
    /// It turns on a fact of the run that nothing tells.
    Open,
    Yes,
}

/// What the conditions and checks look at.
pub(super) struct Facts<'a> {
    pub(super) layer: &'a LayerSpec,
    pub(super) rule: &'a Rule,
    pub(super) env: &'a [&'a str],
    /// Ranks that share the intermediate axis.
    pub(super) shard_ranks: u64,
    /// Groups that experts are spread over.
    pub(super) groups: u64,
    pub(super) packed: bool,
}

/// An axis with the size that is planned, and sizes it has instead if an open fact holds.
pub(super) struct Aligned {
    pub(super) size: u64,
    pub(super) otherwise: Vec<(u64, String)>,
}

impl Facts<'_> {
    /// Scale block along the intermediate axis, 1 if none.
    pub(super) fn block(&self) -> u64 {
        match self.layer.weight.scale().map(|g| g.cols) {
            Some(Extent::Block(block)) => block,
            Some(Extent::All) | None => 1,
        }
    }

    /// Whether `when` holds at a per-rank `width`.
    pub(super) fn holds(&self, when: &Condition, width: u64) -> Truth {
        let (layer, hidden) = (self.layer, self.layer.hidden);
        let multiple = |m: Option<u64>, n: u64| m.is_none_or(|m| !n.is_multiple_of(m));
        let told = when.gated.is_none_or(|g| g == layer.activation.gated())
            && (when.activations.is_empty() || when.activations.contains(&layer.activation))
            && !when.activations_not.contains(&layer.activation)
            && (when.formats.is_empty() || when.formats.contains(&layer.weight))
            && when.bias.is_none_or(|b| b == (layer.bias == Bias::Both))
            && when.sharded.is_none_or(|s| s == (self.shard_ranks > 1))
            && when
                .uneven
                .is_none_or(|u| u != layer.intermediate.is_multiple_of(self.shard_ranks))
            && when.spread.is_none_or(|s| s == (self.groups > 1))
            && when.width_min.is_none_or(|min| width >= min)
            && when.width_max.is_none_or(|max| width <= max)
            && multiple(when.width_not_multiple, width)
            && when.hidden_min.is_none_or(|min| hidden >= min)
            && when.hidden_max.is_none_or(|max| hidden <= max)
            && multiple(when.hidden_not_multiple, hidden)
            && when
                .env
                .as_ref()
                .is_none_or(|name| self.env.contains(&name.as_str()))
            && !(when.env_not.iter()).any(|name| self.env.contains(&name.as_str()));
        if !told {
            return Truth::No;
        }
        let open = when.per_token.is_some() || when.option.is_some();
        let run = if open { Truth::Open } else { Truth::Yes };
        run.min(self.on_one_of(&when.arch))
    }

    /// Whether the rule's devices are among these; an empty list restricts nothing.
    pub(super) fn on_one_of(&self, named: &[String]) -> Truth {
        let known = &self.rule.arch;
        let inside = |a: &String| named.iter().any(|n| n == a || n == family(a));
        let near = |a: &String| named.iter().any(|n| same_arch(n, a));
        if named.is_empty() || (!known.is_empty() && known.iter().all(inside)) {
            Truth::Yes
        } else if !known.is_empty() && !known.iter().any(near) {
            Truth::No
        } else {
            Truth::Open
        }
    }

    /// Whether the stack takes another, slower path at a per-rank `width`: how bytes lie on that one the
    /// rule does not say.
    pub(super) fn elsewhere(&self, width: u64) -> bool {
        let slow = |r: &&Refusal| r.verdict == Verdict::Slow;
        let mut slower = self.rule.refuse.iter().filter(slow);
        slower.any(|r| self.holds(&r.when, width) == Truth::Yes)
    }

    /// What the rule's source leaves open that this layer has: all of it on another path than the rule's.
    pub(super) fn unread(&self, elsewhere: bool) -> Vec<Unread> {
        let open: &[Unread] = match elsewhere {
            true => &Unread::ALL,
            false => &self.rule.unread,
        };
        let has = |one: &Unread| match one {
            Unread::Order => self.layer.activation.gated(),
            Unread::Weights => true,
            Unread::Scales => self.layer.weight.scale().is_some(),
        };
        open.iter().copied().filter(has).collect()
    }

    /// How the intermediate axis is cut, at a per-rank `width`.
    pub(super) fn split(&self, width: u64) -> Split {
        let own = |l: &&Loader| self.holds(&l.when, width) == Truth::Yes;
        let loader = self.rule.loaders.iter().find(own);
        loader.map_or(self.rule.split, |l| l.split)
    }

    /// The granule that is taken, and those before it that an open fact would choose.
    pub(super) fn choose<'r>(
        &self,
        granules: &'r [Granule],
        width: u64,
    ) -> (Option<&'r Granule>, Vec<&'r Granule>) {
        let mut open = Vec::new();
        for granule in granules {
            match self.holds(&granule.when, width) {
                Truth::Yes => return (Some(granule), open),
                Truth::Open => open.push(granule),
                Truth::No => {}
            }
        }
        (None, open)
    }

    /// A granule in elements.
    pub(super) fn elements(&self, g: &Granule) -> Result<u64, PlanError> {
        let bits = self.layer.weight.element().bits();
        let align = match g.unit {
            GranuleUnit::Elements => g.align,
            GranuleUnit::Stored if self.packed => product("granule", &[g.align, 2])?,
            GranuleUnit::Stored => g.align,
            GranuleUnit::Bytes => product("granule", &[g.align, 8])?.div_ceil(bits),
        };
        if !g.group {
            return Ok(align);
        }
        lcm(align, self.block()).ok_or_else(|| PlanError::Overflow {
            what: "granule",
            terms: format!("lcm({align}, {})", self.block()),
        })
    }

    /// The alignment of the intermediate width in elements, at a per-rank `width`.
    pub(super) fn width_align(&self, width: u64) -> Result<Aligned, PlanError> {
        if let Some([n, _]) = self.cheapest(width)? {
            return Ok(Aligned {
                size: n,
                otherwise: Vec::new(),
            });
        }
        let (taken, open) = self.choose(&self.rule.intermediate, width);
        let mut otherwise = Vec::new();
        for granule in open {
            otherwise.push((self.elements(granule)?, granule.when.asks()));
        }
        Ok(Aligned {
            size: taken.map_or(Ok(1), |g| self.elements(g))?,
            otherwise,
        })
    }

    /// The tokens' padded number.
    pub(super) fn tokens(&self, width: u64) -> Result<u64, PlanError> {
        let (taken, _) = self.choose(&self.rule.tokens, width);
        let align = taken.map_or(Ok(1), |g| self.elements(g))?;
        padded("tokens", self.layer.tokens, align)
    }

    /// The pair of alignments with the least padded area, the first of equals.
    pub(super) fn cheapest(&self, width: u64) -> Result<Option<[u64; 2]>, PlanError> {
        let mut best: Option<(u64, [u64; 2])> = None;
        for &[n, h] in &self.rule.cheapest {
            let sides = [
                padded("width", width, n)?,
                padded("hidden", self.layer.hidden, h)?,
            ];
            let area = product("padded area", &sides)?;
            if best.is_none_or(|(least, _)| area < least) {
                best = Some((area, [n, h]));
            }
        }
        Ok(best.map(|(_, pair)| pair))
    }
}

/// Whether a rule is for a layer on these ranks, as far as config, command line and environment tell.
pub fn concerns(rule: &Rule, layer: &LayerSpec, parallel: Parallel, env: &[&str]) -> bool {
    if rule.when == Condition::default() {
        return true;
    }
    let shard_ranks = match layer.kind {
        LayerKind::Routed | LayerKind::Draft => parallel.tp / parallel.ep.max(1),
        LayerKind::Shared | LayerKind::Dense => parallel.tp,
    }
    .max(1);
    let facts = Facts {
        layer,
        rule,
        env,
        shard_ranks,
        groups: parallel.tp / shard_ranks,
        packed: layer.weight.element().bits() == 4,
    };
    facts.holds(&rule.when, layer.intermediate.div_ceil(shard_ranks)) != Truth::No
}

/// Says in a plan that its rule was not read at the version asked about.
pub fn unread_version(plan: &mut Plan, rule: &Rule, version: &str) {
    plan.violations.push(Violation {
        code: "PP124",
        axis: "unread",
        value: 1,
        unit: Unit::Versions,
        granule: 0,
        message: format!(
            "the rule was read at {}; what {version} does was not read",
            rule.version
        ),
        effect: Effect::Unknown,
    });
    // Whatever the version that was read does, another may not.
    plan.fit = Fit::Unknown;
}

/// An open fact that would give an axis another size.
pub(super) fn open_choice(axis: &'static str, planned: u64, other: u64, asks: &str) -> Violation {
    Violation {
        code: "PP119",
        axis,
        value: planned,
        unit: Unit::Elements,
        granule: 0,
        message: format!("padded to {other} instead of {planned} if {asks}, which no config tells"),
        effect: Effect::Unknown,
    }
}

/// A loader of the model's own that gives a rank more channels than the stack's buffers are made for.
pub(super) fn narrow_buffer(rule: &Rule, loader: Split, share: u64, made: u64) -> Violation {
    Violation {
        code: "PP119",
        axis: "intermediate",
        value: share,
        unit: Unit::Elements,
        granule: 0,
        message: format!(
            "the model's own loader gives a rank {share} channels ({loader}), and the buffers are made for {made} ({}): what {} does with the rest was not read, and the sizes shown are those of the loader",
            rule.split, rule.backend
        ),
        effect: Effect::Unknown,
    }
}
