//! What a process says it can be asked.
//!
//! It must not judge a plan by anything else. Layer 5.

use super::keys::{GRANULES, SIZES, SizeKey, WORDS, WordKey};
use crate::plan::Plan;
use crate::subject::error::{Misbehaviour, SkipReason};
use crate::terms::{Rounded, Roundings, did_you_mean};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// Largest granule that a subject may ask for: as that of a rule.
const GRANULE_MAX: u64 = 1 << 20;

/// What a process says it can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supports {
    /// One list for each of [`WORDS`].
    words: Vec<Vec<&'static str>>,
    /// One number for each of [`GRANULES`].
    granules: Vec<u64>,
    /// One number for each of [`SIZES`].
    least: Vec<u64>,
    /// The same.
    most: Vec<u64>,
    routes_itself: bool,
    sizes: bool,
    runs: bool,
    rules: Vec<String>,
    rounds: Roundings,
}

impl Supports {
    /// Reads the handshake's object; a key that is left out means the plain word, granule 1, any
    /// size.
    ///
    /// # Errors
    /// What is not understood, with the nearest word.
    pub fn parse(text: &str) -> Result<Supports, Misbehaviour> {
        let wrong = |why: String| Misbehaviour::Reply {
            part: "supports".to_owned(),
            why,
        };
        let value: Value = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let object = value
            .as_object()
            .ok_or_else(|| wrong("not an object".to_owned()))?;
        let known: Vec<&str> = WORDS
            .iter()
            .map(|k| k.key)
            .chain([
                "granule",
                "min",
                "max",
                "routes_itself",
                "sizes",
                "runs",
                "rules",
                "rounds",
            ])
            .collect();
        unknown(object, &known).map_err(wrong)?;
        let words = WORDS.iter().map(|key| words(object.get(key.key), key));
        let numbers = |name: &str, keys: &[SizeKey], plain, taken| {
            numbers(object.get(name), name, keys, plain, taken).map_err(wrong)
        };
        let flag = |name: &str, plain| match object.get(name) {
            None => Ok(plain),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| wrong(format!("{name}: true or false"))),
        };
        let any = 0..=u64::MAX;
        let least = numbers("min", SIZES, |_| 0, any.clone())?;
        let most = numbers("max", SIZES, |key| key.plain_most, any)?;
        for ((key, least), most) in SIZES.iter().zip(&least).zip(&most) {
            if least > most {
                let key = key.key;
                return Err(wrong(format!(
                    "min: {key}: {least} is above max: {key}: {most}"
                )));
            }
        }
        Ok(Supports {
            words: words.collect::<Result<_, String>>().map_err(wrong)?,
            granules: numbers("granule", GRANULES, |_| 1, 1..=GRANULE_MAX)?,
            least,
            most,
            routes_itself: flag("routes_itself", false)?,
            sizes: flag("sizes", false)?,
            runs: flag("runs", true)?,
            rules: match object.get("rules") {
                None => Vec::new(),
                Some(value) => serde_json::from_value(value.clone())
                    .map_err(|_| wrong("rules: a list of rules' ids".to_owned()))?,
            },
            rounds: rounds(object.get("rounds")).map_err(wrong)?,
        })
    }

    /// Whether a plan can be asked.
    ///
    /// # Errors
    /// The first thing that is not supported.
    pub fn check(&self, plan: &Plan) -> Result<(), SkipReason> {
        if !self.runs {
            return unsupported("the subject runs no layers".to_owned());
        }
        self.check_words(plan, |_| true)?;
        for (key, granule) in GRANULES.iter().zip(&self.granules) {
            let size = (key.of)(plan);
            if !size.is_multiple_of(*granule) {
                return unsupported(format!(
                    "{} {size}: the subject takes multiples of {granule}",
                    key.meaning
                ));
            }
        }
        for ((key, least), most) in SIZES.iter().zip(&self.least).zip(&self.most) {
            let size = (key.of)(plan);
            if size < *least || size > *most {
                let limit = if size < *least { least } else { most };
                let word = if size < *least { "at least" } else { "at most" };
                return unsupported(format!(
                    "{} {size}: the subject takes {word} {limit}",
                    key.meaning
                ));
            }
        }
        Ok(())
    }

    /// Whether the sizes of a plan's format can be asked for.
    ///
    /// # Errors
    /// The first word that is not supported.
    pub fn check_sizes(&self, plan: &Plan) -> Result<(), SkipReason> {
        if plan.rule != "spelled" && !self.rules.contains(&plan.rule) {
            return unsupported(format!(
                "rule {}: the subject's sizes are not its",
                plan.rule
            ));
        }
        self.check_words(plan, |key| ["weights", "activations"].contains(&key))
    }

    fn check_words(&self, plan: &Plan, asked: fn(&str) -> bool) -> Result<(), SkipReason> {
        let keys = WORDS.iter().zip(&self.words);
        for (key, listed) in keys.filter(|(key, _)| asked(key.key)) {
            for word in (key.of)(plan) {
                if !listed.contains(&word) {
                    return unsupported(format!(
                        "{word}: the subject takes {} {}",
                        key.key,
                        listed.join(", ")
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether it runs layers at all.
    pub fn runs(&self) -> bool {
        self.runs
    }

    /// Where it rounds to bfloat16 besides what the plan says.
    pub fn rounds(&self) -> Roundings {
        self.rounds
    }

    /// Whether it tells the sizes that its stack allocates.
    pub fn tells_sizes(&self) -> bool {
        self.sizes
    }

    /// Whether it routes by itself and says which experts it chose.
    pub fn routes_itself(&self) -> bool {
        self.routes_itself
    }

    /// The words listed for a key of [`WORDS`].
    pub fn words(&self, key: &str) -> &[&'static str] {
        let at = WORDS.iter().position(|k| k.key == key);
        debug_assert!(at.is_some(), "{key} lists no words");
        at.map_or(&[], |at| &self.words[at])
    }

    /// The granule of a key of [`GRANULES`].
    pub fn granule(&self, key: &str) -> u64 {
        let at = GRANULES.iter().position(|k| k.key == key);
        debug_assert!(at.is_some(), "{key} has no granule");
        at.map_or(1, |at| self.granules[at])
    }

    /// The least and the largest size of a key of [`SIZES`].
    pub fn sizes(&self, key: &str) -> (u64, u64) {
        let at = SIZES.iter().position(|k| k.key == key);
        debug_assert!(at.is_some(), "{key} is no size");
        at.map_or((0, u64::MAX), |at| (self.least[at], self.most[at]))
    }
}

fn unsupported(what: String) -> Result<(), SkipReason> {
    Err(SkipReason::Unsupported(what))
}

/// Keys that mean nothing, so that a slip is not silent.
fn unknown(object: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    let known_key = |key: &&String| known.contains(&key.as_str());
    match object.keys().find(|key| !known_key(key)) {
        None => Ok(()),
        Some(key) => Err(no_such("key", key, known)),
    }
}

fn no_such(kind: &str, word: &str, known: &[&str]) -> String {
    let hint = did_you_mean(word, known);
    format!("no {kind} `{word}`{hint}; one of: {}", known.join(", "))
}

/// `"*"`, a list of words of one key, or of words to leave out, each behind a minus.
fn words(value: Option<&Value>, key: &WordKey) -> Result<Vec<&'static str>, String> {
    let all = (key.words)();
    let listed = match value {
        None => return Ok(all[..1].to_vec()),
        Some(Value::String(star)) if star == "*" => return Ok(all),
        Some(Value::Array(listed)) if !listed.is_empty() => listed,
        Some(_) => return Err(format!("{}: a list of words, or \"*\"", key.key)),
    };
    let minus = |value: &Value| value.as_str().is_some_and(|word| word.starts_with('-'));
    let subtracts = listed.iter().all(minus);
    let word = |value: &Value| {
        let word = value
            .as_str()
            .ok_or_else(|| format!("{}: a word is a string", key.key))?;
        let word = if subtracts { &word[1..] } else { word };
        all.iter()
            .copied()
            .find(|known| *known == word)
            .ok_or_else(|| format!("{}: {}", key.key, no_such("word", word, &all)))
    };
    let words = listed
        .iter()
        .map(word)
        .collect::<Result<Vec<_>, String>>()?;
    if subtracts {
        return Ok(all
            .into_iter()
            .filter(|word| !words.contains(word))
            .collect());
    }
    Ok(words)
}

/// A list of places of rounding; none if left out.
fn rounds(value: Option<&Value>) -> Result<Roundings, String> {
    let Some(value) = value else {
        return Ok(Roundings::NONE);
    };
    let listed = value.as_array().ok_or("rounds: a list of words")?;
    let all: Vec<&str> = Rounded::ALL.iter().map(|place| place.name()).collect();
    let place = |word: &Value| {
        let word = word.as_str().ok_or("rounds: a word is a string")?;
        let unknown = |_| format!("rounds: {}", no_such("word", word, &all));
        word.parse::<Rounded>().map_err(unknown)
    };
    listed.iter().map(place).collect()
}

/// An object of sizes.
fn numbers(
    value: Option<&Value>,
    name: &str,
    keys: &[SizeKey],
    plain: fn(&SizeKey) -> u64,
    taken: RangeInclusive<u64>,
) -> Result<Vec<u64>, String> {
    let Some(value) = value else {
        return Ok(keys.iter().map(plain).collect());
    };
    let object = value
        .as_object()
        .ok_or_else(|| format!("{name}: not an object"))?;
    let known: Vec<&str> = keys.iter().map(|k| k.key).collect();
    unknown(object, &known).map_err(|e| format!("{name}: {e}"))?;
    let number =
        |key: &SizeKey| match object.get(key.key) {
            None => Ok(plain(key)),
            Some(value) => value
                .as_u64()
                .filter(|n| taken.contains(n))
                .ok_or_else(|| match *taken.end() {
                    u64::MAX => format!("{name}: {}: a positive number", key.key),
                    most => format!(
                        "{name}: {}: a number of {} to {most}",
                        key.key,
                        taken.start()
                    ),
                }),
        };
    keys.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_rounding_are_the_pages_words() {
        let page = include_str!("../../../docs/subject-protocol.md");
        let rows = page.split("| `rounds` | rounded |").nth(1).expect("listed");
        let rows = rows.lines().skip(2).take_while(|l| l.starts_with('|'));
        let told: Vec<&str> = rows.filter_map(|row| row.split('`').nth(1)).collect();
        let all: Vec<&str> = Rounded::ALL.iter().map(|place| place.name()).collect();
        assert_eq!(told, all);
        let of = |text| Supports::parse(text).map(|s| s.rounds());
        assert_eq!(of("{}").unwrap(), Roundings::NONE);
        let some = of(r#"{"rounds": ["x", "y"]}"#).unwrap();
        assert!(some.has(Rounded::X) && some.has(Rounded::Y) && !some.has(Rounded::Act));
        let wrong = of(r#"{"rounds": ["fc3"]}"#).unwrap_err().to_string();
        assert!(wrong.contains("rounds: no word `fc3`"), "{wrong}");
    }
}
