//! Spells a case as one line of text, and reads it back.
//!
//! It must not judge values: what makes sense is said in `valid`. Layer 2.

use super::error::ParseError;
use super::types::{Case, PadSpec, Scheme};
use crate::terms::UnknownWord;
use std::fmt;
use std::str::FromStr;

/// Every key, in canonical order.
pub const KEYS: &[&str] = &[
    "t", "e", "k", "h", "i", "tp", "ep", "act", "route", "groups", "keep", "factor", "zero", "w",
    "qx", "qh", "mid", "bias", "rule", "pad", "split", "order", "place", "store", "nib", "fill",
    "seed",
];

/// Keys which a rule decides, so that they cannot stand beside `rule=`.
const SPELLED: &[&str] = &["pad", "split", "order", "place", "store", "nib"];

/// Longest line read, far above the canonical line with every key.
pub(super) const LINE_MAX: usize = 4096;

impl fmt::Display for Case {
    /// The minimal line, or with `{:#}` the canonical one with every key; but `zero`, younger than the ids that
    /// are made of canonical lines, only where it is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = if f.alternate() {
            canonical(self)
        } else {
            minimal(self)
        };
        for (n, (key, value)) in pairs.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Case {
    /// The minimal line in quotes, so that a panic message shows something to paste.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

type Pair = (&'static str, String);

fn canonical(case: &Case) -> Vec<Pair> {
    let mut pairs = vec![
        ("t", case.t.to_string()),
        ("e", case.e.to_string()),
        ("k", case.k.to_string()),
        ("h", case.h.to_string()),
        ("i", case.i.to_string()),
        ("tp", case.tp.to_string()),
        ("ep", case.ep.to_string()),
        ("act", case.act.to_string()),
        ("route", case.route.to_string()),
        ("groups", case.groups.to_string()),
        ("keep", case.keep.to_string()),
        ("factor", thousandths(case.factor)),
        ("w", case.w.to_string()),
        ("qx", case.qx.to_string()),
        ("qh", case.qh.to_string()),
        ("mid", if case.mid_bf16 { "bf16" } else { "f32" }.to_owned()),
        ("bias", case.bias.to_string()),
    ];
    if case.zero > 0 {
        // Younger than the ids of cases, which stay as they are.
        pairs.insert(12, ("zero", case.zero.to_string()));
    }
    match &case.scheme {
        Scheme::Rule(id) => pairs.push(("rule", id.clone())),
        Scheme::Spelled(pad) => pairs.extend([
            (
                "pad",
                format!("h{}.i{}.t{}", pad.hidden, pad.intermediate, pad.tokens),
            ),
            ("split", pad.split.to_string()),
            ("order", pad.order.to_string()),
            ("place", pad.place.to_string()),
            ("store", pad.store.to_string()),
            ("nib", pad.nib.to_string()),
        ]),
    }
    pairs.push(("fill", case.fill.to_string()));
    pairs.push(("seed", format!("{:x}", case.seed)));
    pairs
}

fn minimal(case: &Case) -> Vec<Pair> {
    let plain = canonical(&Case::default());
    let mut pairs: Vec<Pair> = canonical(case)
        .into_iter()
        .filter(|pair| !plain.contains(pair))
        .collect();
    if let Some((_, value)) = pairs.iter_mut().find(|(key, _)| *key == "pad") {
        // Granules of one are left out like any default; the pair itself differs from h1.i1.t1.
        let kept: Vec<&str> = value.split('.').filter(|part| &part[1..] != "1").collect();
        *value = kept.join(".");
    }
    if pairs.is_empty() {
        pairs.push(("t", case.t.to_string()));
    }
    pairs
}

/// 2500 as `2.5`.
fn thousandths(factor: u64) -> String {
    let (whole, rest) = (factor / 1000, factor % 1000);
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:03}")
        .trim_end_matches('0')
        .to_owned()
}

impl FromStr for Case {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let pairs = pairs(text)?;
        let value_of = |wanted| {
            pairs
                .iter()
                .find(|(key, _)| *key == wanted)
                .map(|(_, v)| *v)
        };
        let mut case = Case::default();
        let mut pad = PadSpec::default();
        for (key, value) in &pairs {
            set(&mut case, &mut pad, key, value)?;
        }
        case.scheme = match value_of("rule") {
            None => Scheme::Spelled(pad),
            Some(id) => {
                if let Some((key, value)) = pairs.iter().find(|(key, _)| SPELLED.contains(key)) {
                    return Err(ParseError::BesideRule {
                        key,
                        value: (*value).to_owned(),
                        rule: id.to_owned(),
                    });
                }
                Scheme::Rule(id.to_owned())
            }
        };
        case.validate()?;
        Ok(case)
    }
}

