//! Which subject is asked, and how another one of it is made.

use super::api::Subject;
use super::cpu::Cpu;
#[cfg(feature = "cuda")]
use super::cuda::Cuda;
#[cfg(feature = "cuda-host")]
use super::cuda::CudaHost;
use super::error::SubjectError;
use super::order::{Known, Revealed};
use super::process::{Process, Program, Supports};
use crate::schedule::Schedule;
use std::borrow::Cow;
use std::sync::Arc;

/// Which subject is asked. Each thread asks one of its own.
#[derive(Debug, Clone, Default)]
pub enum SubjectChoice {
    /// The CPU subject.
    #[default]
    Cpu,
    /// The CUDA kernels on a device.
    #[cfg(feature = "cuda")]
    Cuda,
    /// The CUDA kernels on the CPU.
    #[cfg(feature = "cuda-host")]
    CudaHost,
    /// The CPU subject in another order of summation: slow, to see what an order promises.
    Ordered(Schedule),
    /// A program.
    Process(Arc<Program>),
    /// A program whose orders are found when equal bits could be asked for.
    Revealed(Arc<Program>, Known),
}

impl SubjectChoice {
    /// The name of the subject that runs everywhere.
    pub const CPU: &'static str = "cpu";
    /// The name of the CUDA kernels on a device.
    pub const CUDA: &'static str = "cuda";
    /// The name of the CUDA kernels on the CPU.
    pub const CUDA_HOST: &'static str = "cuda-host";
    /// The names of the subjects that this program has itself.
    pub const NAMES: &'static [&'static str] = &[
        SubjectChoice::CPU,
        #[cfg(feature = "cuda-host")]
        SubjectChoice::CUDA_HOST,
        #[cfg(feature = "cuda")]
        SubjectChoice::CUDA,
    ];

    /// Whether the subject of that name has a fast and a general path.
    pub fn has_paths(name: &str) -> bool {
        [SubjectChoice::CUDA, SubjectChoice::CUDA_HOST].contains(&name)
    }

    /// The subject of that name, if this program has it itself.
    pub fn named(name: &str) -> Option<SubjectChoice> {
        match name {
            SubjectChoice::CPU => Some(SubjectChoice::Cpu),
            #[cfg(feature = "cuda")]
            SubjectChoice::CUDA => Some(SubjectChoice::Cuda),
            #[cfg(feature = "cuda-host")]
            SubjectChoice::CUDA_HOST => Some(SubjectChoice::CudaHost),
            _ => None,
        }
    }

    /// Whether the text chooses a subject that this program has itself.
    pub fn is_own(text: &str) -> bool {
        SubjectChoice::named(text).is_some() || SubjectChoice::order(text).is_some()
    }

    /// The CPU subject in an order, as `cpu:ORDER` chooses it.
    fn ordered(order: Schedule) -> String {
        format!("{}:{order}", SubjectChoice::CPU)
    }

    /// The order behind `cpu:`, if that is what the text begins with.
    pub fn order(text: &str) -> Option<&str> {
        text.strip_prefix(SubjectChoice::CPU)?.strip_prefix(':')
    }

    /// A subject to ask.
    pub fn subject(&self) -> Box<dyn Subject + Send> {
        match self {
            SubjectChoice::Cpu => Box::new(Cpu::default()),
            #[cfg(feature = "cuda")]
            SubjectChoice::Cuda => Box::new(Cuda::default()),
            #[cfg(feature = "cuda-host")]
            SubjectChoice::CudaHost => Box::new(CudaHost::default()),
            SubjectChoice::Ordered(order) => Box::new(Cpu::under(*order)),
            SubjectChoice::Process(program) => Box::new(Process::new(program)),
            SubjectChoice::Revealed(program, known) => {
                Box::new(Revealed::new(Box::new(Process::new(program)), known))
            }
        }
    }

    /// A program as a choice of its own, with a process that was asked nothing yet; none where the subject keeps
    /// nothing from case to case.
    ///
    /// # Errors
    /// When it does not start again.
    pub fn afresh(&self) -> Result<Option<SubjectChoice>, SubjectError> {
        Ok(match self {
            SubjectChoice::Process(program) => {
                Some(SubjectChoice::Process(Arc::new(program.afresh()?)))
            }
            SubjectChoice::Revealed(program, known) => Some(SubjectChoice::Revealed(
                Arc::new(program.afresh()?),
                known.clone(),
            )),
            _ => None,
        })
    }

    /// Its name in commands and reports.
    pub fn name(&self) -> Cow<'static, str> {
        match self {
            SubjectChoice::Cpu => SubjectChoice::CPU.into(),
            #[cfg(feature = "cuda")]
            SubjectChoice::Cuda => SubjectChoice::CUDA.into(),
            #[cfg(feature = "cuda-host")]
            SubjectChoice::CudaHost => SubjectChoice::CUDA_HOST.into(),
            SubjectChoice::Ordered(order) => SubjectChoice::ordered(*order).into(),
            SubjectChoice::Process(program) | SubjectChoice::Revealed(program, _) => {
                program.name().to_owned().into()
            }
        }
    }

    /// What a report says the subject is.
    pub fn title(&self) -> String {
        match self {
            SubjectChoice::Cpu => SubjectChoice::CPU.to_owned(),
            #[cfg(feature = "cuda")]
            SubjectChoice::Cuda => match Cuda::facts() {
                Ok(facts) => format!(
                    "{} ({}, {}, kernels {})",
                    SubjectChoice::CUDA,
                    facts.name,
                    facts.arch,
                    Cuda::kernel_hash()
                ),
                Err(why) => format!("{} ({why})", SubjectChoice::CUDA),
            },
            #[cfg(feature = "cuda-host")]
            SubjectChoice::CudaHost => SubjectChoice::CUDA_HOST.to_owned(),
            SubjectChoice::Ordered(order) => SubjectChoice::ordered(*order),
            SubjectChoice::Process(program) | SubjectChoice::Revealed(program, _) => {
                program.title()
            }
        }
    }

    /// The arguments that choose it, behind a space; nothing for the subject that is chosen anyway.
    pub fn arguments(&self) -> String {
        match self {
            SubjectChoice::Cpu => String::new(),
            #[cfg(feature = "cuda")]
            SubjectChoice::Cuda => format!(" --subject {}", SubjectChoice::CUDA),
            #[cfg(feature = "cuda-host")]
            SubjectChoice::CudaHost => format!(" --subject {}", SubjectChoice::CUDA_HOST),
            SubjectChoice::Ordered(order) => {
                format!(" --subject {}", SubjectChoice::ordered(*order))
            }
            SubjectChoice::Process(program) => program.arguments(),
            SubjectChoice::Revealed(program, _) => program.arguments() + " --reveal",
        }
    }

    /// Whether it runs layers at all.
    pub fn runs(&self) -> bool {
        self.supports().is_none_or(Supports::runs)
    }

    /// Whether it tells the sizes that its stack allocates.
    pub fn tells_sizes(&self) -> bool {
        self.supports().is_some_and(Supports::tells_sizes)
    }

    /// What it says it can be asked; none where it takes every case that it is not asked to skip.
    pub fn supports(&self) -> Option<&Supports> {
        match self {
            SubjectChoice::Cpu | SubjectChoice::Ordered(_) => None,
            #[cfg(feature = "cuda")]
            SubjectChoice::Cuda => None,
            #[cfg(feature = "cuda-host")]
            SubjectChoice::CudaHost => None,
            SubjectChoice::Process(program) | SubjectChoice::Revealed(program, _) => {
                Some(program.supports())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subjects_name_is_its_own() {
        let cpu = SubjectChoice::default();
        assert_eq!(cpu.subject().name(), cpu.name().as_ref());
        assert_eq!(cpu.arguments(), "");
        for name in SubjectChoice::NAMES {
            let named = SubjectChoice::named(name).unwrap();
            assert_eq!((&*named.name(), named.subject().name()), (*name, *name));
            let arguments = named.arguments();
            assert!(arguments.is_empty() || arguments == format!(" --subject {name}"));
        }
    }
}
