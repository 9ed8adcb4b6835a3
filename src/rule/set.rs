//! A set of rules: the shipped ones, or those of a user's file.

use super::check::check;
use super::record::Rule;
use super::stack::{Auto, Replicas, Spread, Stack};
use crate::terms::{WeightFormat, nearest, plain};
use serde::Deserialize;
use std::collections::HashSet;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

/// No more than this is read of a rule file (bytes).
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Rules could not be read or named.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The file could not be read.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is too large to be a rule file.
    #[error("{file}: larger than {FILE_BYTES_MAX} bytes, which no rule file is")]
    TooLarge {
        /// The file.
        file: String,
    },
    /// The file is not TOML of the right shape.
    #[error("{file}: {message}")]
    Parse {
        /// The file.
        file: String,
        /// The parser's sentence, with line and column.
        message: String,
    },
    /// A value that no rule may have.
    #[error("{file}: rule `{}`: {key} {why}", id.escape_debug())]
    Invalid {
        /// The file.
        file: String,
        /// The rule.
        id: String,
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Several dispatches are of this backend.
    #[error("several dispatches are `{}`: give an id, `{one}` or `{other}`", given.escape_debug())]
    Dispatches {
        /// What was asked for.
        given: String,
        /// One of them.
        one: String,
        /// Another one.
        other: String,
    },
    /// No dispatch has this name.
    #[error("no dispatch is `{}`{hint}; known: {known}", given.escape_debug())]
    Dispatch {
        /// What was asked for.
        given: String,
        /// The nearest one, as text to append.
        hint: String,
        /// All of them.
        known: String,
    },
    /// No rule has this id or matches this pattern.
    #[error("no rule matches `{}`{hint}", pattern.escape_debug())]
    Unknown {
        /// What was asked for.
        pattern: String,
        /// Nearest ids, as text to append.
        hint: String,
    },
}

/// A set of rules, of `auto` choices and of what holds for whole stacks; ids unique.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    rules: Vec<Rule>,
    autos: Vec<Auto>,
    stacks: Vec<Stack>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "tables rule, auto and stack")]
struct RuleFile {
    #[serde(default)]
    rule: Vec<Rule>,
    #[serde(default)]
    auto: Vec<Auto>,
    #[serde(default)]
    stack: Vec<Stack>,
}

/// The shipped rule files, by stack.
const SHIPPED: &[(&str, &str)] = &[
    ("sglang.toml", include_str!("data/sglang.toml")),
    ("vllm.toml", include_str!("data/vllm.toml")),
    ("trtllm.toml", include_str!("data/trtllm.toml")),
    ("flashinfer.toml", include_str!("data/flashinfer.toml")),
    ("aiter.toml", include_str!("data/aiter.toml")),
    ("deepgemm.toml", include_str!("data/deepgemm.toml")),
    (
        "triton_kernels.toml",
        include_str!("data/triton_kernels.toml"),
    ),
    ("transformers.toml", include_str!("data/transformers.toml")),
];