/// The line cut into known keys and their text.
fn pairs(text: &str) -> Result<Vec<(&'static str, &str)>, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Empty);
    }
    if text.len() > LINE_MAX {
        return Err(ParseError::TooLong { length: text.len() });
    }
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "=,.+-_".contains(c);
    if let Some((at, character)) = text.char_indices().find(|(_, c)| !allowed(*c)) {
        return Err(ParseError::Character { character, at });
    }
    let mut pairs: Vec<(&'static str, &str)> = Vec::new();
    for piece in text.split(',') {
        let not_pair = || ParseError::NotKeyValue {
            piece: piece.to_owned(),
        };
        let (key, value) = piece.split_once('=').ok_or_else(not_pair)?;
        if key.is_empty() || value.is_empty() || value.contains('=') {
            return Err(not_pair());
        }
        let known = KEYS.iter().find(|k| **k == key);
        let key = *known.ok_or_else(|| ParseError::UnknownKey {
            key: key.to_owned(),
        })?;
        if pairs.iter().any(|(k, _)| *k == key) {
            return Err(ParseError::Repeated { key });
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

fn set(
    case: &mut Case,
    pad: &mut PadSpec,
    key: &'static str,
    value: &str,
) -> Result<(), ParseError> {
    match key {
        "t" => case.t = number(key, value)?,
        "e" => case.e = number(key, value)?,
        "k" => case.k = number(key, value)?,
        "h" => case.h = number(key, value)?,
        "i" => case.i = number(key, value)?,
        "tp" => case.tp = number(key, value)?,
        "ep" => case.ep = number(key, value)?,
        "act" => case.act = word(key, value)?,
        "route" => case.route = word(key, value)?,
        "groups" => case.groups = number(key, value)?,
        "keep" => case.keep = number(key, value)?,
        "factor" => case.factor = factor(key, value)?,
        "zero" => case.zero = number(key, value)?,
        "w" => case.w = word(key, value)?,
        "qx" => case.qx = word(key, value)?,
        "qh" => case.qh = word(key, value)?,
        "mid" => case.mid_bf16 = mid(key, value)?,
        "bias" => case.bias = word(key, value)?,
        "pad" => granules(pad, value)?,
        "split" => pad.split = word(key, value)?,
        "order" => pad.order = word(key, value)?,
        "place" => pad.place = word(key, value)?,
        "store" => pad.store = word(key, value)?,
        "nib" => pad.nib = word(key, value)?,
        "fill" => case.fill = word(key, value)?,
        "seed" => case.seed = seed(key, value)?,
        // `rule` is read together with the keys it excludes.
        _ => {}
    }
    Ok(())
}

fn word<T: FromStr<Err = UnknownWord>>(key: &'static str, value: &str) -> Result<T, ParseError> {
    value
        .parse()
        .map_err(|source| ParseError::Word { key, source })
}

fn number(key: &'static str, value: &str) -> Result<u64, ParseError> {
    // `u64::from_str` also takes a leading plus, which would give one case two spellings.
    if value.is_empty() || !value.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ParseError::Number {
            key,
            value: value.to_owned(),
            wanted: "a whole number",
        });
    }
    value.parse().map_err(|_| ParseError::Overflow {
        key,
        value: value.to_owned(),
    })
}

fn factor(key: &'static str, value: &str) -> Result<u64, ParseError> {
    let (whole, rest) = value.split_once('.').unwrap_or((value, "0"));
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(rest) || rest.len() > 3 {
        return Err(ParseError::Number {
            key,
            value: value.to_owned(),
            wanted: "a decimal number with at most three decimals",
        });
    }
    let rest = number(key, &format!("{rest:0<3}"))?;
    number(key, whole)?
        .checked_mul(1000)
        .and_then(|thousands| thousands.checked_add(rest))
        .ok_or_else(|| ParseError::Overflow {
            key,
            value: value.to_owned(),
        })
}

fn seed(key: &'static str, value: &str) -> Result<u64, ParseError> {
    if !value.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(ParseError::Number {
            key,
            value: value.to_owned(),
            wanted: "a hexadecimal number",
        });
    }
    u64::from_str_radix(value, 16).map_err(|_| ParseError::Overflow {
        key,
        value: value.to_owned(),
    })
}

fn mid(key: &'static str, value: &str) -> Result<bool, ParseError> {
    match value {
        "f32" => Ok(false),
        "bf16" => Ok(true),
        _ => Err(ParseError::Word {
            key,
            source: UnknownWord {
                kind: "intermediate type",
                word: value.to_owned(),
                valid: vec!["f32".to_owned(), "bf16".to_owned()],
            },
        }),
    }
}

fn granules(pad: &mut PadSpec, value: &str) -> Result<(), ParseError> {
    let mut seen = String::new();
    for part in value.split('.') {
        let axis = part
            .chars()
            .next()
            .filter(|axis| "hit".contains(*axis) && !seen.contains(*axis));
        let Some(axis) = axis else {
            return Err(ParseError::Pad {
                value: value.to_owned(),
            });
        };
        seen.push(axis);
        let granule = number("pad", &part[1..]).map_err(|error| match error {
            ParseError::Overflow { .. } => ParseError::Overflow {
                key: "pad",
                value: value.to_owned(),
            },
            _ => ParseError::Pad {
                value: value.to_owned(),
            },
        })?;
        match axis {
            'h' => pad.hidden = granule,
            'i' => pad.intermediate = granule,
            _ => pad.tokens = granule,
        }
    }
    Ok(())
}

