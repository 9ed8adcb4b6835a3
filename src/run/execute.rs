//! Runs jobs, then random draws, in chunks over all threads, and tells reporters in case order.
//!
//! It must not format text; what it tells does not depend on the number of threads. Layer 9.

use super::check::{Worker, arguments_of, subject_of};
use super::event::{Ended, Environment, Event, Finished, Reporter};
use super::expect::{PLAN_ENTRY, hold};
use super::files::{FILE_ENTRY, hold_file};
use super::{Counts, Coverage, Filter, Group, Job, Kind, Origin};
use crate::case::Case;
use crate::r#gen::{Domain, draw, suit};
use crate::property::{ALL, Finding, Property, Tier, Verdict};
use crate::rule::Rules;
use crate::subject::SubjectChoice;
use crate::suite::{Expect, Suite};
use rayon::prelude::*;
use std::borrow::Cow;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Jobs between two looks at the clock, at the interrupt and at the failures. Constant, so that a
/// run ends in the same place on any number of threads.
const CHUNK: usize = 64;
/// Most failing checks of a run that are shrunk; a report repeats no more.
const SHRINKS_MAX: u64 = 10;
/// Time of a run for shrinking, three times the limit of time of a subject that is left alone: one that
/// hangs takes it for each try.
const SHRINKS_TIME: Duration = Duration::from_secs(30);

/// How many random cases, and which.
pub struct Budget {
    /// The table they are drawn from.
    pub domain: &'static Domain,
    /// The seed.
    pub seed: u64,
    /// Number of the first.
    pub start: u64,
    /// How many; as many as the time allows if left out.
    pub cases: Option<u64>,
    /// No case is drawn after this time.
    pub time: Option<Duration>,
    /// Properties asked of each.
    pub properties: Vec<&'static Property>,
    /// Which of them are run.
    pub filter: Filter,
}

/// What to run, and how.
pub struct Settings<'a> {
    /// What reports say about the place.
    pub environment: Environment,
    /// The suites that the jobs come from.
    pub suites: &'a [Suite],
    /// Whether the suites' coverage minima are judged: not when a filter leaves cases out.
    pub judge_coverage: bool,
    /// Jobs of the suites and case lines.
    pub jobs: Vec<Job>,
    /// Random cases after them.
    pub budget: Budget,
    /// Failures after which the run ends, once their case is done; never if left out.
    pub max_fail: Option<u64>,
    /// Whether failing cases are shrunk.
    pub shrink: bool,
    /// Which subject is asked.
    pub subject: SubjectChoice,
    /// The rules that cases and plan entries may name.
    pub rules: &'a Rules,
    /// Arguments that every reproducer needs besides its subject's, behind a space.
    pub arguments: String,
    /// Threads.
    pub threads: usize,
    /// Whether case lines are spelled in full.
    pub canonical: bool,
    /// Set from outside to end the run after the chunk that runs.
    pub stop: &'a AtomicBool,
}

/// What came out of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Verdicts by kind.
    pub counts: Counts,
    /// Whether the run proved too little: a line reads VACUOUS, or coverage is below a minimum.
    pub vacuous: bool,
    /// How it ended.
    pub ended: Ended,
}

/// Runs everything.
///
/// # Errors
/// Those of the reporters and of starting threads.
pub fn execute(
    settings: &Settings<'_>,
    reporters: &mut [&mut dyn Reporter],
) -> io::Result<Outcome> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(settings.threads)
        .build()
        .map_err(io::Error::other)?;
    let mut run = Run {
        settings,
        reporters,
        pool,
        started: Instant::now(),
        counts: Counts::default(),
        groups: Vec::new(),
        coverage: Coverage::default(),
        per_suite: vec![Coverage::default(); settings.suites.len()],
        shrinks: 0,
        shrinking: Duration::ZERO,
        ended: None,
    };
    run.emit(&Event::RunStarted {
        environment: &settings.environment,
    })?;
    for chunk in settings.jobs.chunks(CHUNK) {
        run.chunk(chunk)?;
    }
    let next = run.draws()?;
    run.finish(next)
}

