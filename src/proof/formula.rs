//! Gives the value of a formula of `proofs/`: the few words of SMT-LIB used there, over integers.

use std::collections::BTreeMap;

/// A value; truth is 1 or 0.
pub(super) type Value = i128;

#[derive(Debug, Clone, PartialEq)]
enum Term {
    Word(String),
    List(Vec<Term>),
}

#[derive(Debug)]
struct Function {
    parameters: Vec<String>,
    body: Term,
}

/// The `define-fun`s of a file.
#[derive(Debug, Default)]
pub(super) struct Formulas {
    functions: BTreeMap<String, Function>,
}

impl Formulas {
    /// Reads the definitions of a text, wherever they stand.
    pub(super) fn of(text: &str) -> Formulas {
        let code: String = text
            .lines()
            .map(|line| line.split(';').next().unwrap_or("").to_owned() + "\n")
            .collect();
        let spaced = code.replace('(', " ( ").replace(')', " ) ");
        let mut words = spaced.split_whitespace();
        let mut formulas = Formulas::default();
        while words.next().is_some() {
            let Term::List(parts) = list(&mut words) else {
                continue;
            };
            let [head, Term::Word(name), Term::List(parameters), _, body] = &parts[..] else {
                continue;
            };
            if *head != Term::Word("define-fun".to_owned()) {
                continue;
            }
            let parameters = parameters.iter().map(|p| match p {
                Term::List(pair) => match &pair[0] {
                    Term::Word(name) => name.clone(),
                    other => panic!("{other:?} is no parameter"),
                },
                other => panic!("{other:?} is no parameter"),
            });
            let function = Function {
                parameters: parameters.collect(),
                body: body.clone(),
            };
            formulas.functions.insert(name.clone(), function);
        }
        formulas
    }

    /// The value of a formula.
    pub(super) fn value(&self, name: &str, arguments: &[Value]) -> Value {
        let function = &self.functions[name];
        assert_eq!(function.parameters.len(), arguments.len(), "{name}");
        let names = function.parameters.iter().map(String::as_str);
        let scope = names.zip(arguments.iter().copied()).collect();
        self.term(&function.body, &scope)
    }

    /// How many arguments a formula takes.
    pub(super) fn arity(&self, name: &str) -> usize {
        self.functions[name].parameters.len()
    }

    fn term(&self, term: &Term, scope: &BTreeMap<&str, Value>) -> Value {
        let parts = match term {
            Term::Word(word) => {
                let value = scope.get(word.as_str()).copied();
                return value
                    .or_else(|| word.parse().ok())
                    .unwrap_or_else(|| self.value(word, &[]));
            }
            Term::List(parts) => parts,
        };
        let Term::Word(head) = &parts[0] else {
            panic!("{:?} is no function", parts[0]);
        };
        if head == "ite" {
            let branch = if self.term(&parts[1], scope) != 0 {
                2
            } else {
                3
            };
            return self.term(&parts[branch], scope);
        }
        let values: Vec<Value> = parts[1..].iter().map(|t| self.term(t, scope)).collect();
        let chain = |holds: fn(&Value, &Value) -> bool| {
            Value::from(values.windows(2).all(|pair| holds(&pair[0], &pair[1])))
        };
        let exact = |value: Option<Value>| value.expect("sizes of 64 bits do not leave 128");
        let fold = |op: fn(Value, Value) -> Option<Value>| {
            exact(
                values
                    .iter()
                    .copied()
                    .map(Some)
                    .reduce(|a, b| op(a?, b?))
                    .flatten(),
            )
        };
        match head.as_str() {
            "+" => fold(Value::checked_add),
            "-" => fold(Value::checked_sub),
            "*" => fold(Value::checked_mul),
            "div" => exact(values[0].checked_div_euclid(values[1])),
            "mod" => exact(values[0].checked_rem_euclid(values[1])),
            "<=" => chain(Value::le),
            "<" => chain(Value::lt),
            ">=" => chain(Value::ge),
            ">" => chain(Value::gt),
            "=" => chain(Value::eq),
            "and" => Value::from(values.iter().all(|&v| v != 0)),
            "or" => Value::from(values.iter().any(|&v| v != 0)),
            "not" => Value::from(values[0] == 0),
            name => self.value(name, &values),
        }
    }
}

/// The list whose opening bracket was read.
fn list<'t>(words: &mut impl Iterator<Item = &'t str>) -> Term {
    let mut parts = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "(" => parts.push(list(words)),
            ")" => break,
            word => parts.push(Term::Word(word.to_owned())),
        }
    }
    Term::List(parts)
}

#[test]
fn formulas_have_the_values_that_smt_lib_gives_them() {
    // div and mod as in SMT-LIB: the remainder is never negative.
    let text = "(define-fun K () Int 7) ; (a comment\n\
                (define-fun f ((n Int) (a Int)) Int (ite (< n a K) (+ (div n a) K) (- (mod n a) 1 (* 2 3))))";
    let f = Formulas::of(text);
    assert_eq!(f.arity("f"), 2);
    assert_eq!(f.value("f", &[2, 3]), 7);
    assert_eq!(f.value("f", &[-7, 2]), 3); // -7 = -4 * 2 + 1
    assert_eq!(f.value("f", &[9, 2]), -6);
}