impl Case {
    /// Eight hex digits that name the case in files and reports: FNV-1a (64 bits) over the
    /// canonical line, its halves xored. Stable across versions as long as the line is.
    pub fn id(&self) -> String {
        let hash = format!("{self:#}")
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        format!("{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff))
    }
}

impl serde::Serialize for Case {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Case {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let line = String::deserialize(deserializer)?;
        line.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(line: &str) -> String {
        match line.parse::<Case>() {
            Ok(case) => panic!("{line} parsed to {case:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_default_case_prints_one_pair_and_reads_back() {
        let line = Case::default().to_string();
        assert_eq!(line, "t=4");
        assert_eq!(line.parse::<Case>(), Ok(Case::default()));
        assert_eq!(format!("{:?}", Case::default()), "\"t=4\"");
    }

    #[test]
    fn keys_are_read_in_any_order_and_written_in_one() {
        let line = "seed=1b2c,pad=t8.i128,factor=2.50,w=mxfp4,t=17,mid=bf16";
        let case: Case = line.parse().expect("parses");
        assert_eq!(
            case.to_string(),
            "t=17,factor=2.5,w=mxfp4,mid=bf16,pad=i128.t8,seed=1b2c"
        );
        assert_eq!(
            format!("{case:#}"),
            "t=17,e=4,k=2,h=64,i=64,tp=1,ep=1,act=swiglu,route=softmax-renorm,groups=1,keep=1,\
             factor=2.5,w=mxfp4,qx=none,qh=none,mid=bf16,bias=none,pad=h1.i128.t8,\
             split=ceil-block,order=gate-up,place=per-half,store=linear,nib=low,\
             fill=exact,seed=1b2c"
        );
    }

    #[test]
    fn a_rule_takes_the_place_of_the_padding_keys() {
        let line = "t=4,w=fp8,rule=sglang.flashinfer_cutlass.fp8";
        let case: Case = line.parse().expect("parses");
        assert_eq!(case.to_string(), "w=fp8,rule=sglang.flashinfer_cutlass.fp8");
        assert!(!format!("{case:#}").contains("pad="));
        assert_eq!(
            message("rule=a.b,order=int8"),
            "order=int8 cannot stand beside rule=a.b, which decides it"
        );
    }

    #[test]
    fn each_misspelling_is_named() {
        for (line, wanted) in [
            ("", "empty case"),
            ("t=4,", "`` is not key=value"),
            ("t", "`t` is not key=value"),
            ("t=", "`t=` is not key=value"),
            ("t=4=5", "`t=4=5` is not key=value"),
            ("t=4 ", "character ' ' at byte 3"),
            ("T=4", "character 'T' at byte 0"),
            ("i=6é", "character 'é' at byte 3"),
            ("rout=softmax", "unknown key `rout` (did you mean `route`?)"),
            ("t=4,t=5", "key `t` is given twice"),
            ("t=-1", "t=-1 is not a whole number"),
            ("t=+1", "t=+1 is not a whole number"),
            ("t=1.5", "t=1.5 is not a whole number"),
            (
                "t=18446744073709551616",
                "t=18446744073709551616 does not fit 64 bits",
            ),
            (
                "factor=1.2345",
                "factor=1.2345 is not a decimal number with at most three",
            ),
            ("factor=1.", "factor=1. is not a decimal number"),
            (
                "factor=18446744073709551",
                "factor=18446744073709551 exceeds the largest, 1000000",
            ),
            (
                "factor=184467440737095517",
                "factor=184467440737095517 does not fit 64 bits",
            ),
            ("seed=xyz", "seed=xyz is not a hexadecimal number"),
            (
                "seed=12345678901234567",
                "seed=12345678901234567 does not fit 64 bits",
            ),
            (
                "act=swigle",
                "act=swigle: unknown activation `swigle` (did you mean `swiglu`?)",
            ),
            ("mid=f16", "mid=f16: unknown intermediate type `f16`"),
            ("pad=64", "pad=64: write granules"),
            ("pad=h64.h32", "pad=h64.h32: write granules"),
            ("pad=h64.", "pad=h64.: write granules"),
            ("pad=h", "pad=h: write granules"),
            (
                "pad=h99999999999999999999",
                "pad=h99999999999999999999 does not fit 64 bits",
            ),
        ] {
            let message = message(line);
            assert!(message.starts_with(wanted), "{line}: {message}");
        }
        assert!(message(&"t=4,".repeat(2000)).starts_with("case line of 8000 bytes"));
    }

    #[test]
    fn ids_differ_with_any_key_and_never_change() {
        assert_eq!(Case::default().id().len(), 8);
        assert_ne!(
            "t=5".parse::<Case>().expect("parses").id(),
            Case::default().id()
        );
        assert_eq!(Case::default().id(), "b9048c86");
    }
}