/// A run under way.
struct Run<'s, 'r, 'd> {
    settings: &'s Settings<'s>,
    reporters: &'r mut [&'d mut dyn Reporter],
    pool: rayon::ThreadPool,
    started: Instant,
    counts: Counts,
    groups: Vec<Group>,
    coverage: Coverage,
    per_suite: Vec<Coverage>,
    shrinks: u64,
    /// Time that shrinking took so far.
    shrinking: Duration,
    ended: Option<Ended>,
}

impl Run<'_, '_, '_> {
    fn emit(&mut self, event: &Event<'_>) -> io::Result<()> {
        self.reporters.iter_mut().try_for_each(|r| r.event(event))
    }

    /// Draws and runs random cases until the budget is spent; answers the number of the next one.
    fn draws(&mut self) -> io::Result<u64> {
        let budget = &self.settings.budget;
        let end = budget
            .cases
            .map_or(u64::MAX, |n| budget.start.saturating_add(n));
        let mut next = budget.start;
        while next < end && self.ended.is_none() {
            if budget
                .time
                .is_some_and(|time| self.started.elapsed() >= time)
            {
                break;
            }
            let last = end.min(next.saturating_add(CHUNK as u64));
            let supports = self.settings.subject.supports();
            let drawn = (next..last).map(|n| {
                let case = draw(budget.domain, budget.seed, n);
                (n, supports.map_or(case.clone(), |s| suit(&case, s)))
            });
            let (numbers, chunk): (Vec<u64>, Vec<Job>) = drawn
                .filter(|(_, case)| budget.filter.matches(&format!("{case:#}"), None))
                .map(|(n, case)| {
                    let job = Job::Case {
                        case,
                        properties: budget.properties.clone(),
                        expect: Expect::Pass,
                        origin: None,
                    };
                    (n, job)
                })
                .unzip();
            let told = self.chunk(&chunk)?;
            next = match (self.ended, told.checked_sub(1)) {
                (None, _) => last,
                (Some(_), Some(at)) => numbers[at] + 1,
                (Some(_), None) => next,
            };
        }
        Ok(next)
    }

    /// Runs one chunk over all threads and reports it in order; answers how many of its jobs were
    /// told. A job is told whole, so that none is left half done where the run goes on.
    fn chunk(&mut self, jobs: &[Job]) -> io::Result<usize> {
        if self.ended.is_some() {
            return Ok(0);
        }
        if self.settings.stop.load(Ordering::Relaxed) {
            self.ended = Some(Ended::Interrupted);
            return Ok(0);
        }
        let settings = self.settings;
        let stopped = || settings.stop.load(Ordering::Relaxed);
        for job in jobs {
            self.emit(&Event::CaseStarted {
                case: &label(job, settings.canonical),
            })?;
        }
        // An interrupt ends subjects too: what is asked of them then says nothing.
        let asked = |worker: &mut Worker<'_>, job| {
            let done = (!stopped()).then(|| run(worker, settings, job));
            done.filter(|_| !stopped())
        };
        let done: Vec<Option<(Vec<Finished>, Coverage)>> = self.pool.install(|| {
            let jobs = jobs.par_iter();
            jobs.map_init(|| Worker::new(&settings.subject, settings.rules), asked)
                .collect()
        });
        for (at, (job, done)) in jobs.iter().zip(done).enumerate() {
            let Some((finished, coverage)) = done else {
                self.ended = Some(Ended::Interrupted);
                return Ok(at);
            };
            self.coverage.add(&coverage);
            if let Job::Case {
                origin: Some((suite, _)),
                ..
            } = job
            {
                self.per_suite[*suite].add(&coverage);
            }
            for mut one in finished {
                self.shrink(job, &mut one)?;
                self.count(&one);
                self.emit(&Event::CaseFinished(&one))?;
            }
            let most = self.settings.max_fail;
            if most.is_some_and(|most| self.counts.failed >= most) {
                self.ended = self.ended.or(Some(Ended::MaxFail));
            }
            if self.ended.is_some() {
                return Ok(at + 1);
            }
        }
        Ok(jobs.len())
    }

    /// Replaces a failing case by the smallest one found.
    fn shrink(&mut self, job: &Job, finished: &mut Finished) -> io::Result<()> {
        let (Job::Case { case, .. }, failed @ Verdict::Fail(_)) = (job, &finished.verdict) else {
            return Ok(());
        };
        let Some(property) = crate::property::find(finished.property) else {
            return Ok(());
        };
        let left = SHRINKS_TIME.saturating_sub(self.shrinking);
        if !self.settings.shrink || self.shrinks >= SHRINKS_MAX || left.is_zero() {
            return Ok(());
        }
        self.shrinks += 1;
        let since = Instant::now();
        let mut worker = Worker::new(&self.settings.subject, self.settings.rules);
        let stopped = || self.settings.stop.load(Ordering::Relaxed);
        let go_on = || !stopped() && since.elapsed() < left;
        let (small, verdict) = worker.smallest(property, case, failed.clone(), go_on);
        self.shrinking += since.elapsed();
        if stopped() {
            self.ended = Some(Ended::Interrupted);
            return Ok(());
        }
        finished.verdict = verdict;
        if small == *case {
            return Ok(());
        }
        let to = small.to_string();
        self.emit(&Event::Shrunk {
            property: property.name,
            from: &finished.case,
            to: &to,
        })
    }

    fn count(&mut self, finished: &Finished) {
        self.counts.add(&finished.verdict);
        let same =
            |g: &&mut Group| g.property == finished.property && g.subject == finished.subject;
        let at = match self.groups.iter_mut().find(same) {
            Some(group) => group,
            None => {
                let limits = self.settings.suites.iter().map(|suite| suite.vacuous_max);
                let least = limits.reduce(f64::min).unwrap_or(0.5);
                self.groups.push(Group::new(
                    finished.property,
                    finished.subject.clone(),
                    least,
                ));
                self.groups.last_mut().expect("one was just pushed")
            }
        };
        at.add(finished);
    }

    fn finish(mut self, next: u64) -> io::Result<Outcome> {
        let rank = |g: &Group| {
            ALL.iter()
                .position(|p| p.name == g.property)
                .unwrap_or(ALL.len())
        };
        self.groups.sort_by_key(rank);
        let ended = self.ended.unwrap_or(Ended::Whole);
        let shortfalls = if ended == Ended::Whole && self.settings.judge_coverage {
            self.shortfalls()
        } else {
            Vec::new()
        };
        let vacuous =
            !shortfalls.is_empty() || self.groups.iter().any(|g| g.kind() == Kind::Vacuous);
        let (counts, groups) = (self.counts, std::mem::take(&mut self.groups));
        let coverage = std::mem::take(&mut self.coverage);
        let time = self.started.elapsed();
        self.emit(&Event::RunFinished {
            counts: &counts,
            groups: &groups,
            coverage: &coverage,
            shortfalls: &shortfalls,
            ended,
            resume: next,
            time,
        })?;
        Ok(Outcome {
            counts,
            vacuous,
            ended,
        })
    }

    /// One sentence for each share that lies below a suite's minimum.
    fn shortfalls(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (suite, coverage) in self.settings.suites.iter().zip(&self.per_suite) {
            for (name, least) in &suite.coverage {
                let sentence = match coverage.share(name) {
                    Some(share) if share < *least => format!(
                        "suite {}: {name} {:.0}% of cases, at least {:.0}% wanted",
                        suite.name,
                        share * 100.0,
                        least * 100.0
                    ),
                    Some(_) => continue,
                    None => format!("suite {}: coverage of `{name}` cannot be told", suite.name),
                };
                all.push(sentence);
            }
        }
        all
    }
}