impl Rules {
    /// The rules shipped with padproof.
    pub fn builtin() -> &'static Rules {
        static RULES: OnceLock<Rules> = OnceLock::new();
        RULES.get_or_init(|| {
            let mut all = Rules::default();
            for (file, text) in SHIPPED {
                let rules =
                    Rules::parse(text, file).expect("shipped rule files are tested to parse");
                all = all.with(rules);
            }
            all
        })
    }

    /// Reads a rule file.
    ///
    /// # Errors
    /// I/O, size, TOML shape, unknown keys, repeated ids, granules of 0: one sentence each.
    pub fn load(path: &Path) -> Result<Rules, RuleError> {
        let file = path.display().to_string();
        let io = |source| RuleError::Io {
            file: file.clone(),
            source,
        };
        if path.is_dir() {
            return Err(io(std::io::Error::other("is a directory, not a rule file")));
        }
        // A device or a pipe has no length that could be asked for.
        let mut bytes = Vec::new();
        crate::files::open(path)
            .and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
            .map_err(io)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(RuleError::TooLarge { file });
        }
        let text = String::from_utf8(bytes)
            .map_err(|error| io(std::io::Error::other(error.utf8_error())))?;
        Rules::parse(&text, &file)
    }

    /// Reads rules from text; `file` is named in errors.
    ///
    /// # Errors
    /// As [`Rules::load`], without I/O.
    pub fn parse(text: &str, file: &str) -> Result<Rules, RuleError> {
        let parsed: RuleFile = toml::from_str(text).map_err(|e| RuleError::Parse {
            file: file.to_owned(),
            message: toml_message(text, &e),
        })?;
        Ok(Rules {
            autos: parsed.auto,
            stacks: parsed.stack,
            ..Rules::of(parsed.rule, file)?
        })
    }

    /// A set of these rules, without `auto` choices; `file` is named in errors.
    ///
    /// # Errors
    /// As [`Rules::parse`], without TOML.
    pub fn of(rules: Vec<Rule>, file: &str) -> Result<Rules, RuleError> {
        let mut ids = HashSet::new();
        for rule in &rules {
            check(rule, &mut ids).map_err(|(key, why)| RuleError::Invalid {
                file: file.to_owned(),
                id: rule.id.clone(),
                key,
                why,
            })?;
        }
        Ok(Rules {
            rules,
            ..Rules::default()
        })
    }

    /// These rules and then `more`; an id of `more` replaces the same id here.
    pub fn with(mut self, more: Rules) -> Rules {
        self.rules
            .retain(|r| more.rules.iter().all(|m| m.id != r.id));
        self.rules.extend(more.rules);
        self.autos.splice(0..0, more.autos);
        self.stacks.splice(0..0, more.stacks);
        self
    }

    /// These rules changed by `change`, without those that it drops.
    pub(super) fn map(mut self, change: impl Fn(Rule) -> Option<Rule>) -> Rules {
        self.rules = self.rules.into_iter().filter_map(change).collect();
        self
    }

    /// Every rule, in file order.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// The rule with this id.
    ///
    /// # Errors
    /// Unknown id, with the nearest ones.
    pub fn get(&self, id: &str) -> Result<&Rule, RuleError> {
        self.rules
            .iter()
            .find(|r| r.id == id)
            .ok_or_else(|| self.unknown(id))
    }

    /// The rules whose id matches a glob.
    ///
    /// # Errors
    /// A pattern that does not parse or matches nothing.
    pub fn matching(&self, pattern: &str) -> Result<Vec<&Rule>, RuleError> {
        let glob = glob::Pattern::new(pattern).map_err(|e| RuleError::Unknown {
            pattern: pattern.to_owned(),
            hint: format!(": {e}"),
        })?;
        let found: Vec<&Rule> = self.rules.iter().filter(|r| glob.matches(&r.id)).collect();
        if found.is_empty() {
            Err(self.unknown(pattern))
        } else {
            Ok(found)
        }
    }

    /// The backend that a stack's `auto` takes for an architecture and format, if known.
    pub fn auto(&self, stack: &str, architecture: &str, format: WeightFormat) -> Option<&Auto> {
        self.autos.iter().find(|a| {
            a.stack == stack
                && (a.architectures.is_empty() || a.architectures.iter().any(|x| x == architecture))
                && (a.formats.is_empty() || a.formats.contains(&format))
        })
    }

    /// What holds for all rules of a stack, if anything was read.
    pub fn stack(&self, name: &str) -> Option<&Stack> {
        self.stacks.iter().find(|s| s.name == name)
    }

    /// What a stack does with the experts of replicas.
    pub fn replicas(&self, stack: &str) -> Replicas {
        let named = self.stack(stack);
        named.map_or(Replicas::Unknown, |s| s.replicas)
    }

    /// Over which ranks a stack can spread whole experts.
    pub fn spread(&self, stack: &str) -> Spread {
        self.stack(stack).map_or(Spread::Unknown, |s| s.spread)
    }

    fn unknown(&self, pattern: &str) -> RuleError {
        let ids: Vec<&str> = self.rules.iter().map(|r| r.id.as_str()).collect();
        let hint = match nearest(pattern, &ids) {
            Some(id) => format!("; did you mean `{id}`?"),
            None => "; see `padproof list rules`".to_owned(),
        };
        RuleError::Unknown {
            pattern: pattern.to_owned(),
            hint,
        }
    }
}

