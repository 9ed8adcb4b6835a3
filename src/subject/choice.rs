//! Which subject is asked, and how another one of it is made.

use super::api::Subject;
use super::cpu::Cpu;
#[cfg(feature = "cuda")]
use super::cuda::Cuda;
#[cfg(feature = "cuda-host")]
use super::cuda::CudaHost;
use super::process::{Process, Program, Supports};
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
    /// A program.
    Process(Arc<Program>),
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

    /// A subject to ask.
    pub fn subject(&self) -> Box<dyn Subject + Send> {
        match self {
            SubjectChoice::Cpu => Box::new(Cpu::default()),
            #[cfg(feature = "cuda")]
            SubjectChoice::Cuda => Box::new(Cuda::default()),
            #[cfg(feature = "cuda-host")]
            SubjectChoice::CudaHost => Box::new(CudaHost::default()),
            SubjectChoice::Process(program) => Box::new(Process::new(program)),
        }
    }

    /// Its name in commands and reports.
    pub fn name(&self) -> &'static str {
        match self {
            SubjectChoice::Cpu => SubjectChoice::CPU,
            #[cfg(feature = "cuda")]
            SubjectChoice::Cuda => SubjectChoice::CUDA,
            #[cfg(feature = "cuda-host")]
            SubjectChoice::CudaHost => SubjectChoice::CUDA_HOST,
            SubjectChoice::Process(_) => Process::NAME,
        }
    }

    /// What a report says the subject is.
    pub fn title(&self) -> String {
        match self {
            SubjectChoice::Cpu => SubjectChoice::CPU.to_owned(),
            #[cfg(feature = "cuda")]
            SubjectChoice::Cuda => match Cuda::facts() {
                Ok(facts) => format!("{} ({}, {})", SubjectChoice::CUDA, facts.name, facts.arch),
                Err(why) => format!("{} ({why})", SubjectChoice::CUDA),
            },
            #[cfg(feature = "cuda-host")]
            SubjectChoice::CudaHost => SubjectChoice::CUDA_HOST.to_owned(),
            SubjectChoice::Process(program) => program.title(),
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
            SubjectChoice::Process(program) => program.arguments(),
        }
    }

    /// What it says it can be asked; none where it takes every case that it is not asked to skip.
    pub fn supports(&self) -> Option<&Supports> {
        match self {
            SubjectChoice::Cpu => None,
            #[cfg(feature = "cuda")]
            SubjectChoice::Cuda => None,
            #[cfg(feature = "cuda-host")]
            SubjectChoice::CudaHost => None,
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
        for name in SubjectChoice::NAMES {
            let named = SubjectChoice::named(name).unwrap();
            assert_eq!((named.name(), named.subject().name()), (*name, *name));
            let arguments = named.arguments();
            assert!(arguments.is_empty() || arguments == format!(" --subject {name}"));
        }
    }
}