fn label(job: &Job, canonical: bool) -> String {
    match job {
        Job::Case { case, .. } => spelled(case, canonical),
        Job::Plan { origin, .. } | Job::File { origin, .. } => origin.name.clone(),
    }
}

fn spelled(case: &Case, canonical: bool) -> String {
    if canonical {
        format!("{case:#}")
    } else {
        case.to_string()
    }
}

/// Runs one job on a worker.
fn run(worker: &mut Worker<'_>, settings: &Settings<'_>, job: &Job) -> (Vec<Finished>, Coverage) {
    let subject = &settings.subject;
    match job {
        Job::Plan { entry, origin } => {
            alone(settings, origin, PLAN_ENTRY, || hold(entry, settings.rules))
        }
        Job::File { entry, origin } => alone(settings, origin, FILE_ENTRY, || {
            hold_file(entry, settings.rules)
        }),
        Job::Case {
            case,
            properties,
            expect,
            origin,
        } => {
            let line = spelled(case, settings.canonical);
            let origin = origin.as_ref().map(|(_, origin)| origin);
            let mut all: Vec<Finished> = properties
                .iter()
                .map(|property| {
                    let started = Instant::now();
                    let verdict = worker.check(property, case);
                    let names = (property.name, subject_of(subject, property));
                    Finished {
                        arguments: arguments_of(subject, property) + &settings.arguments,
                        ..finished(&line, origin, names, verdict, started)
                    }
                })
                .collect();
            foretold(*expect, &line, origin, settings, &mut all);
            (all, Coverage::of(case, settings.rules))
        }
    }
}