/// A TOML error on one line: the message, then line and column.
fn toml_message(text: &str, error: &toml::de::Error) -> String {
    let place = error.span().map_or(String::new(), |span| {
        let before = text.get(..span.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        format!(" at line {line} column {column}")
    });
    format!("{}{place}", plain(error.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"
[[rule]]
id = "a.b.fp8"
stack = "a"
version = "1"
backend = "b"
formats = ["fp8"]
source = "here"
grade = "source"
timing = "after-load"
split = "floor"
order = "gate-up"
intermediate = [{ align = 16 }]
"#;

    fn error(text: &str) -> String {
        Rules::parse(text, "r.toml")
            .expect_err("must be refused")
            .to_string()
    }

    #[test]
    fn shipped_rules_parse_and_cite_their_source() {
        let rules = Rules::builtin();
        assert!(rules.iter().count() >= 10);
        for rule in rules.iter() {
            assert!(
                rule.source.contains("facts/"),
                "{} cites no facts section",
                rule.id
            );
            assert!(
                rule.id
                    .starts_with(&format!("{}.{}.", rule.stack, rule.backend)),
                "{}",
                rule.id
            );
        }
    }

    #[test]
    fn a_users_file_adds_and_replaces() {
        let mine = Rules::parse(MINIMAL, "r.toml").unwrap();
        let before = Rules::builtin().iter().count();
        let all = Rules::builtin().clone().with(mine.clone());
        assert_eq!(all.iter().count(), before + 1);
        assert_eq!(all.clone().with(mine).iter().count(), before + 1);
        assert_eq!(all.get("a.b.fp8").unwrap().intermediate[0].align, 16);
    }

    #[test]
    fn a_users_stack_is_asked_before_a_shipped_one() {
        let text = "[[stack]]\nname = \"vllm\"\nreplicas = \"within\"\nsource = \"mine\"";
        let mine = Rules::parse(text, "r.toml").unwrap();
        assert_eq!(Rules::builtin().replicas("vllm"), Replicas::Share);
        let all = Rules::builtin().clone().with(mine);
        assert_eq!(all.replicas("vllm"), Replicas::Within);
        assert_eq!(all.replicas("none"), Replicas::Unknown);
        assert!(error(&text.replace("within", "alone")).contains("alone"));
        assert!(error(&text.replace("source", "sauce")).contains("sauce"));
    }

    #[test]
    fn unknown_keys_and_bad_values_are_refused_with_their_place() {
        let unknown = error(&MINIMAL.replace("grade", "graed"));
        assert!(
            unknown.starts_with("r.toml: ") && unknown.contains("graed"),
            "{unknown}"
        );
        assert!(unknown.contains("line"), "{unknown}");
        assert!(error(&MINIMAL.replace("fp8\"]", "fp3\"]")).contains("fp3"));
        assert!(error(&MINIMAL.replace("align = 16", "align = 0")).contains("align = 0"));
        assert!(error(&format!("{MINIMAL}{MINIMAL}")).contains("stands twice"));
        assert!(error(&MINIMAL.replace("a.b.fp8", "A B")).contains("id"));
        assert!(error("[[rule").contains("line 1"));
    }

    #[test]
    fn an_error_is_one_line_whatever_the_id() {
        assert!(error(&MINIMAL.replace("a.b.fp8", r"a\nb.fp8")).contains(r"rule `a\nb.fp8`: id"));
        let word = MINIMAL.replace("after-load", r"after\u001bload");
        assert!(word != MINIMAL && !error(&word).contains(char::is_control));
        let unknown = Rules::builtin().get("a\nb").expect_err("no such rule");
        assert!(!unknown.to_string().contains('\n'));
    }

    #[test]
    fn multiples_of_zero_and_empty_reasons_are_refused_wherever_they_stand() {
        for axis in ["intermediate", "hidden", "tokens"] {
            let granule = "[{ align = 16, when = { width-not-multiple = 0 } }]";
            let rest = MINIMAL.replace("intermediate = [{ align = 16 }]", "");
            let said = error(&format!("{rest}{axis} = {granule}"));
            assert!(
                said.contains(axis) && said.contains("multiple of 0"),
                "{said}"
            );
        }
        for (key, first) in [
            ("refuse", "when = {}, verdict = \"refused\""),
            ("limits", "tokens-min = 2"),
        ] {
            let said = error(&format!("{MINIMAL}{key} = [{{ {first}, why = \" \" }}]"));
            assert!(said.contains(key) && said.contains("empty `why`"), "{said}");
        }
    }

    #[test]
    fn an_unknown_id_names_the_nearest() {
        let e = Rules::builtin()
            .get("sglang.flashinfer_cutlas.fp8")
            .unwrap_err()
            .to_string();
        assert!(e.contains("sglang.flashinfer_cutlass.fp8"), "{e}");
        assert!(Rules::builtin().matching("no.such.*").is_err());
        assert!(Rules::builtin().matching("sglang.*").unwrap().len() > 3);
        assert!(Rules::builtin().matching("[").is_err());
    }

    #[test]
    fn auto_takes_flashinfer_cutlass_for_nemotron_fp8() {
        let rules = Rules::builtin();
        let auto = rules
            .auto("sglang", "NemotronHForCausalLM", WeightFormat::Fp8)
            .unwrap();
        assert_eq!(auto.backend, "flashinfer_cutlass");
    }
}
