//! Which subject is asked, and how another one of it is made.

use super::api::Subject;
use super::cpu::Cpu;
use super::process::{Process, Program, Supports};
use std::sync::Arc;

/// Which subject is asked. Each thread asks one of its own.
#[derive(Debug, Clone, Default)]
pub enum SubjectChoice {
    /// The CPU subject.
    #[default]
    Cpu,
    /// A program.
    Process(Arc<Program>),
}

impl SubjectChoice {
    /// The name of the subject that runs everywhere.
    pub const CPU: &'static str = "cpu";

    /// A subject to ask.
    pub fn subject(&self) -> Box<dyn Subject + Send> {
        match self {
            SubjectChoice::Cpu => Box::new(Cpu::default()),
            SubjectChoice::Process(program) => Box::new(Process::new(program)),
        }
    }

    /// Its name in commands and reports.
    pub fn name(&self) -> &'static str {
        match self {
            SubjectChoice::Cpu => SubjectChoice::CPU,
            SubjectChoice::Process(_) => Process::NAME,
        }
    }

    /// What a report says the subject is.
    pub fn title(&self) -> String {
        match self {
            SubjectChoice::Cpu => SubjectChoice::CPU.to_owned(),
            SubjectChoice::Process(program) => program.title(),
        }
    }

    /// The arguments that choose it, behind a space; nothing for the subject that is chosen anyway.
    pub fn arguments(&self) -> String {
        match self {
            SubjectChoice::Cpu => String::new(),
            SubjectChoice::Process(program) => program.arguments(),
        }
    }

    /// What it says it can be asked; none where it takes every case that it is not asked to skip.
    pub fn supports(&self) -> Option<&Supports> {
        match self {
            SubjectChoice::Cpu => None,
            SubjectChoice::Process(program) => Some(program.supports()),
        }
    }

    /// Ends what it runs at once: for interrupts.
    pub fn kill(&self) {
        if let SubjectChoice::Process(program) = self {
            program.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subjects_name_is_its_own() {
        let cpu = SubjectChoice::default();
        assert_eq!(cpu.subject().name(), cpu.name());
        assert_eq!(cpu.arguments(), "");
    }
}