/// An entry that is no case.
fn alone(
    settings: &Settings<'_>,
    origin: &Origin,
    property: &'static str,
    hold: impl FnOnce() -> Verdict,
) -> (Vec<Finished>, Coverage) {
    let started = Instant::now();
    let verdict = hold();
    let names = (property, "-".into());
    let done = Finished {
        arguments: settings.arguments.clone(),
        ..finished(&origin.name, Some(origin), names, verdict, started)
    };
    (vec![done], Coverage::default())
}

fn finished(
    case: &str,
    origin: Option<&Origin>,
    (property, subject): (&'static str, Cow<'static, str>),
    verdict: Verdict,
    started: Instant,
) -> Finished {
    Finished {
        case: case.to_owned(),
        name: origin.map(|o| o.name.clone()),
        place: origin.map(|o| (o.file.clone(), o.line)),
        word: origin.map(|o| o.word.clone()),
        property,
        subject,
        arguments: String::new(),
        verdict,
        time: started.elapsed(),
    }
}

/// A verdict that was foretold passes; where none came, the entry is stale, which is a failure.
fn foretold(
    expect: Expect,
    case: &str,
    origin: Option<&Origin>,
    settings: &Settings<'_>,
    all: &mut Vec<Finished>,
) {
    let (kind, property, word, wanted) = match expect {
        Expect::Pass => return,
        Expect::Fail => (Kind::Fail, "expected-failure", "fail", "a failure"),
        Expect::Vacuous => (
            Kind::Vacuous,
            "expected-vacuous",
            "vacuous",
            "a vacuous verdict",
        ),
    };
    let mut came = false;
    for one in all.iter_mut() {
        if Kind::of(&one.verdict) == kind {
            one.verdict = Verdict::Pass(Tier::Bytes);
            came = true;
        }
    }
    if came || all.is_empty() {
        return;
    }
    let stale = Finding {
        property,
        subject: "-".to_owned(),
        case: case.to_owned(),
        place: origin.map_or_else(String::new, |o| o.name.clone()),
        wanted: wanted.to_owned(),
        actual: "none: the entry is stale".to_owned(),
        bound: format!("expect = \"{word}\""),
        derivation: String::new(),
        differing: 1,
        total: 1,
        first: Vec::new(),
        note: None,
        many: false,
    };
    let verdict = Verdict::Fail(Box::new(stale));
    all.push(Finished {
        arguments: settings.subject.arguments() + &settings.arguments,
        ..finished(
            case,
            origin,
            (property, "-".into()),
            verdict,
            Instant::now(),
        )
    });
}
